"""Acknowledgements in C and in Python behave equally, for any events in any order."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from aioproducer._core.batching.waiters import (
    Acknowledgement,
    python_acknowledgements,
    python_set_outcomes,
    python_wake_each,
)
from aioproducer._core.clock import python_running_loop_without_getpid
from aioproducer.errors import DeliveryTimeout
from aioproducer.types import RecordMetadata
from tests.cases import for_each

accelerator: Any = pytest.importorskip(
    "aioproducer._core._accelerator", reason="it was not built", exc_type=ImportError
)

WHERE = RecordMetadata("orders", 0, 7, 1_000, log_append_time=False)
LATE = DeliveryTimeout("too late")
WHO: ContextVar[str] = ContextVar("who")


class Loop:
    """Event loop that records the scheduled calls."""

    def __init__(self) -> None:
        self.called: list[tuple[Any, ...]] = []

    def call_soon(self, *arguments: Any, context: Context) -> None:
        self.called.append((*arguments[:1], context[WHO]))


class Twin:
    """A few acknowledgements of one kind, and the result of each step."""

    def __init__(self, functions: Any, names: tuple[str, str, str]) -> None:
        acknowledgements, self.set_outcomes, self.wake_each = (getattr(functions, name) for name in names)
        kind = acknowledgements(Acknowledgement)
        self.loop = kind.loop = Loop()
        self.waiters = [kind() for _ in range(3)]
        self.iterators: dict[int, Any] = {}
        self.woken: list[tuple[str, Any]] = []

    def wakeup(self, wake_signal: object) -> None:
        """Stand in for a task."""
        self.woken.append(
            (WHO.get(), self.waiters.index(wake_signal) if wake_signal in self.waiters else wake_signal)
        )
        if wake_signal == "interrupt":
            raise KeyboardInterrupt

    def step(self, what: str, which: int) -> Any:
        waiter = self.waiters[which]
        match what:
            case "await":
                self.iterators[which] = waiter.__await__()
            case "next":
                return next(self.iterators[which]) is waiter
            case "send":  # one task awaits it: what was begun before ends
                self.iterators.pop(which, None)
                return self.drive(waiter)
            case "wait":
                context = Context()
                context.run(WHO.set, f"task {which}")
                return waiter.add_done_callback(self.wakeup, context=context)
            case "cancel":
                return waiter.cancel("enough")
            case "result":
                return waiter.result()
            case "not blocking":
                waiter._asyncio_future_blocking = False
            case "set":
                return self.set_outcomes(self.waiters, [WHERE, LATE][: which + 1])
            case "wake" | "interrupt":
                waiters, wake_signal = iter(self.waiters), [None, what, "interrupt"][which]
                return self.rest_after(lambda: self.wake_each(waiters, wake_signal), waiters)
        return None

    def drive(self, waiter: Acknowledgement) -> Any:
        """Await it in a coroutine, as long as it has no outcome."""

        async def call() -> RecordMetadata:
            return await waiter

        coroutine = call()
        try:
            assert coroutine.send(None) is waiter
            return coroutine.send(None)
        finally:
            coroutine.close()

    @staticmethod
    def rest_after(call: Callable[[], None], resolved: Iterator[Any]) -> Any:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - an interrupt is one of those
            return type(error), len(list(resolved))
        return len(list(resolved))

    def outcome(self, what: str, which: int) -> Any:
        try:
            return self.step(what, which)
        except StopIteration as error:
            return "returned", repr(error.value)
        except KeyError:
            return "not begun"
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the kinds are compared
            return type(error), error.args if isinstance(error, asyncio.CancelledError) else ()

    def state(self) -> list[Any]:
        """Return all that can be seen of them."""
        return [
            [
                getattr(each, "_asyncio_future_blocking", False),
                repr(getattr(each, "outcome", "none")),
                getattr(each, "wakeup", "unset") in {None, "unset"} and getattr(each, "wakeup", "unset"),
                getattr(each, "context", {WHO: "nobody"})[WHO],
            ]
            for each in self.waiters
        ]


class InPython:
    """The definitions."""

    acknowledgements = staticmethod(python_acknowledgements)
    set_outcomes = staticmethod(python_set_outcomes)
    wake_each = staticmethod(python_wake_each)


NAMES = ("acknowledgements", "set_outcomes", "wake_each")
STEPS = st.tuples(
    st.sampled_from(
        ["await", "next", "send", "wait", "cancel", "result", "not blocking", "set", "wake", "interrupt"]
    ),
    st.integers(0, 2),
)


@given(st.lists(STEPS, max_size=25))
@example([("await", 0), ("next", 0), ("wait", 0), ("set", 2), ("wake", 0), ("next", 0), ("result", 0)])
@example([("await", 1), ("wait", 1), ("set", 2), ("result", 1), ("next", 1), ("next", 1), ("next", 1)])
@example([("await", 0), ("wait", 0), ("cancel", 0), ("set", 2), ("wake", 0), ("result", 0)])
@example([("await", 0), ("wait", 0), ("await", 2), ("wait", 2), ("set", 0), ("interrupt", 0), ("wake", 1)])
@example([("wake", 0), ("set", 2), ("wake", 0)])
def test_acknowledgement_behaves_like_its_python_version(steps: list[tuple[str, int]]) -> None:
    python, c = Twin(InPython, NAMES), Twin(accelerator, NAMES)
    for what, which in steps:
        assert c.outcome(what, which) == python.outcome(what, which)
        assert c.state() == python.state()
    assert c.woken == python.woken
    assert len(c.loop.called) == len(python.loop.called)


@for_each(
    "arguments",
    [
        ((), {}),
        ((print,), {}),
        ((print, print), {}),
        ((), {"context": Context()}),
        ((print, Context()), {}),
        ((print,), {"contexts": Context()}),
        ((print,), {"context": Context(), "more": 1}),
    ],
)
def test_callback_without_context_is_refused(arguments: tuple[Any, Any]) -> None:
    made: tuple[Callable[..., Any], ...] = (python_acknowledgements, accelerator.acknowledgements)
    for make in made:
        with pytest.raises(TypeError, match="add_done_callback"):
            make(Acknowledgement)().add_done_callback(*arguments[0], **arguments[1])


@for_each("wrong", [None, 5, [5], [(5,)], [(5, 5)], [((), ())], "ab"])
def test_wait_refuses_other_objects(wrong: Any) -> None:
    """Arguments of other types raise, and read no memory."""
    calls: tuple[Callable[[], Any], ...] = (
        lambda: accelerator.set_outcomes(wrong, [WHERE]),
        lambda: accelerator.set_outcomes([wrong], [WHERE]),
        lambda: accelerator.set_outcomes([wrong], wrong),
        lambda: accelerator.wake_each(wrong, None),
        lambda: accelerator.wake_each([wrong], wrong),
        lambda: accelerator.wake_each([]),
        lambda: accelerator.set_outcomes([]),
    )
    for call in calls:
        with pytest.raises((TypeError, SystemError, IndexError)):
            call()
    with pytest.raises(TypeError):
        accelerator.acknowledgements(wrong)


def test_errors_of_outcomes_propagate() -> None:
    waiter = accelerator.acknowledgements(Acknowledgement)()
    with pytest.raises(ZeroDivisionError):
        accelerator.set_outcomes([waiter], (1 // 0 for _ in range(1)))
    with pytest.raises(ZeroDivisionError):
        accelerator.wake_each((1 // 0 for _ in range(1)), None)


def test_waiting_task_is_not_kept_alive() -> None:
    """The task and its acknowledgement form a cycle, which the garbage collector must find."""

    async def leave_one_waiting() -> weakref.ref[Any]:
        kind = accelerator.acknowledgements(Acknowledgement)
        kind._loop = asyncio.get_running_loop()

        async def call() -> None:
            await kind()

        asyncio.get_running_loop().set_exception_handler(
            lambda *_: None
        )  # "Task was destroyed but it is pending!"
        task = asyncio.create_task(call())
        await asyncio.sleep(0)
        return weakref.ref(task)

    async def main() -> None:
        reference = await leave_one_waiting()
        gc.collect()
        assert reference() is None

    asyncio.run(main())


@pytest.mark.parametrize(
    "without_getpid", [python_running_loop_without_getpid, accelerator.running_loop_without_getpid]
)
class TestRunningLoop:
    async def test_running_loop_is_read_from_asyncio_after_a_fork(self, without_getpid: Any) -> None:
        if sys.version_info >= (3, 12) and without_getpid is not python_running_loop_without_getpid:
            pytest.skip("asyncio makes no system call there, and keeps another value")
        loop, process, other = asyncio.get_running_loop(), [object()], object()
        running_loop = without_getpid(loop, process, lambda: other)
        assert running_loop() is loop
        process[0] = object()
        assert running_loop() is other
        assert without_getpid(loop, process, lambda: other)() is loop

    @pytest.mark.parametrize("thread_id", [None, -1, 7, 2**70, "7", 7.0])
    def test_get_running_loop_decides_when_thread_id_differs(
        self, without_getpid: Any, thread_id: Any
    ) -> None:
        class Loop:
            _thread_id = thread_id

        def none() -> None:
            raise RuntimeError("no running event loop")

        other = object()
        assert without_getpid(Loop(), [object()], lambda: other)() is other
        with pytest.raises(RuntimeError, match="no running event loop"):
            without_getpid(Loop(), [object()], none)()

    def test_loop_without_thread_id_is_left_to_asyncio(self, without_getpid: Any) -> None:
        other = object()
        assert without_getpid(object(), [object()], lambda: other)() is other

    def test_running_loop_refuses_other_arguments(self, without_getpid: Any) -> None:
        with pytest.raises((TypeError, IndexError)):
            without_getpid(object(), (), object)
        with pytest.raises(IndexError):
            without_getpid(object(), [], object)

    def test_running_loop_releases_its_references(self, without_getpid: Any) -> None:
        class Loop:
            pass

        loop = Loop()
        gone = weakref.ref(loop)
        loop.running_loop = without_getpid(loop, [loop], partial(id, loop))  # type: ignore[attr-defined]
        del loop
        gc.collect()
        assert gone() is None
