"""Callbacks of done Futures: each test runs with receipts and with asyncio Futures."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from aioproducer._core.acceleration import accelerated
from aioproducer._core.batching.receipts import FutureKind, ReceiptKind
from tests.cases import for_each
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

LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS[function.__name__] = function
    return function


@behaviour
async def order_of_registration(on: Records) -> Any:
    on.deliver()
    for number, which in enumerate((2, 0, 1, 0)):
        on.futures[which].add_done_callback(on.note(number))
    before = list(on.log)
    await asyncio.sleep(0)
    return before, on.log


@behaviour
async def other_handles_in_between(on: Records) -> Any:
    on.deliver()
    for number in range(3):
        on.first.add_done_callback(on.note(number))
        on.futures[number].add_done_callback(on.note("same"))
        on.loop.call_soon(on.log.append, number)
    await asyncio.sleep(0)
    return on.log


@behaviour
async def cancelled_handle_in_between(on: Records) -> Any:
    on.deliver()
    on.first.add_done_callback(on.note(1))
    on.loop.call_soon(on.log.append, "never").cancel()
    on.first.add_done_callback(on.note(2))
    on.loop.call_soon(on.log.append, 3)
    await turns()
    return on.log


@behaviour
async def handle_of_another_thread_in_between(on: Records) -> Any:
    on.deliver()
    on.first.add_done_callback(on.note(1))
    thread = threading.Thread(target=on.loop.call_soon_threadsafe, args=(on.log.append, 2))
    thread.start()
    thread.join()
    on.first.add_done_callback(on.note(3))
    await turns()
    return on.log


@behaviour
async def tasks_in_between(on: Records) -> Any:
    on.deliver()

    async def note(number: int) -> None:
        on.log.append(number)
        on.futures[number].add_done_callback(on.note(number))
        await asyncio.sleep(0)
        on.log.append(number)

    on.first.add_done_callback(on.note("before"))
    tasks = [asyncio.ensure_future(note(number)) for number in range(3)]
    on.first.add_done_callback(on.note("behind"))
    await asyncio.gather(*tasks)
    return on.log


@behaviour
async def pending_among_done_ones(on: Records) -> Any:
    on.futures[1].add_done_callback(on.note("pending"))
    on.first.set_result("mine")
    on.first.add_done_callback(on.note("done"))
    on.deliver()
    on.first.add_done_callback(on.note("later"))
    on.futures[2].add_done_callback(on.note("last"))
    await turns()
    return on.log


@behaviour
async def callbacks_that_add_callbacks(on: Records) -> Any:
    on.deliver()

    def add(future: asyncio.Future[Any]) -> None:
        on.note("outer")(future)
        on.loop.call_soon(on.log.append, "handle")
        future.add_done_callback(on.note("inner"))
        on.futures[2].add_done_callback(on.note("inner"))
        on.loop.call_soon(on.log.append, "last")

    on.first.add_done_callback(add)
    on.futures[1].add_done_callback(add)
    on.first.add_done_callback(on.note("behind"))
    for _ in range(3):
        on.log.append("turn")
        await asyncio.sleep(0)
    return on.log


@behaviour
async def removal_of_scheduled_callbacks(on: Records) -> Any:
    on.deliver()
    note = on.note("scheduled")
    on.first.add_done_callback(note)
    removed = on.first.remove_done_callback(note)
    await turns()
    return removed, on.log, on.first._callbacks


def note_variable(on: Records) -> Callable[[object], None]:
    def note(_: object) -> None:
        on.log.append(VARIABLE.get())
        VARIABLE.set("changed")

    return note


@behaviour
async def contexts_of_done_ones(on: Records) -> Any:
    on.deliver()
    note, given = note_variable(on), contextvars.Context()
    on.first.add_done_callback(note)
    on.first.add_done_callback(note)
    on.first.add_done_callback(note, context=given)
    on.first.add_done_callback(note, context=given)
    token = VARIABLE.set("here")
    on.first.add_done_callback(note)
    on.first.add_done_callback(note, context=None)
    VARIABLE.reset(token)
    on.first.add_done_callback(note)
    await turns()
    return on.log, VARIABLE.get(), given[VARIABLE]


@behaviour
async def empty_contexts_of_pending_ones(on: Records) -> Any:
    note, given = note_variable(on), contextvars.Context()
    for each in on.futures:
        each.add_done_callback(note)
        each.add_done_callback(note, context=given)
        each.add_done_callback(note)
    contexts = [(type(context), len(context)) for _, context in on.first._callbacks]
    on.futures[1].cancel()
    on.deliver()
    await turns()
    return contexts, on.log, VARIABLE.get(), given[VARIABLE]


@behaviour
async def token_of_another_callback(on: Records) -> Any:
    tokens: list[contextvars.Token[str]] = []
    on.deliver()

    def set_and_reset(_: object) -> None:
        VARIABLE.reset(VARIABLE.set("inside"))

    on.first.add_done_callback(set_and_reset)
    on.first.add_done_callback(lambda _: tokens.append(VARIABLE.set("first")))
    on.first.add_done_callback(lambda _: on.log.append(raised(lambda: VARIABLE.reset(tokens[0]))[0]))
    on.first.add_done_callback(lambda _: on.log.append(VARIABLE.get()))
    await turns()
    return on.log


@behaviour
async def context_of_a_task_of_a_callback(on: Records) -> Any:
    on.deliver()
    tasks: list[asyncio.Task[None]] = []

    async def note() -> None:
        await asyncio.sleep(0)
        on.log.append(VARIABLE.get())
        VARIABLE.set("task")

    def start(_: object) -> None:
        tasks.append(asyncio.ensure_future(note()))
        VARIABLE.set("callback")
        tasks.append(asyncio.ensure_future(note()))

    on.first.add_done_callback(start)
    on.first.add_done_callback(start)
    await turns()
    await asyncio.gather(*tasks)
    return on.log


@behaviour
async def exceptions_of_callbacks(on: Records) -> Any:
    def handle(_: object, context: dict[str, Any]) -> None:
        on.log.append((repr(context["exception"]), context["message"][:21], sorted(context)))

    def broken(_: object) -> None:
        on.log.append(VARIABLE.get())
        VARIABLE.set("broken")
        raise ValueError(VARIABLE.get())

    on.loop.set_exception_handler(handle)
    on.first.add_done_callback(broken)
    on.deliver()
    given = contextvars.Context()
    for each in on.futures:
        each.add_done_callback(broken)
        each.add_done_callback(broken, context=given)
        each.add_done_callback(on.note("behind"))
    await turns()
    return [each if isinstance(each, str) else each[:2] for each in on.log], given[VARIABLE]


@behaviour
async def callback_that_cannot_be_called(on: Records) -> Any:
    def handle(_: object, context: dict[str, Any]) -> None:
        on.log.append(type(context["exception"]).__name__)

    on.deliver()
    on.loop.set_exception_handler(handle)
    nothing: Any = None
    on.log.append(raised(lambda: on.first.add_done_callback(nothing))[0])
    on.first.add_done_callback(on.note("behind"))
    await turns()
    return on.log


@behaviour
async def calls_of_another_thread(on: Records) -> Any:
    on.deliver()

    def add() -> None:
        on.log.append(raised(lambda: on.first.add_done_callback(on.note("thread"))))

    thread = threading.Thread(target=add)
    thread.start()
    thread.join()
    on.first.add_done_callback(on.note("own"))
    await turns()
    return on.log


@behaviour
async def coroutine_function_as_callback(on: Records) -> Any:
    async def callback(_: object) -> None: ...

    on.deliver()
    if on.loop.get_debug() and isinstance(on.loop, asyncio.BaseEventLoop):  # uvloop accepts it
        on.log.append(raised(lambda: on.first.add_done_callback(callback))[0])
    return on.log


@behaviour
async def gathered(on: Records) -> Any:
    on.deliver()
    everything = asyncio.gather(*on.futures, *on.futures)
    everything.add_done_callback(lambda _: on.log.append("all"))
    on.first.add_done_callback(on.note("behind"))
    result = await everything
    return result, on.log


@behaviour
async def gathered_with_own_outcomes(on: Records) -> Any:
    on.first.cancel("mine")
    on.futures[1].set_exception(ValueError("mine"))
    seen = await asyncio.gather(*on.futures[:2], return_exceptions=True)
    return repr(seen), await outcome(asyncio.gather(*on.futures)), on.futures[2].cancelled()


@behaviour
async def cancelled_gather_of_done_and_pending_ones(on: Records) -> Any:
    on.first.set_result("mine")
    everything = asyncio.gather(*on.futures)
    for each in on.futures:
        each.add_done_callback(on.note("behind"))
    on.log.append(everything.cancel())
    on.loop.call_soon(on.log.append, "handle")
    result = await outcome(everything)
    await turns()
    return result, on.log


@behaviour
async def cancelled_ones_among_other_handles(on: Records) -> Any:
    for number, each in enumerate(on.futures):
        each.add_done_callback(on.note("one"))
        each.add_done_callback(on.note("two"))
        each.cancel()
        on.loop.call_soon(on.log.append, number)
    await turns()
    return on.log


@LOOPS
@for_each("debug", [False, True])
@for_each("name", BEHAVIOURS)
def test_done_receipt_behaves_like_a_future(name: str, debug: bool, new_loop: Callable[[], Any]) -> None:
    what = BEHAVIOURS[name]
    expected = run(new_loop, what, FutureKind, debug=debug)
    assert repr(run(new_loop, what, receipts, debug=debug)) == repr(expected)


@for_each("of", [receipts, FutureKind])
@for_each("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupt_of_a_done_callback_leaves_other_callbacks(
    of: Callable[[Any], ReceiptKind], interrupt: type[BaseException]
) -> None:
    log: list[Any] = []

    async def add() -> None:
        on = Records(of)
        on.deliver()

        def stop(_: object) -> None:
            raise interrupt

        for which in range(2):
            on.futures[which].add_done_callback(on.note(which))
            on.futures[which].add_done_callback(stop)
        on.first.add_done_callback(on.note("last"))
        log.append(on)
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(add())
        for expected in (1, 2):
            with pytest.raises(interrupt):
                loop.run_until_complete(asyncio.sleep(0))
            assert len(log[0].log) == expected
        loop.run_until_complete(task)
    finally:
        loop.close()
    assert [number for number, _, _ in log[0].log] == [0, 1, "last"]


class Witness:
    """A callback whose end is seen."""

    def __call__(self, _: object) -> None:
        raise AssertionError


@LOOPS
@for_each("of", [receipts, FutureKind])
def test_closed_loop_frees_callbacks_that_have_not_run(
    of: Callable[[Any], ReceiptKind], new_loop: Callable[[], Any]
) -> None:
    loop, witness = new_loop(), Witness()
    gone = weakref.ref(witness)
    future = of(loop).waiter()
    future.set_result(None)  # type: ignore[arg-type]
    for _ in range(2):
        future.add_done_callback(witness)
    del witness
    assert gone() is not None
    loop.close()
    gc.collect()
    assert gone() is None
    for _ in range(2):
        with pytest.raises(RuntimeError, match="closed"):
            future.add_done_callback(print)


def test_lost_queue_frees_callbacks_that_have_not_run() -> None:
    with asyncio.Runner() as runner:
        loop: Any = runner.get_loop()
        witness, future = Witness(), receipts(loop).waiter()
        gone = weakref.ref(witness)
        future.set_result(None)  # type: ignore[arg-type]
        for _ in range(2):
            future.add_done_callback(witness)
        witness.kept = (loop._ready, future)  # type: ignore[attr-defined]
        loop._ready = deque()
        del witness, future
        gc.collect()
        assert gone() is None


@pytest.mark.skipif(not accelerated, reason="receipts in C only")
def test_collector_does_not_track_done_receipts_with_callbacks() -> None:
    async def add(on: Records) -> Any:
        on.deliver()
        append = on.log.append
        objects = len(gc.get_objects())
        for _ in range(100):
            for each in on.futures:
                each.add_done_callback(append)
        added = len(gc.get_objects()) - objects
        await turns()
        return added, [gc.is_tracked(each) for each in on.futures], len(on.log)

    added, tracked, count = run(asyncio.new_event_loop, add, receipts)
    assert (tracked, count) == ([False] * 3, 300)
    assert added < 10


class Counted(asyncio.SelectorEventLoop):
    """An event loop that counts its handles."""

    count = 0

    def call_soon(self, *args: Any, **named: Any) -> asyncio.Handle:  # type: ignore[override]
        self.count += 1
        return super().call_soon(*args, **named)


@pytest.mark.skipif(not accelerated, reason="receipts in C only")
@pytest.mark.parametrize(("debug", "handles"), [(False, 1), (True, 300)])
def test_callbacks_of_done_receipts_share_one_handle(debug: bool, handles: int) -> None:
    async def add(on: Records) -> Any:
        on.deliver()
        before = on.loop.count  # type: ignore[attr-defined]
        for _ in range(100):
            for each in on.futures:
                each.add_done_callback(on.log.append)
        handles = on.loop.count - before  # type: ignore[attr-defined]
        await turns()
        return handles, len(on.log)

    assert run(Counted, add, receipts, debug=debug) == (handles, 300)


class ListLoop(asyncio.SelectorEventLoop):
    """An event loop with handles in a queue of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._ready = Queue()


class Queue(list[asyncio.Handle]):
    """A list with the methods of a deque that an event loop calls."""

    def popleft(self) -> asyncio.Handle:
        return self.pop(0)


@pytest.mark.parametrize("name", ["other_handles_in_between", "callbacks_that_add_callbacks"])
def test_queue_of_another_kind_gets_a_handle_per_callback(name: str) -> None:
    what = BEHAVIOURS[name]
    assert repr(run(ListLoop, what, receipts)) == repr(run(ListLoop, what, FutureKind))
