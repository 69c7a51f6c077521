from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from aioproducer._core.batching.admission import AppendLock, QueuedCall
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.batching.append_lock_rig import Call

NEVER = 1e9


def nothing() -> None:
    return None


async def in_line(lock: AppendLock, *attempts: Callable[[], object]) -> list[asyncio.Task[bool]]:
    """Return calls that wait, in this order."""
    calls = [asyncio.create_task(lock.acquire(Call(attempt), NEVER)) for attempt in attempts]
    await asyncio.sleep(0)
    return calls


@in_virtual_time
async def test_first_call_gets_the_lock_immediately() -> None:
    lock: AppendLock = AppendLock()
    assert await lock.acquire(Call(), NEVER) is False
    assert lock.calls == 1
    lock.release()
    assert lock.calls == 0


@in_virtual_time
async def test_release_serves_waiting_calls_in_order() -> None:
    lock: AppendLock = AppendLock()
    await lock.acquire(Call(), NEVER)
    made: list[str] = []

    def attempt(name: str) -> str:
        made.append(name)
        return name

    calls = await in_line(lock, *(partial(attempt, name) for name in "abc"))
    lock.release()
    assert made == ["a", "b", "c"]
    assert lock.calls == 0
    assert await asyncio.gather(*calls) == [True] * 3


@in_virtual_time
async def test_call_that_cannot_be_served_gets_the_lock() -> None:
    lock: AppendLock = AppendLock()
    await lock.acquire(Call(), NEVER)
    served, has_turn, behind = await in_line(lock, lambda: "a", nothing, lambda: "c")
    lock.release()
    assert await served is True
    assert await has_turn is False
    assert lock.calls == 2
    assert not behind.done()
    lock.release()
    assert await behind is True


@in_virtual_time
async def test_call_without_an_attempt_of_its_own_gets_the_lock() -> None:
    lock: AppendLock = AppendLock()
    await lock.acquire(QueuedCall(), NEVER)
    call = asyncio.create_task(lock.acquire(QueuedCall(), NEVER))
    await asyncio.sleep(0)
    lock.release()
    assert await call is False
    assert lock.calls == 1


@in_virtual_time
async def test_failed_attempt_fails_only_its_own_call() -> None:
    lock: AppendLock = AppendLock()
    await lock.acquire(Call(), NEVER)

    def fail() -> str:
        raise ValueError("spoilt")

    failing, fine = await in_line(lock, fail, lambda: "b")
    lock.release()
    with pytest.raises(ValueError, match="spoilt"):
        await failing
    assert await fine is True
    assert lock.calls == 0


@in_virtual_time
async def test_call_past_its_deadline_leaves_the_line() -> None:
    lock: AppendLock = AppendLock()
    await lock.acquire(Call(), NEVER)
    with pytest.raises(TimeoutError):
        await lock.acquire(Call(lambda: "a"), 1.0)
    assert asyncio.get_running_loop().time() == 1
    assert lock.calls == 1
    lock.release()
    assert lock.calls == 0


@in_virtual_time
async def test_cancelled_call_leaves_the_line() -> None:
    lock: AppendLock = AppendLock()
    await lock.acquire(Call(), NEVER)
    cancelled, behind = await in_line(lock, lambda: "a", lambda: "b")
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert lock.calls == 2
    lock.release()
    assert await behind is True
    assert lock.calls == 0


@in_virtual_time
async def test_call_cancelled_as_it_gets_the_lock_passes_it_on() -> None:
    lock: AppendLock = AppendLock()
    await lock.acquire(Call(), NEVER)
    cancelled, behind = await in_line(lock, nothing, lambda: "b")
    lock.release()
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    assert await behind is True
    assert lock.calls == 0


@in_virtual_time
async def test_call_cancelled_before_release_does_not_block_the_next() -> None:
    lock: AppendLock = AppendLock()
    await lock.acquire(Call(), NEVER)
    cancelled, behind = await in_line(lock, lambda: pytest.fail("nobody wants it"), lambda: "b")
    cancelled.cancel()
    lock.release()
    assert await behind is True
    assert lock.calls == 0


