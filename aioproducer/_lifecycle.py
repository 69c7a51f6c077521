"""The lifecycle of a producer: its states, `start` and `close`."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NoReturn, Self, cast

from aioproducer._core.batching.receipts import ReceiptKind
from aioproducer._core.batching.waiters import Acknowledgement, Failure, Kind
from aioproducer._core.clock import YieldPolicy
from aioproducer._core.intake.checks import check_timeout
from aioproducer._core.intake.fast_append import Append
from aioproducer._core.intake.serializing import withdraw_callers
from aioproducer._core.interceptor_chain import InterceptorChain
from aioproducer._core.log_limits import REMINDER_S
from aioproducer._core.steps import Log
from aioproducer._engine import Engine
from aioproducer.config import ProducerConfig
from aioproducer.errors import ProducerClosed, ProducerError

if TYPE_CHECKING:
    from aioproducer._core.net.pool import ConnectionCache
    from aioproducer._core.transactions.transaction_requests import ResumedTransaction

log: Final = Log(__name__)

CLOSING_MARGIN_S = 1.0
"""Time that `close()` adds to the delivery timeout, in seconds, so that records fail with DeliveryTimeout first."""
WAITING_IS_NEWS_S: Final = 1.0
"""Time after which `close()` logs the records that it waits for, in seconds."""


class State(StrEnum):
    """States of a producer; each compares equal to its name in lower case."""

    NEW = "new"
    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    """The producer is started, but no broker is reachable: records wait."""
    FAILED = "failed"
    """Fatal error (for example, fenced). The producer can only be closed."""
    CLOSING = "closing"
    CLOSED = "closed"


class Lifecycle:
    """States, start and close of `Producer`."""

    def _begin(self, config: ProducerConfig) -> None:
        self.config = config
        self._state = State.NEW
        self._engine: Engine | None = None
        self._crash: BaseException | None = None
        self._ended = False
        self._interceptors = InterceptorChain(config.interceptors)
        # Each state has its own `_intake` object, so no append checks the state.
        self._intake: Append = NoIntake(self)
        self._awaits: Kind[Acknowledgement] = Acknowledgement
        self._receipts = cast("ReceiptKind", None)  # `start` sets `_awaits` and `_receipts`
        self._yields: YieldPolicy  # `start` sets `_yields`; calls before the start are refused

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        """Warn about an unclosed producer, whose unacknowledged records may be lost."""
        if getattr(self, "_engine", None) is not None and not self._ended:
            warn(
                f"unclosed producer {self.config.client_id}: use `async with`, or await its close()",
                ResourceWarning,
                source=self,
            )

    def __repr__(self) -> str:
        if not hasattr(self, "config"):  # an error tracker shows the frame of a constructor that raised
            return "<Producer without configuration>"
        return f"<Producer {self.config.client_id} {self.state}>"

    @property
    def state(self) -> State:
        """State of the producer."""
        if self._state is State.READY and self._engine is not None and self._engine.degraded:
            return State.DEGRADED
        return self._state

    async def __aenter__(self) -> Self:
        """Start the producer."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the producer, and wait for the outcome of every record."""
        await self.close()

    async def start(self, *, wait: bool | None = None, timeout_s: float | None = None) -> None:
        """Connect, and return after the first metadata response; with a `transactional_id`, after fencing older producers.

        A failed or cancelled start leaves no connection and no task, and may be repeated.

        Args:
            wait: False: return at once in state `degraded`, and connect in the background; calls that need the cluster
                wait up to `max_block_ms`, and `begin_transaction` waits for the producer id. Default: `start_wait`.
            timeout_s: Time limit of the start, in seconds: until the limit, failed connections are repeated at the
                reconnect backoff. 0: try each address once. Default: `bootstrap_timeout_ms`.

        Raises:
            ConnectionFailed: every bootstrap address failed; the message lists each address with the cause.
            AuthenticationFailed: every asked address refused the login or the certificate, which ends the start at once.
            ProducerClosed: the producer was closed before or during the start.
            TransactionTimeout: no coordinator answered within `max_block_ms` or *timeout_s*. If a coordinator refuses the
                transactional id, `start` raises the error of the refusal.
        """
        wait = self.config.start_wait if wait is None else wait
        await self._start(wait=wait, timeout_s=check_timeout(timeout_s))

    async def _start(
        self,
        resumed: ResumedTransaction | None = None,
        cache: ConnectionCache | None = None,
        *,
        passes_refusals: bool = False,
        wait: bool = True,
        timeout_s: float | None = None,
    ) -> None:
        if self._state is not State.NEW:
            raise ProducerClosed(f"a producer is started once; this one is {self.state}")
        self._state = State.STARTING
        try:
            engine = self._engine = Engine(
                self.config,
                self._interceptors,
                on_crash=self._crashed,
                on_fatal=self._failed_fatally,
                on_transaction=self._transaction_moved,
                cache=cache,
                passes_refusals=passes_refusals,
            )
            await engine.start(resumed, wait=wait, timeout_s=timeout_s)
        except BaseException:
            self._engine = None
            if self._state is State.STARTING:
                self._state = State.NEW
            raise
        self._awaits, self._receipts = engine.intake.awaits, engine.intake.receipts
        self._yields = engine.accumulator.yields
        self._state = State.READY
        if engine.transactions is None:
            self._intake = engine.intake.front

    async def close(self, timeout_s: float | None = None) -> int:
        """Send the appended records, and close; return the number of records that failed with ProducerClosed.

        By default the call waits for every outcome, at most for the delivery timeout. After *timeout_s* seconds,
        immediately for 0, the remaining records fail with ProducerClosed. `close` returns after the done callbacks of all
        records have run. A second call is allowed. Cancelling the call acts as `close(0)` and raises CancelledError.

        An open transaction is aborted, within `max_block_ms` if *timeout_s* is None; with *timeout_s* 0 the transaction is
        left to its timeout. A prepared transaction stays open. A commit in progress is awaited.
        """
        timeout_s = check_timeout(timeout_s)
        engine = self._engine
        if engine is None or self._ended or engine.intake.loop.is_closed():  # a closed loop has no task left
            self._end()
            return 0
        engine.intake.check_loop()
        self._intake = NoIntake(self)
        if self._crash is None:
            self._state = State.CLOSING
        withdraw_callers(engine.accumulator)
        if engine.transactions is not None and timeout_s is None:
            timeout_s = self.config.max_block_s
        try:
            failed = await self._finish(engine, timeout_s)
        except BaseException:  # a cancellation, or a signal handler that raises
            engine.fail_everything(_closed_early())
            await engine.stop()
            raise
        finally:
            self._end()
        return failed

    def _end(self) -> None:
        self._state = State.CLOSED
        if not self._ended:
            self._ended = True
            self._interceptors.close()
            for code in (self.config.key_serializer, self.config.value_serializer, self.config.partitioner):
                _close(code)

    async def _finish(self, engine: Engine, timeout_s: float | None) -> int:
        failed = 0
        if timeout_s == 0:
            failed = engine.fail_everything(_closed_early())
        else:
            if timeout_s is None:
                # Appended records have their outcome before this limit, which cuts off calls that still append.
                timeout_s = self.config.delivery_timeout_ms / 1000 + CLOSING_MARGIN_S
            try:
                with _Waiting(engine, timeout_s):
                    async with asyncio.timeout(timeout_s):
                        if engine.transactions is not None:
                            await engine.transactions.close(timeout_s)
                        await engine.drained()
                # The callers of the remaining records already have an error.
                engine.fail_everything(_closed_early())
            except TimeoutError:
                failed = engine.fail_everything(_closed_early())
        await engine.stop()
        return failed

    def _started(self) -> Engine:
        if self._engine is None or self._state is not State.READY:
            raise self._not_usable()
        return self._engine

    def _sending(self) -> Engine:
        """Return the engine if the producer accepts records now; else raise the error of the producer's state."""
        engine = self._started()
        if engine.transactions is not None:
            engine.transactions.check_sending("send")
        return engine

    def _not_usable(self) -> ProducerError:
        if self._state is State.FAILED and self._engine is not None and self._engine.transactions is not None:
            return self._engine.transactions.manager.refusal("go on")
        started = self._state not in (State.NEW, State.STARTING)
        error = ProducerClosed(f"the producer is {'closed' if started else 'not started'}")
        error.__cause__ = self._crash
        return error

    def _crashed(self, error: BaseException) -> None:
        self._crash = error
        self._intake = NoIntake(self)
        if self._state is State.READY:
            self._state = State.CLOSED  # the crash closes the producer without a call of close()

    def _failed_fatally(self) -> None:
        if self._state is State.READY:
            self._state = State.FAILED

    def _transaction_moved(self, takes_records: bool) -> None:  # noqa: FBT001 - the only argument
        """Accept records from now on if *takes_records*, else refuse records."""
        engine = self._engine
        if engine is not None and self._state in {State.READY, State.FAILED}:
            self._intake = engine.intake.front if takes_records else NoIntake(self)


