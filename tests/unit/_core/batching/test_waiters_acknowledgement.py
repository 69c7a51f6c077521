from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref

import pytest

from aioproducer._core.batching.waiters import (
    Acknowledgement,
    AwaitingWaiters,
    Delivered,
    Failure,
    acknowledgement_on,
    fail_awaited,
    resolve_awaited,
)
from aioproducer.errors import DeliveryTimeout
from aioproducer.testing import in_virtual_time
from aioproducer.types import RecordMetadata

FIRST, SECOND, THIRD = (
    RecordMetadata("orders", 0, offset, 1_000, log_append_time=False) for offset in range(3)
)


class Office:
    """Tasks that await an acknowledgement each, and their outcomes in the order in which the tasks resumed."""

    def __init__(self) -> None:
        self.waiters: list[Acknowledgement] = []
        self.heard: list[RecordMetadata | BaseException] = []

    async def call(self) -> RecordMetadata:
        waiter = acknowledgement_on(asyncio.get_running_loop())()
        self.waiters.append(waiter)
        try:
            metadata = await waiter
        except BaseException as error:
            self.heard.append(error)
            raise
        self.heard.append(metadata)
        return metadata

    async def calls(self, count: int) -> list[asyncio.Task[RecordMetadata]]:
        tasks = [asyncio.create_task(self.call()) for _ in range(count)]
        await asyncio.sleep(0)
        return tasks


@in_virtual_time
async def test_tasks_resume_next_iteration_in_order_of_the_records() -> None:
    office = Office()
    tasks = await office.calls(3)
    resolve_awaited(office.waiters, [FIRST, SECOND, THIRD])
    assert office.heard == []
    await asyncio.sleep(0)
    assert office.heard == [FIRST, SECOND, THIRD]
    assert await asyncio.gather(*tasks) == [FIRST, SECOND, THIRD]


@in_virtual_time
async def test_error_is_raised_in_the_waiting_task() -> None:
    office = Office()
    [first, second] = await office.calls(2)
    fail_awaited(office.waiters, [DeliveryTimeout("too late"), DeliveryTimeout("too late as well")])
    with pytest.raises(DeliveryTimeout, match=r"late$"):
        await first
    with pytest.raises(DeliveryTimeout, match="as well"):
        await second


@in_virtual_time
async def test_cancelled_task_resumes_and_ignores_its_outcome() -> None:
    office = Office()
    [cancelled, other] = await office.calls(2)
    assert cancelled.cancel("no more")
    resolve_awaited(office.waiters, [FIRST, SECOND])
    with pytest.raises(asyncio.CancelledError, match="no more"):
        await cancelled
    assert await other == SECOND
    assert [type(each) for each in office.heard] == [asyncio.CancelledError, RecordMetadata]


def test_task_can_be_cancelled_while_its_loop_is_stopped() -> None:
    """`asyncio.run` cancels the remaining tasks in this way when the program ends."""
    office = Office()
    with asyncio.Runner() as runner:
        [task] = runner.run(office.calls(1))
    assert task.cancelled()
    assert isinstance(office.heard[0], asyncio.CancelledError)


@in_virtual_time
async def test_cancelled_task_ignores_a_failure() -> None:
    office = Office()
    [cancelled, other] = await office.calls(2)
    assert cancelled.cancel()
    fail_awaited(office.waiters, [DeliveryTimeout("not for it"), DeliveryTimeout("too late")])
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    with pytest.raises(DeliveryTimeout, match="too late"):
        await other


@in_virtual_time
async def test_settled_task_can_be_cancelled_before_it_resumes() -> None:
    office = Office()
    [task] = await office.calls(1)
    resolve_awaited(office.waiters, [FIRST])
    assert task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@in_virtual_time
