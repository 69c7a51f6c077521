"""Logging handler that sends log records to a topic, and a formatter that writes JSON.

    logging.getLogger().addHandler(KafkaHandler("logs", "localhost:9092"))

docs/log-handler.md has configurations for `logging.config` and structlog.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Unpack
from weakref import WeakSet

from aioproducer import ConfigError, Producer, ProducerConfig, ProducerOptions, RecordMetadata
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.steps import Log

log: Final = Log(__name__)

OWN: Final = __name__.partition(".")[0]
_STANDARD: Final = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_NAMES: Final = {"time", "level", "logger", "message", "exception", "stack"}
_JOIN_S: Final = 1.0
_worker_threads: Final[set[int]] = set()
"""Identifiers of the threads that send log records. Their own log records are ignored."""
_handlers: Final[WeakSet[KafkaHandler]] = WeakSet()
_parent_objects: Final[list[object]] = []
"""Event loops and tasks that a fork copied, kept because closing a loop would change the parent's selector."""


class JsonFormatter(logging.Formatter):
    """Formatter that writes one JSON object per log record: time, level, logger, message, fields of `extra=`, exception.

    A field of `extra=` with the name of another field gets an underscore, such as `time_`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON object. Values that JSON cannot express are written as their text."""
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in _STANDARD:
                fields[f"{name}_" if name in _NAMES else name] = value
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            fields["exception"] = record.exc_text
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        try:
            return _json(fields)
        except Exception:  # noqa: BLE001 - cycles, NaN, keys of other types, and user code
            return (
                "{" + ", ".join(f"{json.dumps(name)}: {_json_or_text(fields[name])}" for name in fields) + "}"
            )


def _json(value: object) -> str:
    return json.dumps(value, default=_text, allow_nan=False)


def _json_or_text(value: object) -> str:
    try:
        return _json(value)
    except Exception:  # noqa: BLE001
        return _json(_text(value))


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - user code may raise anything
        return f"<unprintable {type(value).__name__}>"


