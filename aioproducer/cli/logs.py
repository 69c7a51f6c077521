"""Log output of the commands: `-v`, `--log-level` and `--log-format`; else warnings of successful commands."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from threading import Timer
from typing import Any, Final, TypeVar

import click

from aioproducer._core.logfmt import escaped, quoted
from aioproducer.cli.output import printable

C = TypeVar("C", bound=Callable[..., Any] | click.Command)

BUFFER_S: Final = 30.0
"""Age at which a warning is printed, in seconds. A command that fails earlier prints its error alone."""
LEVELS: Final = ("debug", "info", "warning", "error", "critical")
FORMATS: Final = ("text", "logfmt", "json")
_LOG: Final = f"{__name__}.log"
_LEVEL: Final = f"{__name__}.level"
_FORMAT: Final = f"{__name__}.format"
_EVENT: Final = re.compile(r"[a-z][a-z_]*(?:\.[a-z_]+)+(?= |$)")


def logging_options(command: C) -> C:
    """Add `-v`, `--log-level` and `--log-format`."""
    verbose = click.option(
        "-v",
        "--verbose",
        count=True,
        show_default=False,
        expose_value=False,
        callback=partial(_keep, _LEVEL, lambda count: logging.DEBUG if count > 1 else logging.INFO),
        help="Show the producer's log on standard error; -vv with every detail.",
    )
    level = click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        expose_value=False,
        callback=partial(_keep, _LEVEL, lambda name: getattr(logging, name.upper())),
        help="Show log records of this level and above; -v is info, -vv debug.",
    )
    form = click.option(
        "--log-format",
        type=click.Choice(FORMATS, case_sensitive=False),
        expose_value=False,
        callback=partial(_keep, _FORMAT, str.lower),
        help="Format of the log records: one line each.  [default: text]",
    )
    return verbose(level(form(command)))


def _keep(
    name: str, convert: Callable[[Any], object], ctx: click.Context, param: click.Parameter, value: Any
) -> None:
    """Store and apply an option, which may precede or follow the name of the command."""
    if not value:
        return
    converted = convert(value)
    if ctx.meta.get(name, converted) != converted:
        raise click.BadParameter("contradicts another option of the log: give one of them", ctx, param)
    ctx.meta[name] = converted
    if _LOG in ctx.meta:
        ctx.meta[_LOG].configure(ctx.meta)


@contextmanager
def without_warnings(logger: str) -> Iterator[None]:
    """Suppress warnings of *logger*, which the command reports itself, unless the command line has log options."""
    context = click.get_current_context(silent=True)
    if context is not None and not {_LEVEL, _FORMAT}.isdisjoint(context.meta):
        yield
        return
    quiet = logging.getLogger(logger)
    before = quiet.level
    quiet.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        quiet.setLevel(before)


@contextmanager
def logged(ctx: click.Context) -> Iterator[None]:
    """Print log records while a command runs; a command that fails drops the buffered records."""
    root, own, log = logging.getLogger(), logging.getLogger("aioproducer"), _Log()
    before = own.level
    root.addHandler(log)
    ctx.meta[_LOG] = log
    log.configure(ctx.meta)
    try:
        yield
    except (click.ClickException, click.Abort, click.exceptions.Exit, KeyboardInterrupt) as end:
        if getattr(end, "exit_code", 1):
            _ = log.take_buffered()
        raise
    finally:
        del ctx.meta[_LOG]
        log.print_buffered()
        root.removeHandler(log)
        own.setLevel(before)


class _Log(logging.Handler):
    """Handler that writes to standard error. Without an option of the log, the handler buffers records."""

    def __init__(self) -> None:
        super().__init__()
        self._buffers = True
        self._buffered: list[logging.LogRecord] = []
        self._timer: Timer | None = None

    def configure(self, options: dict[str, Any]) -> None:
        """Apply the options of the log."""
        self._buffers = _LEVEL not in options and _FORMAT not in options
        self.setFormatter(_formatter(options.get(_FORMAT, "text")))
        if not self._buffers:
            level = options.get(_LEVEL, logging.WARNING)
            logging.getLogger("aioproducer").setLevel(level)
            self.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        """Buffer or print the record. Records with a traceback, which are bugs, are always printed."""
        self._buffered.append(record)
        if not self._buffers or record.exc_info:
            self.print_buffered()
        elif self._timer is None:
            self._timer = Timer(BUFFER_S, self.print_buffered)
            self._timer.daemon = True
            with suppress(RuntimeError):  # no thread can be started: the record is printed at the end
                self._timer.start()

    def print_buffered(self) -> None:
        """Print the buffered records."""
        self.acquire()
        try:
            with suppress(OSError, ValueError):  # standard error may be closed
                for record in self.take_buffered():
                    click.echo(printable(self.format(record)), err=True)
        finally:
            self.release()

    def take_buffered(self) -> list[logging.LogRecord]:
        """Remove and return the buffered records."""
        self.acquire()
        try:
            if self._timer is not None:
                self._timer.cancel()
            buffered, self._buffered, self._timer = self._buffered, [], None
            return buffered
        finally:
            self.release()


def _time(record: logging.LogRecord) -> str:
    when = datetime.fromtimestamp(record.created, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _traceback(record: logging.LogRecord) -> str | None:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else None


class _Text(logging.Formatter):
    """Time, level and message; a traceback in further lines."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname} {escaped(record.getMessage())}"
        return "\n".join(filter(None, (line, _traceback(record))))


class _Logfmt(logging.Formatter):
    """Names and values; the message of an event has this form already."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        pairs = {"time": _time(record), "level": record.levelname, "logger": record.name}
        line = " ".join(f"{name}={quoted(value)}" for name, value in pairs.items())
        line += f" event={escaped(message)}" if _EVENT.match(message) else f" msg={quoted(message)}"
        trace = _traceback(record)
        return line if trace is None else f"{line} exception={quoted(trace)}"


def _formatter(name: str) -> logging.Formatter:
    if name == "json":
        from aioproducer.contrib.logging import JsonFormatter

        return JsonFormatter()
    return _Logfmt() if name == "logfmt" else _Text()