async def test_task_cancelled_twice_is_cancelled_once() -> None:
    office = Office()
    [task] = await office.calls(1)
    assert task.cancel()
    assert not office.waiters[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(office.heard) == 1


@in_virtual_time
async def test_timeout_ends_the_await() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await Office().call()


@in_virtual_time
async def test_task_resumes_in_its_own_context() -> None:
    name = contextvars.ContextVar[str]("name")
    office, heard = Office(), []

    async def call(own: str) -> None:
        name.set(own)
        await office.call()
        heard.append(name.get())

    tasks = [asyncio.create_task(call(each)) for each in ("a", "b")]
    await asyncio.sleep(0)
    resolve_awaited(office.waiters, [FIRST, SECOND])
    await asyncio.gather(*tasks)
    assert heard == ["a", "b"]


@in_virtual_time
async def test_handled_error_needs_no_garbage_collector() -> None:
    office = Office()
    errors: list[weakref.ref[DeliveryTimeout]] = []

    async def call() -> None:
        waiter = acknowledgement_on(asyncio.get_running_loop())()
        office.waiters.append(waiter)
        try:
            await waiter
        except DeliveryTimeout as error:
            errors.append(weakref.ref(error))

    gc.collect()
    gc.disable()
    try:
        task = asyncio.create_task(call())
        await asyncio.sleep(0)
        fail_awaited(office.waiters, [DeliveryTimeout("too late")])
        await task
        assert [error() for error in errors] == [None]
    finally:
        gc.enable()


@in_virtual_time
async def test_ended_task_is_freed_before_others_of_its_batch_resume() -> None:
    office = Office()
    tasks = await office.calls(2)
    ended = weakref.ref(tasks[0])

    async def look() -> bool:
        await office.call()
        return ended() is None

    looking = asyncio.create_task(look())
    await asyncio.sleep(0)
    tasks.clear()
    resolve_awaited(office.waiters, [FIRST, SECOND, THIRD])
    assert await looking


def test_tasks_resume_after_another_task_stopped_the_loop() -> None:
    office = Office()
    tasks: list[asyncio.Task[RecordMetadata]] = []

    async def leaving() -> RecordMetadata:
        await office.call()
        raise SystemExit

    async def begin() -> None:
        tasks.extend(asyncio.create_task(each) for each in (leaving(), office.call(), office.call()))
        await asyncio.sleep(0)
        resolve_awaited(office.waiters, [FIRST, SECOND, THIRD])
        await asyncio.wait(tasks)

    with asyncio.Runner() as runner:
        with pytest.raises(SystemExit):
            runner.run(begin())
        assert office.heard == [FIRST]
        runner.run(asyncio.sleep(0))
        assert office.heard == [FIRST, SECOND, THIRD]
        assert isinstance(tasks[0].exception(), SystemExit)


@in_virtual_time
async def test_resolve_ignores_a_waiter_without_a_task() -> None:
    coroutine = Office().call()
    waiter = coroutine.send(None)  # driven by hand: no task has said how to wake it
    assert isinstance(waiter, Acknowledgement)
    resolve_awaited([waiter], [FIRST])
    await asyncio.sleep(0)
    coroutine.close()


@pytest.mark.parametrize("position", [0, 1, 2])
@in_virtual_time
async def test_resolve_skips_a_waiter_that_is_never_awaited(position: int) -> None:
    """Ctrl-C may arrive between the append and the await."""
    office = Office()
    tasks = await office.calls(2)
    office.waiters.insert(position, acknowledgement_on(asyncio.get_running_loop())())
    places = [FIRST, SECOND, THIRD]
    resolve_awaited(office.waiters, places)
    del places[position]
    assert await asyncio.gather(*tasks) == places


@in_virtual_time
async def test_failure_skips_a_waiter_that_is_never_awaited() -> None:
    office = Office()
    tasks = await office.calls(2)
    office.waiters.insert(1, acknowledgement_on(asyncio.get_running_loop())())
    fail_awaited(
        office.waiters, [DeliveryTimeout("first"), DeliveryTimeout("for nobody"), DeliveryTimeout("third")]
    )
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(each) for each in outcomes] == ["first", "third"]


@in_virtual_time
async def test_acknowledgement_is_a_future_for_asyncio() -> None:
    office = Office()
    [task] = await office.calls(1)
    assert asyncio.isfuture(office.waiters[0]) is True
    assert "wait_for=<aioproducer" in repr(task)
    resolve_awaited(office.waiters, [FIRST])
    await task


