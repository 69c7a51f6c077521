"""Behaviour of asyncio Futures: each test runs with a receipt and with an `asyncio.Future`."""

from __future__ import annotations

import asyncio
import contextvars
import pickle
import types
import weakref
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest

from aioproducer._core.batching.receipts import FutureKind, ReceiptKind
from aioproducer._core.batching.waiters import Delivered
from tests.cases import for_each
from tests.unit._core.batching.batch_rig import added
from tests.unit._core.batching.receipts_rig import (
    VARIABLE,
    Behaviour,
    Records,
    outcome,
    raised,
    receipts,
    run,
    turns,
)

uvloop = pytest.importorskip("uvloop")

BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS[function.__name__] = function
    return function


def state_of(future: Any) -> list[Any]:
    return [
        (future.done(), future.cancelled(), repr(future), future._state),
        (raised(future.result), raised(future.exception)),
        (future._log_traceback, future._cancel_message, future._asyncio_future_blocking),
        (future._callbacks, repr(future._result), repr(future._exception)),
        (isinstance(future, asyncio.Future), asyncio.isfuture(future), future.__class__ is asyncio.Future),
    ]


@behaviour
async def state(on: Records) -> Any:
    seen = [state_of(on.first)]
    on.futures[1].cancel("enough")
    on.futures[2].set_result(None)  # type: ignore[arg-type]
    on.deliver()
    seen += map(state_of, on.futures)
    return seen


@behaviour
async def failure(on: Records) -> Any:
    on.fail()
    one, other = on.first.exception(), on.futures[1].exception()
    assert one is on.first.exception()
    assert one is not other
    return [state_of(each) for each in on.futures], await outcome(on.first), await outcome(on.first)


@behaviour
async def attributes(on: Records) -> Any:
    on.first.note = "mine"
    return [
        (on.first.note, on.first.get_loop() is on.loop, on.first._loop is on.loop),
        (hash(on.first) == hash(on.first), on.first == on.futures[1], weakref.ref(on.first)() is on.first),
        (asyncio.iscoroutine(on.first), isinstance(on.first, Generator), isinstance(on.first, Awaitable)),
        (hasattr(on.first, "send"), hasattr(on.first, "__next__"), raised(lambda: on.first.nothing)[0]),
        (raised(lambda: pickle.dumps(on.first))[0], type(on.first._make_cancelled_error()).__name__),
        raised(lambda: setattr(on.first, "_log_traceback", True)),
    ]


@behaviour
async def awaited_by_a_task(on: Records) -> Any:
    on.soon()
    return await outcome(on.first), await outcome(on.first)


@behaviour
async def awaited_by_two_tasks(on: Records) -> Any:
    tasks = [asyncio.ensure_future(outcome(on.first)) for _ in range(2)]
    await turns()
    on.deliver()
    return [await task for task in tasks]


@behaviour
async def failed_while_awaited(on: Records) -> Any:
    on.soon(on.fail)
    return await outcome(on.first)


@behaviour
async def awaited_by_a_task_that_is_cancelled(on: Records) -> Any:
    task = asyncio.ensure_future(outcome(on.first))
    await turns()
    cancelled = task.cancel("stop")
    return cancelled, await task, on.first.cancelled(), on.first._cancel_message


@behaviour
async def task_cancelled_in_the_turn_of_the_outcome(on: Records) -> Any:
    task = asyncio.ensure_future(outcome(on.first))
    await turns()
    on.deliver()
    task.cancel()
    return await task, repr(on.first)


@behaviour
async def cancelled_while_awaited(on: Records) -> Any:
    on.soon(lambda: on.first.cancel("gone"))
    return await outcome(on.first), on.first.cancel(), on.first._cancel_message


@behaviour
async def yielded_from(on: Records) -> Any:
    @types.coroutine
    def wait() -> Generator[Any, Any, Any]:
        return (yield from on.first)

    on.soon()
    return await outcome(wait())


