"""The Futures of single records: stretches, parts of stretches, and deadlines of single calls; in C and in Python."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import sysconfig
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from aioproducer._core.acceleration import accelerated
from aioproducer._core.batching.receipts import (
    FutureKind,
    ReceiptKind,
    _ready,
    _report,
    _stack,
    receipts_on,
)
from aioproducer._core.batching.waiters import Delivered, Failure, TaskWaker
from aioproducer.errors import DeliveryTimeout, ProducerClosed
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.batching.batch_rig import added

LATE = Failure(DeliveryTimeout, "late")
CLOSED = Failure(ProducerClosed, "closed")
Of = Callable[[asyncio.AbstractEventLoop], ReceiptKind]


def receipts(loop: asyncio.AbstractEventLoop) -> ReceiptKind:
    return receipts_on(TaskWaker(loop))


@pytest.fixture(params=[receipts, FutureKind])
def of(request: pytest.FixtureRequest) -> Of:
    kind: Of = request.param
    return kind


def delivered(*timestamps_ms: int, base_offset: int = 40) -> Delivered:
    return Delivered("orders", 3, base_offset, timestamps_ms, log_append_time=False)


def stretch_of(of: Of, count: int) -> tuple[ReceiptKind, Any, list[asyncio.Future[Any]]]:
    kind = of(asyncio.get_running_loop())
    stretch = kind.stretch()
    return kind, stretch, [added(kind, stretch) for _ in range(count)]


def kinds(futures: list[asyncio.Future[Any]]) -> list[str]:
    return [type(each.exception()).__name__ if each.done() else "pending" for each in futures]


@in_virtual_time
async def test_stretch_adds_new_and_given_futures_in_order(of: Of) -> None:
    kind, stretch, [first] = stretch_of(of, 1)
    given = kind.waiter()
    heard: list[Any] = []
    given.add_done_callback(heard.append)
    stretch.append(given)
    last = added(kind, stretch)
    assert len(stretch) == 3
    assert [list(stretch.indices_of(each)) for each in (first, given, last)] == [[0], [1], [2]]
    assert list(stretch.indices_of(object())) == []
    assert list(stretch.indices_of(kind.waiter())) == []
    stretch.resolve(delivered(1, 2, 3))
    assert [each.result().offset for each in (first, given, last)] == [40, 41, 42]
    await asyncio.sleep(0)
    assert heard == [given]


@in_virtual_time
async def test_future_that_a_stretch_adds_later_is_pending(of: Of) -> None:
    kind, _, _ = stretch_of(of, 0)
    future = kind.waiter()
    assert not future.done()
    assert future.get_loop() is asyncio.get_running_loop()
    assert future.cancel()


@pytest.mark.parametrize("base_offset", [0, -1])
@in_virtual_time
async def test_offset_is_unknown_without_a_base_offset(of: Of, base_offset: int) -> None:
    _, stretch, futures = stretch_of(of, 2)
    stretch.resolve(delivered(7, 8, base_offset=base_offset))
    assert [each.result().offset for each in futures] == ([0, 1] if base_offset == 0 else [-1, -1])
    assert [each.result().timestamp_ms for each in futures] == [7, 8]


@in_virtual_time
async def test_outcomes_after_a_failure_are_ignored(of: Of) -> None:
    _, stretch, futures = stretch_of(of, 2)
    stretch.fail(LATE)
    stretch.fail(CLOSED)
    stretch.resolve(delivered(1, 2))
    assert kinds(futures) == ["DeliveryTimeout"] * 2


@in_virtual_time
async def test_parts_of_a_stretch_have_their_own_outcomes(of: Of) -> None:
    _, stretch, futures = stretch_of(of, 5)
    order: list[int] = []
    for each in futures:
        each.add_done_callback(lambda future: order.append(futures.index(future)))
    futures[2].cancel()
    left, right = stretch.take([0, 2]), stretch.take(range(3, 5))
    assert (len(left), len(right)) == (2, 2)
    assert [list(left.indices_of(each)) for each in futures] == [[0], [], [1], [], []]
    again = right.take([1])
    again.resolve(delivered(9, base_offset=70))
    left.fail(LATE)
    await asyncio.sleep(0)
    assert futures[4].result().offset == 70
    assert isinstance(futures[0].exception(), DeliveryTimeout)
    assert [each.done() for each in futures] == [True, False, True, False, True]
    assert order == [2, 4, 0]
    right.take([0]).resolve(delivered(1))
    assert futures[3].result().offset == 40


@in_virtual_time
async def test_failure_of_the_whole_reaches_lost_parts(of: Of) -> None:
    """The parts of a split have no batch if an exception has interrupted the split."""
    _, stretch, futures = stretch_of(of, 4)
    heard: list[Any] = []
    for each in futures:
        each.add_done_callback(heard.append)
    for indices in ([0, 1], [2]):
        part = stretch.take(indices)
        del part
    stretch.fail(CLOSED)
    await asyncio.sleep(0)
    assert kinds(futures) == ["ProducerClosed"] * 4
    assert set(heard) == set(futures)
    assert len(heard) == 4


@in_virtual_time
async def test_settled_futures_stay_settled_in_a_part(of: Of) -> None:
    _, stretch, futures = stretch_of(of, 2)
    stretch.fail(LATE)
    stretch.take([0, 1]).fail(CLOSED)
    assert kinds(futures) == ["DeliveryTimeout"] * 2


@in_virtual_time
async def test_kind_expires_a_waiter_alone(of: Of) -> None:
    kind, stretch, [impatient, patient, other] = stretch_of(of, 3)
    heard: list[Any] = []
    impatient.add_done_callback(heard.append)
    kind.expire(impatient, LATE)
    kind.expire(impatient, CLOSED)
    await asyncio.sleep(0)
    assert heard == [impatient]
    assert kinds([impatient, patient]) == ["DeliveryTimeout", "pending"]
    assert not stretch.all_waiters_expired
    part = stretch.take([0, 2])
    assert not part.all_waiters_expired
    kind.expire(other, LATE)
    assert part.all_waiters_expired
    part.resolve(delivered(1, 2))
    assert kinds([impatient, other]) == ["DeliveryTimeout"] * 2


@in_virtual_time
async def test_stretch_is_forsaken_once_every_receipt_has_expired(of: Of) -> None:
    kind, stretch, futures = stretch_of(of, 2)
    for each in futures:
        assert not stretch.all_waiters_expired
        kind.expire(each, LATE)
    assert stretch.all_waiters_expired
    assert not stretch_of(of, 1)[1].all_waiters_expired


@in_virtual_time
async def test_record_of_a_cancelled_receipt_is_still_sent(of: Of) -> None:
    kind, stretch, [gone, late] = stretch_of(of, 2)
    gone.cancel()
    kind.expire(gone, LATE)
    kind.expire(late, LATE)
    assert not stretch.all_waiters_expired


def test_ready_handles_are_not_used_in_debug_mode() -> None:
    with asyncio.Runner(debug=False) as runner:
        loop: Any = runner.get_loop()
        assert _ready(loop) is loop._ready
        loop.set_debug(True)
        assert _ready(loop) is None
    assert _ready(None) is None


def test_error_of_a_callback_is_reported_with_its_source() -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        receipt, error = loop.create_future(), ValueError("broken")
        contexts: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: contexts.append(context))
        _report(kinds, receipt, contextvars.copy_context(), error)
        [context] = contexts
        assert context["exception"] is error
        assert context["message"].startswith("Exception in callback kinds(")
        assert isinstance(context["handle"], asyncio.Handle)


def test_stack_of_a_receipt_ends_with_the_caller() -> None:
    assert _stack()[-1].name == "test_stack_of_a_receipt_ends_with_the_caller"


@in_virtual_time
async def test_receipts_wake_at_the_end_of_a_read() -> None:
    loop = asyncio.get_running_loop()
    waker = TaskWaker(loop)
    kind = receipts_on(waker)
    stretch = kind.stretch()
    future, log = added(kind, stretch), list[str]()
    future.add_done_callback(lambda _: log.append("called"))

    def read() -> None:
        waker.pause()
        stretch.resolve(delivered(1))
        log.append("held")
        waker.resume()

    loop.call_soon(read)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert log == ["held", "called"]


async def test_receipts_keep_nothing_of_freed_ones(of: Of) -> None:
    kind, stretch, freed = stretch_of(of, 4)
    freed[0].cancel("late")
    freed[1].note = "note"  # type: ignore[attr-defined]
    freed[2].add_done_callback(print)
    freed[3].set_exception(ValueError())
    freed[3].exception()
    gone = [weakref.ref(each) for each in freed]
    stretch.fail(CLOSED)
    await asyncio.sleep(0)
    del freed, stretch
    gc.collect()
    assert [each() for each in gone] == [None] * 4
    later = kind.stretch()
    futures = [added(kind, later) for _ in range(4)]
    assert kinds(futures) == ["pending"] * 4
    assert not any(
        hasattr(each, "note") or gc.is_tracked(each) != isinstance(kind, FutureKind) for each in futures
    )
    heard: list[Any] = []
    for each in futures:
        each.add_done_callback(heard.append)
    later.resolve(delivered(1, 2, 3, 4))
    await asyncio.sleep(0)
    assert heard == futures
    assert [each.result().offset for each in futures] == [40, 41, 42, 43]


@pytest.mark.skipif(
    not accelerated or "ASAN_OPTIONS" in os.environ or bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="receipts without the accelerator, with sanitizers or without a GIL use new memory each",
)
async def test_receipts_reuse_memory_so_no_collection_starts() -> None:
    kind, stretch, futures = stretch_of(receipts, 1_000)
    gc.collect()
    gc.disable()
    try:
        futures.clear()
        counted = gc.get_count()[0]
        futures += [added(kind, stretch) for _ in range(1_000)]
        assert gc.get_count()[0] - counted < 100
    finally:
        gc.enable()


async def test_iterators_in_reused_memory_have_their_own_receipt(of: Of) -> None:
    _, stretch, futures = stretch_of(of, 4)
    stretch.resolve(delivered(1, 2, 3, 4))
    for _ in range(3):
        assert offsets_of([each.__await__() for each in futures]) == [43, 42, 41, 40]


def offsets_of(awaits: list[Any]) -> list[int]:
    """End each of *awaits*, the last one first, and return the offsets."""
    offsets: list[int] = []
    while awaits:
        with pytest.raises(StopIteration) as stop:
            next(awaits.pop())
        offsets.append(stop.value.value.offset)
    return offsets


def test_receipts_outlive_their_loop_and_kind(of: Of) -> None:
    async def leave() -> list[asyncio.Future[Any]]:
        _, stretch, futures = stretch_of(of, 3)
        stretch.resolve(delivered(1, 2, 3))
        return futures

    futures = asyncio.run(leave())
    gc.collect()
    assert [each.result().offset for each in futures] == [40, 41, 42]
    del futures[0]
    assert len(asyncio.run(leave())) == len(futures) + 1