class KafkaHandler(logging.Handler):
    """Handler that sends log records to a topic, with a producer on a daemon thread of its own.

    A call that logs never waits for Kafka and never raises. A log record is dropped, and counted in `dropped`, if
    *capacity* log records or `buffer_memory` bytes wait. A log record is also dropped after `close`, and if a filter,
    the formatter or the delivery fails. Log records of aioproducer's own loggers and of the handler's thread are ignored.

    The thread starts with the first log record, also in a forked child, and needs no reachable cluster. The end of the
    program (`logging.shutdown`) waits at most *close_timeout_s* seconds for the delivery.
    """

    def __init__(
        self,
        topic: str,
        bootstrap_servers: str,
        *,
        level: int | str = logging.NOTSET,
        capacity: int = 10_000,
        close_timeout_s: float = 5.0,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Check the configuration. Raises: ConfigError, also for a `transactional_id`."""
        config = ProducerConfig(bootstrap_servers=bootstrap_servers, **options)
        if config.transactional_id is not None:
            raise ConfigError("transactional_id: KafkaHandler sends without transactions; remove the option")
        if capacity < 1:
            raise ConfigError(f"capacity: {capacity} is below the minimum; use 1 or more log records")
        if close_timeout_s < 0:
            raise ConfigError(f"close_timeout_s: {close_timeout_s} is negative; use 0 or more seconds")
        super().__init__(level)
        self.topic = topic
        self._config = config
        self._capacity = capacity
        self._close_timeout_s = close_timeout_s
        self.setFormatter(JsonFormatter())
        self._is_closed = False
        self._reset()
        _handlers.add(self)

    def _reset(self) -> None:
        self._lock = threading.RLock()  # a signal handler may log while the thread starts
        self._waiting: deque[tuple[bytes, int] | Future[None]] = deque()
        self._waiting_bytes = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()  # an Event binds to the loop of its first wait
        self._asleep = False
        self._must_cancel = False
        self._flush_failed_at = -math.inf
        self._dropped = 0
        self._reported = 0
        """Number of dropped log records in the last `logs.dropped`."""

    @property
    def dropped(self) -> int:
        """Number of log records that were dropped in this process."""
        return self._dropped

    def acquire(self) -> None:
        """Do nothing: `emit` needs no lock, and `logging.shutdown` would hold the lock while the handler closes."""

    def release(self) -> None:
        """Do nothing."""

    def handle(self, record: logging.LogRecord) -> bool:
        """Emit *record* if the filters let the record pass."""
        try:
            passed: object = self.filter(record)  # since Python 3.12 a filter may return another log record
        except Exception:  # noqa: BLE001 - filters are user code
            self._failed(record)
            return False
        if passed:
            self.emit(passed if isinstance(passed, logging.LogRecord) else record)
        return bool(passed)

    def emit(self, record: logging.LogRecord) -> None:
        """Format *record* and pass the text to the handler's thread."""
        try:
            if threading.get_ident() in _worker_threads or record.name.partition(".")[0] == OWN:
                return
            if self._is_closed or len(self._waiting) >= self._capacity:
                self._drop()  # before the formatting, whose cost is saved
                return
            value = self.format(record).encode("utf-8", "backslashreplace")
            self._put(value, max(0, int(record.created * 1000)))
        except Exception:  # noqa: BLE001 - formatters and arguments are user code
            self._failed(record)

    def _put(self, value: bytes, timestamp_ms: int) -> None:
        with self._lock:
            if (
                self._is_closed
                or len(self._waiting) >= self._capacity
                or self._waiting_bytes + len(value) > self._config.buffer_memory
            ):
                self._drop()
                return
            self._waiting.append((value, timestamp_ms))
            self._waiting_bytes += len(value)
        self._wake_up()

    def _failed(self, record: logging.LogRecord) -> None:
        self._drop()
        with suppress(Exception):
            self.handleError(record)

    def _drop(self) -> None:
        with self._lock:
            self._dropped += 1

    def _wake_up(self) -> None:
        """Start the thread, or wake the running thread. If the thread cannot start, the next log record starts the thread."""
        if self._thread is None:
            with self._lock, suppress(RuntimeError):  # no thread starts while the interpreter exits
                self._start()
        elif self._asleep:
            try:
                self._asleep = False
                self._call(self._wake.set)
            except BaseException:  # a signal handler raised
                self._asleep = True
                raise

    def _call(self, function: Callable[[], object]) -> None:
        """Schedule *function* on the event loop of the thread, if the loop is open."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function)

    def _start(self) -> None:
        if self._thread is not None:
            return
        # The thread creates the event loop: a new loop logs, which would start one more thread here.
        self._thread = threading.Thread(target=self._run, name="aioproducer-logs", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._thread = None
            raise

    def flush(self) -> None:
        """Wait until the log records so far are delivered or dropped, at most *close_timeout_s* seconds."""
        thread = self._thread
        if thread is None or not thread.is_alive() or thread is threading.current_thread():
            return
        flushed: Future[None] = Future()
        with self._lock:
            if self._is_closed:
                return
            self._waiting.append(flushed)
        self._wake_up()
        try:
            flushed.result(self._close_timeout_s)
        except Exception:  # noqa: BLE001 - a timeout, or the thread has ended
            flushed.cancel()
            self._flush_failed_at = time.monotonic()

    def close(self) -> None:
        """Deliver the log records so far, for at most *close_timeout_s* seconds, and end the thread."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
            thread = self._thread
            if thread is None:
                self._discard()  # no thread could be started
        if not was_closed and thread is not None:
            self._call(self._wake.set)
            if thread is not threading.current_thread():
                if time.monotonic() - self._flush_failed_at > _JOIN_S:  # logging.shutdown has just flushed
                    thread.join(self._close_timeout_s)
                if thread.is_alive():
                    self._must_cancel = True  # the loop may not exist yet
                    self._call(self._cancel_main)
                    thread.join(_JOIN_S)
        super().close()

    def _cancel_main(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _discard(self) -> None:
        while self._waiting:
            each = self._waiting.popleft()
            if isinstance(each, Future):
                each.cancel()
            else:
                self._drop()

    def _run(self) -> None:
        with self._lock:
            if self._thread is not threading.current_thread():  # a signal handler raised in `_start`
                return
        thread = threading.get_ident()
        _worker_threads.add(thread)
        loop = None
        try:
            loop = self._loop = asyncio.new_event_loop()
            self._main = loop.create_task(self._send_all())
            if self._must_cancel:
                self._main.cancel()
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(self._main)
        except Exception:
            log.exception("logs.failed topic=%s", self.topic)
        finally:
            with self._lock:
                self._is_closed = True
                self._discard()
            if loop is not None:
                with suppress(Exception):
                    loop.close()
            _worker_threads.discard(thread)

    async def _send_all(self) -> None:
        producer = Producer.from_config(self._config)
        limits = LogLimits()
        await producer.start(wait=False)
        try:
            while self._waiting or not self._is_closed:
                self._report_dropped(limits)
                if self._waiting:
                    await self._send(producer, self._waiting.popleft())
                    continue
                self._asleep = True
                if not self._waiting and not self._is_closed:
                    await self._wake.wait()
                self._asleep = False
                self._wake.clear()
            await producer.close(self._close_timeout_s)
        finally:
            await producer.close(0)
            self._report_dropped(limits)
            limits.close()

    def _report_dropped(self, limits: LogLimits) -> None:
        """Log the number of dropped log records, if the number has grown."""
        dropped = self._dropped
        if dropped > self._reported:
            self._reported = dropped
            limits.log(log, logging.WARNING, "", "logs.dropped topic=%s dropped=%d", self.topic, dropped)

    async def _send(self, producer: Producer, each: tuple[bytes, int] | Future[None]) -> None:
        if isinstance(each, Future):
            if each.set_running_or_notify_cancel():
                try:
                    with suppress(TimeoutError):
                        await producer.flush(self._close_timeout_s)
                finally:
                    each.set_result(None)
            return
        value, timestamp_ms = each
        with self._lock:
            self._waiting_bytes -= len(value)
        try:
            sent = await producer.enqueue(self.topic, value, timestamp_ms=timestamp_ms)
        except asyncio.CancelledError:
            self._drop()
            raise
        except Exception:  # noqa: BLE001 - serializers, partitioners and interceptors are user code
            self._drop()
        else:
            sent.add_done_callback(self._sent)

    def _sent(self, outcome: asyncio.Future[RecordMetadata]) -> None:
        if outcome.cancelled() or outcome.exception() is not None:
            self._drop()


def _forked() -> None:
    """Drop the threads and log records that were copied from the parent; the parent sends the log records."""
    _worker_threads.clear()
    for handler in _handlers:
        _parent_objects.append((handler._loop, handler._main, handler._wake))  # noqa: SLF001 - the same module
        handler._reset()  # noqa: SLF001


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