def test_task_of_another_loop_may_not_await_it() -> None:
    async def kind() -> type[Acknowledgement]:
        return acknowledgement_on(asyncio.get_running_loop())

    async def await_one_of(foreign: type[Acknowledgement]) -> None:
        await foreign()

    foreign = asyncio.run(kind())
    with pytest.raises(RuntimeError, match="attached to a different loop"):
        asyncio.run(await_one_of(foreign))


@in_virtual_time
async def test_later_outcome_of_a_woken_waiter_is_ignored() -> None:
    office = Office()
    [task] = await office.calls(1)
    resolve_awaited(office.waiters, [FIRST])
    await task
    fail_awaited(office.waiters, [DeliveryTimeout("too late")])
    await asyncio.sleep(0)
    assert office.waiters[0].result() == FIRST


@in_virtual_time
async def test_outcomes_beyond_the_waiters_are_ignored() -> None:
    office = Office()
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    [task] = await office.calls(1)
    resolve_awaited(office.waiters, [FIRST, SECOND])
    assert await task == FIRST
    await asyncio.sleep(0)
    assert complaints == []


@in_virtual_time
async def test_cancel_returns_true_if_a_task_waited() -> None:
    office = Office()
    [task] = await office.calls(1)
    [waiter] = office.waiters
    assert waiter.cancel("no more")
    assert not waiter.cancel("and again")
    with pytest.raises(asyncio.CancelledError, match="no more"):
        await task


@in_virtual_time
async def test_cancel_without_a_message_raises_without_arguments() -> None:
    office = Office()
    [task] = await office.calls(1)
    assert office.waiters[0].cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    assert raised.value.args == ()


@in_virtual_time
async def test_cancel_of_a_settled_waiter_returns_false() -> None:
    office = Office()
    [task] = await office.calls(1)
    resolve_awaited(office.waiters, [FIRST])
    assert not office.waiters[0].cancel()
    assert await task == FIRST


@in_virtual_time
async def test_cancelled_task_resumes_in_its_own_context() -> None:
    waiter = acknowledgement_on(asyncio.get_running_loop())()
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody's")

    async def call() -> str:
        whose.set("the task's")
        try:
            await waiter
        except asyncio.CancelledError:
            return whose.get()
        return "not cancelled"

    task = asyncio.create_task(call())
    await asyncio.sleep(0)
    assert waiter.cancel()
    assert await task == "the task's"


@in_virtual_time
async def test_acknowledgement_class_has_its_name_and_no_dict() -> None:
    kind = acknowledgement_on(asyncio.get_running_loop())
    assert (kind.__module__, kind.__name__) == (Acknowledgement.__module__, "Acknowledgement")
    assert not hasattr(kind(), "__dict__")


@in_virtual_time
async def test_stretch_gives_each_waiter_its_own_metadata() -> None:
    office = Office()
    first, second, third = await office.calls(3)
    waiters = AwaitingWaiters(office.waiters)
    waiters.take([0, 2]).resolve(Delivered("orders", 0, 0, [1_000, 1_000], log_append_time=False))
    assert [await first, await third] == [FIRST, SECOND]
    assert not second.done()
    resolve_awaited([office.waiters[1]], [THIRD])
    assert await second == THIRD


@in_virtual_time
async def test_stretch_gives_each_waiter_its_own_exception() -> None:
    office = Office()
    tasks = await office.calls(2)
    AwaitingWaiters(office.waiters).fail(Failure(DeliveryTimeout, "late"))
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in errors] == [DeliveryTimeout, DeliveryTimeout]
    assert errors[0] is not errors[1]


@in_virtual_time
async def test_unawaited_waiter_disturbs_no_other_waiter() -> None:
    office = Office()
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    [task] = await office.calls(1)
    forgotten = acknowledgement_on(asyncio.get_running_loop())()
    resolve_awaited([forgotten, *office.waiters], [FIRST, SECOND])
    assert await task == SECOND
    await asyncio.sleep(0)
    assert complaints == []
