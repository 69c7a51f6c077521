"""A signal handler that raises, at any bytecode of the package: the trace function of the interpreter stands for it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import aioproducer

PACKAGE = str(Path(aioproducer.__file__).parent)


class Interrupt(BaseException):
    """Raised by the signal handler."""


class Interrupter:
    """Raises an Interrupt at bytecode number *at* of the package, counted while *counts* returns True."""

    def __init__(self, at: int, counts: Callable[[], bool] = lambda: True) -> None:
        self._left = at
        self._counts = counts
        self.has_raised = False

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = frame.f_code.co_filename.startswith(PACKAGE)
        if event == "opcode" and self._counts():
            self._left -= 1
            if self._left == 0:
                self.has_raised = True
                raise Interrupt
        return self._trace

    @contextmanager
    def at_work(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)


def interrupt(call: Callable[[], object], at: int) -> bool:
    """Run *call*, and raise at its bytecode number *at*; return False if it has fewer."""
    interrupter = Interrupter(at)
    try:
        with interrupter.at_work():
            call()
    except Interrupt:
        pass
    return interrupter.has_raised


async def interrupt_task(task: asyncio.Task[Any], at: int) -> bool:
    """Wait for *task*, and raise at bytecode number *at* that the package runs in it; return False if it has fewer."""
    interrupter = Interrupter(at, lambda: asyncio.current_task() is task)
    with interrupter.at_work():
        await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # retrieved
    return interrupter.has_raised