class NoIntake:
    """An intake that refuses records: the producer is not started or closed, or no transaction is open."""

    def __init__(self, producer: Lifecycle) -> None:
        self._producer = producer

    def append(self, *_: object) -> NoReturn:
        """Raise the error of the producer's state."""
        self._producer._sending()  # noqa: SLF001 - a method of this module
        raise self._producer._not_usable()  # noqa: SLF001


def _close(code: object) -> None:
    """Close a serializer or partitioner that has `close`; log an error of `close`, so that the producer still closes."""
    close = getattr(code, "close", None)
    if not callable(close) or inspect.iscoroutinefunction(close):
        return
    try:
        close()
    except Exception as error:
        log.warning(
            "close.failed of=%s error=%s", type(code).__qualname__, type(error).__name__, exc_info=error
        )


class _Waiting:
    """Logs, after `WAITING_IS_NEWS_S` and then every `REMINDER_S`, the records that a close waits for."""

    def __init__(self, engine: Engine, limit_s: float) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + limit_s

    def __enter__(self) -> None:
        self._timer = self._loop.call_later(WAITING_IS_NEWS_S, self._log)

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _log(self) -> None:
        self._timer = self._loop.call_later(REMINDER_S, self._log)
        oldest = next(iter(self._engine.accumulator.unresolved), None)
        reason, detail = (None, None) if oldest is None else self._engine.obstacle(oldest)
        log.warning(
            "close.waiting records=%d for_at_most_s=%.1f oldest=%s last_error=%s reason=%s detail=%s",
            self._engine.unfinished,
            self._until - self._loop.time(),
            None if oldest is None else oldest.topic_partition,
            None if oldest is None else oldest.last_error,
            reason,
            detail,
        )


def _closed_early() -> Failure:
    return Failure(ProducerClosed, "the producer was closed before the record was acknowledged")
