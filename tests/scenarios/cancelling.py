"""Ways to cancel a call, at any iteration of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio

from aioproducer.testing.virtual_time import VirtualTimeLoop

Call: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]


@dataclass(slots=True)
class Outcome:
    """Outcome of a call that a test cancels."""

    returned: bool = False
    result: Any = None
    too_late: bool = False
    """Whether it was over before its cancellation."""


Manner: TypeAlias = Callable[[Call, int], Coroutine[Any, Any, Outcome]]
"""Cancels a call before the iteration of the event loop that comes after so many others; with 0 it has not begun yet."""


class Trigger:
    """Runs an action between two iterations of the event loop, after a given number of iterations."""

    def __init__(self, turns: int, action: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self.pulled_at: float | None = None
        self._loop, self._partition_locks, self._action = loop, turns, action
        self._turn = loop._run_once  # type: ignore[attr-defined]
        vars(loop)["_run_once"] = self._counted

    def disarm(self) -> None:
        vars(self._loop).pop("_run_once", None)

    def _counted(self) -> None:
        if self._partition_locks == 0:
            self.disarm()
            self.pulled_at = self._loop.time()
            self._action()
        self._partition_locks -= 1
        self._turn()


@contextmanager
def _cancelled(outcome: Outcome, turns: int, action: Callable[[], object]) -> Iterator[None]:
    """Let *action* cancel the body, which then has to end before any time passes."""
    trigger = Trigger(turns, action)
    try:
        yield
    finally:
        trigger.disarm()
        outcome.too_late = trigger.pulled_at is None
        assert trigger.pulled_at in {None, asyncio.get_running_loop().time()}, "it was in no hurry to end"


async def by_its_task(call: Call, turns: int) -> Outcome:
    outcome = Outcome()
    task = asyncio.create_task(call())
    with _cancelled(outcome, turns, task.cancel):
        await asyncio.wait([task])
    if not task.cancelled():
        outcome.returned, outcome.result = True, task.result()
    return outcome


async def by_a_scope(call: Call, turns: int) -> Outcome:
    """A scope of anyio cancels again in every iteration of the loop while a task awaits inside the scope."""
    outcome = Outcome()
    with anyio.CancelScope() as scope, _cancelled(outcome, turns, scope.cancel):
        outcome.result = await call()
        outcome.returned = True
    assert scope.cancelled_caught is not outcome.returned
    return outcome


MANNERS: tuple[Manner, ...] = (by_its_task, by_a_scope)