@behaviour
async def iterated_by_hand(on: Records) -> Any:
    iterator = on.first.__await__()
    yielded = next(iterator) is on.first
    again = raised(lambda: next(iterator))
    on.first._asyncio_future_blocking = False
    on.deliver()
    thrown = raised(lambda: on.first.__await__().throw(ValueError("mine")))
    return yielded, again, raised(lambda: iterator.send(None)), thrown, raised(on.first.__await__().close)


@behaviour
async def gathered(on: Records) -> Any:
    on.soon()
    return await asyncio.gather(*on.futures, return_exceptions=True)


@behaviour
async def gathered_failing(on: Records) -> Any:
    on.soon(on.fail)
    return await outcome(asyncio.gather(*on.futures))


@behaviour
async def gathered_and_cancelled(on: Records) -> Any:
    everything = asyncio.gather(*on.futures)
    on.soon(everything.cancel)
    return await outcome(everything), [each.cancelled() for each in on.futures]


@behaviour
async def waited_for_first_exception(on: Records) -> Any:
    on.soon(on.fail)
    done, pending = await asyncio.wait(on.futures, return_when=asyncio.FIRST_EXCEPTION)
    return len(done), len(pending)


@behaviour
async def waited_for_in_vain(on: Records) -> Any:
    done, pending = await asyncio.wait(on.futures, timeout=0.001)
    return len(done), len(pending), on.first._callbacks


@behaviour
async def wait_for_in_time(on: Records) -> Any:
    on.soon()
    return await outcome(asyncio.wait_for(on.first, 5))


@behaviour
async def wait_for_too_late(on: Records) -> Any:
    return (await outcome(asyncio.wait_for(on.first, 0.001)))[0], on.first.cancelled()


@behaviour
async def shielded(on: Records) -> Any:
    late = (await outcome(asyncio.wait_for(asyncio.shield(on.first), 0.001)))[0]
    on.soon()
    return late, on.first.cancelled(), await outcome(asyncio.shield(on.first))


@behaviour
async def completed_in_turn(on: Records) -> Any:
    on.soon()
    return sorted([repr(await each) for each in asyncio.as_completed(on.futures)])


@behaviour
async def group_of_tasks(on: Records) -> Any:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(outcome(each)) for each in on.futures]
        on.soon()
    return [task.result() for task in tasks]


@behaviour
async def wrapped(on: Records) -> Any:
    return asyncio.ensure_future(on.first) is on.first, asyncio.wrap_future(on.first) is on.first


@behaviour
async def threads(on: Records) -> Any:
    def other_thread() -> Any:
        async def wait() -> Any:
            on.deliver()
            return await on.first

        return asyncio.run_coroutine_threadsafe(wait(), on.loop).result(5)

    return await asyncio.to_thread(other_thread)


@behaviour
async def callbacks_in_order(on: Records) -> Any:
    for number, which in enumerate((2, 0, 1, 0)):
        on.futures[which].add_done_callback(on.note(number))
    before = len(on.futures[0]._callbacks)
    on.deliver()
    at_once = list(on.log)
    on.first.add_done_callback(on.note("late"))
    await turns()
    return before, at_once, on.log, on.first._callbacks


@behaviour
async def callbacks_of_a_cancelled_one(on: Records) -> Any:
    for each in on.futures:
        each.add_done_callback(on.note("cancelled"))
        each.add_done_callback(on.note("again"))
    on.futures[1].cancel()
    await turns()
    before = list(on.log)
    on.deliver()
    await turns()
    return before, on.log


@behaviour
async def callbacks_in_their_contexts(on: Records) -> Any:
    def note(_: object) -> None:
        on.log.append(VARIABLE.get())
        VARIABLE.set("changed")

    given = contextvars.copy_context()
    given.run(VARIABLE.set, "given")
    token = VARIABLE.set("here")
    on.first.add_done_callback(note)
    on.first.add_done_callback(note, context=given)
    VARIABLE.reset(token)
    on.deliver()
    await turns()
    on.first.add_done_callback(note)
    await turns()
    return on.log, VARIABLE.get(), given[VARIABLE]