@in_virtual_time
async def test_call_cancelled_after_it_was_served_leaves_the_lock_free() -> None:
    lock: AppendLock = AppendLock()
    await lock.acquire(Call(), NEVER)
    (cancelled,) = await in_line(lock, lambda: "a")
    lock.release()
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    assert lock.calls == 0


@in_virtual_time
async def test_cancelled_error_of_user_code_reaches_its_own_call() -> None:
    lock: AppendLock = AppendLock()

    def cancel() -> str:
        raise asyncio.CancelledError

    await lock.acquire(Call(), NEVER)
    cancelled, behind = await in_line(lock, cancel, lambda: "b")
    lock.release()
    assert await behind is True
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    assert lock.calls == 0


@in_virtual_time
async def test_call_served_at_its_deadline_is_not_late() -> None:
    lock: AppendLock = AppendLock()
    loop = asyncio.get_running_loop()
    await lock.acquire(Call(), NEVER)
    loop.call_at(1.0, lock.release)  # before its timer, at the same time
    assert await lock.acquire(Call(lambda: "a"), 1.0) is True
    assert lock.calls == 0


@in_virtual_time
async def test_readmitted_calls_are_served_before_later_calls() -> None:
    lock: AppendLock = AppendLock()
    made: list[str] = []

    def attempt(name: str) -> str:
        made.append(name)
        return name

    first = Call()
    await lock.acquire(first, NEVER)
    aside = [Call(partial(attempt, name)) for name in "ab"]
    calls = await in_line(lock, *(partial(attempt, name) for name in "cd"))
    lock.readmit(reversed(aside))
    assert lock.calls == 5
    lock.release()
    assert made == ["a", "b", "c", "d"]
    assert lock.calls == 0
    assert [await lock.acquire(call, NEVER) for call in aside] == [True] * 2
    assert await asyncio.gather(*calls) == [True] * 2


@in_virtual_time
async def test_readmitted_calls_are_served_immediately_if_lock_is_free() -> None:
    lock: AppendLock = AppendLock()
    served, has_turn, behind = (Call(attempt) for attempt in (lambda: "a", nothing, lambda: "c"))
    lock.readmit([served, has_turn, behind])
    assert lock.calls == 2
    assert await lock.acquire(served, NEVER) is True
    assert await lock.acquire(has_turn, NEVER) is False
    lock.release()
    assert lock.calls == 0
    assert await lock.acquire(behind, NEVER) is True


@in_virtual_time
async def test_holder_may_readmit_itself_behind_earlier_calls() -> None:
    lock: AppendLock = AppendLock()
    before, holder, behind = (Call(attempt) for attempt in (lambda: "a", lambda: "b", lambda: "c"))
    await lock.acquire(holder, NEVER)
    lock.readmit([behind])
    assert lock.is_first(holder)
    lock.readmit([before])
    assert not lock.is_first(holder)
    lock.readmit([holder])
    lock.release()
    assert [await lock.acquire(call, NEVER) for call in (before, holder, behind)] == [True] * 3
    assert lock.calls == 0


@in_virtual_time
async def test_withdrawn_call_comes_before_no_other_call() -> None:
    lock: AppendLock = AppendLock()
    gone, holder = Call(), Call()
    await lock.acquire(holder, NEVER)
    lock.readmit([gone])
    lock.withdraw(gone)
    assert lock.is_first(holder)


@in_virtual_time
async def test_readmitted_call_times_out_at_its_deadline() -> None:
    lock: AppendLock = AppendLock()
    await lock.acquire(Call(), NEVER)
    call = Call(lambda: "a")
    lock.readmit([call])
    with pytest.raises(TimeoutError):
        await lock.acquire(call, 1.0)
    assert lock.calls == 1


