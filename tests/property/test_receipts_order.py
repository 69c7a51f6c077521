"""Random schedules of callbacks: receipts run them in the order and the contexts of asyncio Futures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st

from aioproducer._core.batching.receipts import FutureKind
from tests.unit._core.batching.receipts_rig import VARIABLE, Records, receipts, run

uvloop = pytest.importorskip("uvloop")

Step = tuple[Any, ...]
Steps = st.SearchStrategy[tuple[Step, ...]]
which = st.integers(0, 2)


def some(*kinds: st.SearchStrategy[Step]) -> Steps:
    return st.lists(st.one_of(*kinds), max_size=3).map(tuple)


def callbacks(inner: Steps) -> st.SearchStrategy[Step]:
    return st.tuples(st.sampled_from(["callback", "callback", "given"]), which, inner)


simple = st.one_of(
    st.tuples(st.sampled_from(["set", "raise", "handle"])),
    st.tuples(st.sampled_from(["cancel", "remove"]), which),
)
nested = callbacks(some(simple, callbacks(some(simple))))
whole = st.tuples(st.sampled_from(["turn", "deliver", "fail", "reset", "gather"]))
programs = st.lists(st.one_of(nested, nested, simple, whole), max_size=15)


class Schedule:
    """Steps of a program, and the log of its callbacks."""

    def __init__(self, on: Records) -> None:
        self.on = on
        self.log = on.log
        self.callbacks: list[Callable[[Any], None]] = []

    def callback(self, steps: tuple[Step, ...]) -> Callable[[Any], None]:
        number = len(self.callbacks)

        def called(future: Any) -> None:
            self.log.append((number, self.on.futures.index(future), VARIABLE.get(), future.cancelled()))
            for step in steps:
                self.take(step)

        self.callbacks.append(called)
        return called

    def take(self, step: Step) -> None:
        on = self.on
        match step:
            case ("set",):
                VARIABLE.set(f"{VARIABLE.get()}.")
            case ("raise",):
                raise ValueError
            case ("handle",):
                on.loop.call_soon(self.log.append, f"handle {len(self.log)}")
            case (("deliver" | "fail") as outcome,):
                getattr(on, outcome)()
            case ("gather",):
                gathered = asyncio.gather(*on.futures, return_exceptions=True)
                gathered.add_done_callback(lambda done: self.log.append(repr(done.result())))
            case ("callback", at, inner):
                on.futures[at].add_done_callback(self.callback(inner))
            case ("given", at, inner):
                on.futures[at].add_done_callback(self.callback(inner), context=on.context)
            case (("cancel" | "remove") as kind, at):
                future: Any = on.futures[at]
                call = (
                    future.cancel if kind == "cancel" else partial(future.remove_done_callback, self.some(at))
                )
                self.log.append(call())

    def some(self, at: int) -> Callable[[Any], None]:
        return self.callbacks[at % len(self.callbacks)] if self.callbacks else self.log.append


async def follow(on: Records, program: list[Step]) -> list[Any]:
    schedule = Schedule(on)
    on.loop.set_exception_handler(lambda _, context: on.log.append(repr(context["exception"])))
    for step in program:
        if step == ("turn",):
            on.log.append("turn")
            await asyncio.sleep(0)
        elif step == ("reset",):
            VARIABLE.set("outside")
        else:
            try:
                schedule.take(step)
            except ValueError:
                on.log.append("raised")
    for each in on.futures:
        each.cancel()
    for _ in range(12):
        await asyncio.sleep(0)
    return on.log


@pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
@given(program=programs)
def test_receipts_run_callbacks_as_asyncio_futures(new_loop: Callable[[], Any], program: list[Step]) -> None:
    def what(on: Records) -> Any:
        return follow(on, program)

    assert run(new_loop, what, receipts) == run(new_loop, what, FutureKind)