@behaviour
async def removed_callbacks(on: Records) -> Any:
    one, other = on.note("one"), on.note("other")
    for each in (one, other, one, one):
        on.first.add_done_callback(each)
    removed = [on.first.remove_done_callback(one), on.first.remove_done_callback(one)]
    on.first.add_done_callback(one)
    on.deliver()
    removed.append(on.first.remove_done_callback(one))
    await turns()
    return removed, on.log, on.first.remove_done_callback(one)


@behaviour
async def wrong_calls(on: Records) -> Any:
    first: Any = on.first
    return [
        raised(call)[0]
        for call in (
            first.add_done_callback,
            lambda: first.add_done_callback(print, None),
            lambda: first.add_done_callback(print, contexts=None),
            lambda: first.cancel(1, 2),
            lambda: first.set_exception(1),
            lambda: first.set_exception(StopIteration),
        )
    ]


@behaviour
async def set_by_the_program(on: Records) -> Any:
    on.first.set_result("mine")
    on.futures[1].set_exception(KeyError)
    again = [raised(lambda: on.first.set_result(None)), raised(lambda: on.first.set_exception(OSError()))]
    on.deliver()
    return again, await asyncio.gather(*on.futures, return_exceptions=True)


@behaviour
async def exceptions_of_callbacks(on: Records) -> Any:
    def note(_: object, context: dict[str, Any]) -> None:
        on.log.append((sorted(set(context) - {"source_traceback"}), repr(context["exception"])))
        on.log.append(context["message"][:21])

    def broken(_: object) -> None:
        raise ValueError("broken")

    on.loop.set_exception_handler(note)
    on.first.add_done_callback(broken)
    on.first.add_done_callback(on.note("behind it"))
    on.futures[1].add_done_callback(on.note("another"))
    on.deliver()
    await turns()
    return on.log


@behaviour
async def source(on: Records) -> Any:
    on.loop.set_debug(enabled=True)
    traced = Records(FutureKind if isinstance(on.kind, FutureKind) else receipts)
    seen = traced.first._source_traceback is not None, on.first._source_traceback is None
    return seen, repr(traced.first).startswith("<Future pending created at ")


@for_each("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@for_each("name", BEHAVIOURS)
def test_receipt_behaves_like_a_future(name: str, new_loop: Callable[[], Any]) -> None:
    what = BEHAVIOURS[name]
    assert repr(run(new_loop, what, receipts)) == repr(run(new_loop, what, FutureKind))


@for_each("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@for_each("of", [receipts, FutureKind])
def test_loop_runs_until_a_receipt_is_done(
    of: Callable[[Any], ReceiptKind], new_loop: Callable[[], Any]
) -> None:
    loop = new_loop()
    try:
        kind = of(loop)
        stretch = kind.stretch()
        future = added(kind, stretch)
        loop.call_soon(stretch.resolve, Delivered("orders", 3, 40, [1], log_append_time=False))
        assert loop.run_until_complete(future).offset == 40
    finally:
        loop.close()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupt_of_a_callback_leaves_other_callbacks_to_run(interrupt: type[BaseException]) -> None:
    loop = asyncio.new_event_loop()
    try:
        kind, log = receipts(loop), list[str]()
        stretch = kind.stretch()
        one, other = added(kind, stretch), added(kind, stretch)

        def stop(_: object) -> None:
            raise interrupt

        one.add_done_callback(stop)
        one.add_done_callback(lambda _: log.append("same"))
        other.add_done_callback(lambda _: log.append("other"))
        stretch.resolve(Delivered("orders", 3, 40, [1, 2], log_append_time=False))
        with pytest.raises(interrupt):
            loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(asyncio.sleep(0))
        assert log == ["same", "other"]
    finally:
        loop.close()