@in_virtual_time
async def test_call_may_acquire_the_lock_again() -> None:
    lock: AppendLock = AppendLock()
    call = Call()
    for _ in range(2):
        assert await lock.acquire(call, NEVER) is False
        lock.release()
    lock.readmit([call])
    assert await lock.acquire(call, NEVER) is False
    assert lock.calls == 1
    lock.release()
    assert await lock.acquire(call, NEVER) is False


@in_virtual_time
async def test_withdraw_ignores_a_call_that_does_not_wait() -> None:
    lock: AppendLock = AppendLock()
    lock.withdraw(Call())
    assert lock.calls == 0


@in_virtual_time
async def test_withdrawn_call_leaves_the_line() -> None:
    lock: AppendLock = AppendLock()
    await lock.acquire(Call(), NEVER)
    call = Call(lambda: pytest.fail("nobody wants it"))
    lock.readmit([call])
    lock.withdraw(call)
    assert lock.calls == 1
    lock.release()
    assert lock.calls == 0


@in_virtual_time
async def test_withdrawn_holder_passes_the_lock_on() -> None:
    lock: AppendLock = AppendLock()
    call = Call()
    lock.readmit([call])
    [behind] = await in_line(lock, lambda: "b")
    lock.withdraw(call)
    assert await behind is True
    assert lock.calls == 0


@in_virtual_time
async def test_call_withdrawn_after_it_was_served_leaves_the_lock_free() -> None:
    lock: AppendLock = AppendLock()

    def fail() -> str:
        raise ValueError("spoilt")

    calls = [Call(attempt) for attempt in (lambda: "a", fail)]
    lock.readmit(calls)
    for call in calls:
        lock.withdraw(call)
    assert lock.calls == 0


@in_virtual_time
async def test_interrupted_attempt_passes_the_lock_to_its_call() -> None:
    lock: AppendLock = AppendLock()
    call = Call()
    await lock.acquire(call, NEVER)

    def interrupt() -> str:
        raise KeyboardInterrupt

    has_turn, behind = await in_line(lock, interrupt, lambda: "b")
    with pytest.raises(KeyboardInterrupt):
        lock.release()
    lock.withdraw(call)
    lock.withdraw(call)
    assert await has_turn is False
    assert not behind.done()
    lock.release()
    assert await behind is True
    assert lock.calls == 0


@in_virtual_time
async def test_interrupted_attempt_of_a_cancelled_call_is_dropped() -> None:
    lock: AppendLock = AppendLock()
    holder = Call()
    await lock.acquire(holder, NEVER)

    def cancel_and_interrupt() -> str:
        cancelled.cancel()
        raise KeyboardInterrupt

    cancelled, behind = await in_line(lock, cancel_and_interrupt, lambda: "b")
    with pytest.raises(KeyboardInterrupt):
        lock.release()
    lock.withdraw(holder)
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert await behind is True
    assert lock.calls == 0


@in_virtual_time
async def test_attempt_may_withdraw_its_own_call() -> None:
    """User code in the attempt may close the coroutine of the call."""
    lock: AppendLock = AppendLock()
    await lock.acquire(Call(), NEVER)

    def attempt() -> str:
        lock.withdraw(call)
        return "a"

    call = Call(attempt)
    lock.readmit([call])
    lock.release()
    assert lock.calls == 0


class InterruptedGrant(Call):
    """Call that interrupts the release that grants the lock, as the call leaves the queue."""

    is_granted = False

    def attempt(self) -> bool:
        self.is_granted = True
        return False

    def __hash__(self) -> int:
        if self.is_granted:
            self.is_granted = False
            raise KeyboardInterrupt
        return id(self)


@in_virtual_time
async def test_call_granted_by_an_interrupted_release_releases_once() -> None:
    lock: AppendLock = AppendLock()
    await lock.acquire(Call(), NEVER)
    call = InterruptedGrant()
    lock.readmit([call])
    [behind] = await in_line(lock, lambda: "b")
    with pytest.raises(KeyboardInterrupt):
        lock.release()
    assert await lock.acquire(call, NEVER) is False
    lock.release()
    assert await behind is True
    assert lock.calls == 0
