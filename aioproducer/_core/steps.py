"""Steps of a producer. User code runs between steps, never inside a step.

A step changes several related objects: batches, queues, connections, metadata. Interceptors and log handlers are user
code, and user code may call every method of the producer. So user code is called at the end of a step: no list
changes while a step iterates over the list, and no exception of user code interrupts a step.
"""

from __future__ import annotations

import logging
import operator
import sys
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial, wraps
from threading import get_ident
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

from aioproducer._core.logfmt import formatted

MOST_NESTED: Final = 20
"""Maximum depth of nested step ends: user code at the end of a step may start another step. Beyond this depth the event loop
calls the user code, so that feedback of user code cannot exhaust the stack or block the event loop."""

Call = Callable[[], object]
P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")


class Step:
    """The step of a thread. `run` delays calls of user code to the end of the outermost step."""

    __slots__ = ("calls", "depth", "nested")

    def __init__(self) -> None:
        self.depth: int = 0
        """Number of nested steps in progress."""
        self.nested: int = 0
        """Number of nested step ends in progress."""
        self.calls: deque[Call] = deque()

    def run(self, function: Callable[[A], R], argument: A) -> R:
        """Return the result of *function*; its calls of user code run at the end of the outermost step.

        A call with `*arguments` would cost twice as much: a tuple, and a frame that the interpreter cannot inline.
        A signal may raise between any two bytecodes, also inside one of the two `finally` blocks. A depth that stayed
        above 0 would delay all user code forever.
        """
        outer = self.depth
        try:
            try:
                self.depth = outer + 1
                return function(argument)
            finally:
                self.depth = outer
        finally:
            self.depth = outer
            if not outer and self.calls:
                self._end()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call *function* now, or at the end of the current step. Exceptions of *function* are contained."""
        if self.depth:
            self.calls.append(partial(function, *arguments))
        else:
            contained(partial(function, *arguments))

    def _end(self) -> None:
        calls, self.calls = self.calls, deque()  # user code begins steps of its own
        if self.nested >= MOST_NESTED and (loop := _running_loop()) is not None:
            loop.call_soon(_run, calls)
            return
        outer = self.nested
        try:
            self.nested = outer + 1
            _run(calls)
        finally:
            self.nested = outer
            self.calls.extendleft(reversed(calls))  # no calls are left, unless a signal handler raised


_steps: Final[dict[int, Step]] = {}


def step_here() -> Step:
    """Return the step of the running thread. An object that belongs to one thread may keep the step to save the lookup."""
    thread = get_ident()
    step = _steps.get(thread)
    if step is None:
        step = _steps[thread] = Step()
    return step


def as_step(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that runs *function* as one step."""

    @wraps(function)
    def stepwise(*arguments: P.args, **named: P.kwargs) -> R:
        return step_here().run(operator.call, partial(function, *arguments, **named))

    return stepwise


def _run(calls: deque[Call]) -> None:
    while calls:
        contained(calls.popleft())


def contained(call: Call) -> None:
    """Run the user code *call*. Exceptions are printed, as in `logging`; the event loop raises interrupts."""
    try:
        call()
    except (KeyboardInterrupt, SystemExit) as interrupt:
        pass_on(interrupt)
    except BaseException:  # noqa: BLE001 - user code may raise anything
        if logging.raiseExceptions and sys.stderr is not None:
            traceback.print_exc()


def pass_on(interrupt: BaseException) -> None:
    """Make the event loop raise *interrupt* (KeyboardInterrupt, …) in its next iteration; raise *interrupt* without a loop."""
    loop = _running_loop()
    if loop is None:
        raise interrupt
    loop.call_soon(_raise, interrupt)


def _raise(interrupt: BaseException) -> NoReturn:
    raise interrupt


def _running_loop() -> Any:
    from asyncio import events  # noqa: PLC0415 - some modules that log run without asyncio

    return events._get_running_loop()  # noqa: SLF001 - documented; returns None without a loop


_FRAMES: Final = 3
"""Number of frames between `findCaller` and the caller: `_record`, `contained` and `Log.log`."""


class Log:
    """Logger of a module. Handlers run at the end of a step, and their exceptions are contained.

    A message is logfmt (`formatted`), and its pairs are attributes of the log record, like the pairs of `extra=`.
    Logger names are public, so they omit the private package: `aioproducer._core.sender.loop` logs as
    `aioproducer.sender.loop`, and `aioproducer._engine` as `aioproducer.engine`.
    """

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name.replace("._core.", ".").replace("._", "."))

    def debug(self, message: str, *arguments: object) -> None:
        """Log *message* at DEBUG."""
        self.log(logging.DEBUG, message, *arguments, stacklevel=2)

    def info(self, message: str, *arguments: object) -> None:
        """Log *message* at INFO."""
        self.log(logging.INFO, message, *arguments, stacklevel=2)

    def warning(self, message: str, *arguments: object, exc_info: BaseException | None = None) -> None:
        """Log *message* at WARNING."""
        self.log(logging.WARNING, message, *arguments, exc_info=exc_info, stacklevel=2)

    def error(self, message: str, *arguments: object, exc_info: BaseException | None = None) -> None:
        """Log *message* at ERROR."""
        self.log(logging.ERROR, message, *arguments, exc_info=exc_info, stacklevel=2)

    def exception(self, message: str, *arguments: object) -> None:
        """Log *message* at ERROR, with the exception that is being handled."""
        self.log(logging.ERROR, message, *arguments, exc_info=sys.exc_info()[1], stacklevel=2)

    def log(
        self,
        level: int,
        message: str,
        *arguments: object,
        exc_info: BaseException | None = None,
        stacklevel: int = 1,
    ) -> None:
        """Log *message* at *level*, with the line of the caller, or with *stacklevel* 2 the line of the caller's caller."""
        if self._logger.isEnabledFor(level):
            contained(partial(self._record, level, message, arguments, exc_info, stacklevel))

    def _record(
        self,
        level: int,
        message: str,
        arguments: tuple[object, ...],
        error: BaseException | None,
        stacklevel: int,
    ) -> None:
        logger = self._logger
        path, line, function, _ = logger.findCaller(stacklevel=stacklevel + _FRAMES)
        exc_info = None if error is None else (type(error), error, error.__traceback__)
        message, texts, fields = formatted(message, arguments)  # texts of peers forge no line and no field
        record = logger.makeRecord(logger.name, level, path, line, message, texts, exc_info, function)
        taken = {*vars(record), "message", "asctime"}  # a record factory may add names; `extra=` would raise
        vars(record).update({f"{key}_" if key in taken else key: value for key, value in fields.items()})
        step_here().call(logger.handle, record)
