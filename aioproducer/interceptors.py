"""The user's code around every record, and the chain that keeps its errors away from the producer."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from aioproducer.errors import ProducerError
from aioproducer.log_limits import LogLimits
from aioproducer.logfmt import Pairs
from aioproducer.steps import Log, pass_on
from aioproducer.types import Headers, HeadersInput, ProducerRecord, RecordMetadata, TopicPartition

log: Final = Log(__name__)


class Interceptor(Protocol):
    """What an interceptor may do; every method is optional.

    Subclass it to be spared the methods that you do not need, or write a class of your own with the ones
    that you do. All are called on the event loop, for every record: they must be quick and may not block.
    """

    def on_send(self, record: ProducerRecord, /) -> ProducerRecord:
        """Return the record to send: *record*, changed or not, or another one, even for another topic.

        Called before anything is looked up or serialized. *record* is this interceptor's own copy; its
        key, value and headers are the caller's, so put new ones in their place instead of changing them. Its
        headers are pairs here, also if they were given as a mapping.
        """
        return record

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
        /,
    ) -> None:
        """Hear how a record ended: either *metadata* or *error* is given.

        Called once for each record that went through `on_send`, even if it failed before it was appended. The
        partition of *topic_partition* is -1 if the record failed before one was chosen. Declare a fourth
        parameter, `headers: Headers = ()`, to get the record's headers, too (KIP-512): what `on_send` put
        there is found again here.

        Declare a fifth one, `latency_s: float | None = None`, to get how long the record took, in seconds, counted from the
        first record of its batch on: that much at most, and for a record that waited alone exactly that. None if it
        failed before it was in a batch.
        """
        return  # an empty body would make it abstract to type checkers

    def close(self) -> None:
        """Hear that the producer is closed; nothing is called afterwards."""
        return  # as above


class HasOnSend(Protocol):
    """An interceptor with at least `on_send`."""

    def on_send(self, record: ProducerRecord, /) -> ProducerRecord:
        """See `Interceptor`."""
        ...


class HasOnAcknowledgement(Protocol):
    """An interceptor with at least `on_acknowledgement`."""

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
        /,
    ) -> None:
        """See `Interceptor`."""


class HasOnAcknowledgementWithHeaders(Protocol):
    """An interceptor with at least an `on_acknowledgement` that takes the record's headers."""

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
        headers: Headers,
        /,
    ) -> None:
        """See `Interceptor`."""


class HasOnAcknowledgementWithLatency(Protocol):
    """An interceptor with at least an `on_acknowledgement` that takes the record's headers and latency."""

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
        headers: Headers,
        latency_s: float | None,
        /,
    ) -> None:
        """See `Interceptor`."""


class HasClose(Protocol):
    """An interceptor with at least `close`."""

    def close(self) -> None:
        """See `Interceptor`."""


AnyInterceptor: TypeAlias = (
    HasOnSend
    | HasOnAcknowledgement
    | HasOnAcknowledgementWithHeaders
    | HasOnAcknowledgementWithLatency
    | HasClose
)
"""What may be given as an interceptor: every method is optional, and one is needed."""


class InterceptorChain:
    """Calls interceptors in order and contains what they raise; falsy if there are none.

    An exception of the user's code is logged with its traceback, under `LogLimits`: a broken interceptor fails for every
    record.
    """

    def __init__(self, interceptors: Iterable[object]) -> None:
        self._interceptors = tuple(interceptors)
        self._on_send = self._defined("on_send")
        self._on_acknowledgement = tuple(
            (each, method, _arguments_of(method)) for each, method in self._defined("on_acknowledgement")
        )
        self._limits = LogLimits()

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return what the interceptors make of *record*; one that fails is passed over."""
        for interceptor, method in self._on_send:
            try:
                # A copy: what an interceptor changes before it fails must not stay changed.
                changed = method(replace(record, headers=_as_pairs(record.headers)))
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"on_send returned {type(changed).__name__} instead of a ProducerRecord")  # noqa: TRY301 - contained and logged like any other
            except Exception as error:  # noqa: BLE001 - the user's code may raise anything
                self._log_failure(interceptor, "on_send", error)
            else:
                record = changed
        return record

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
        headers: Headers = (),
        latency_s: float | None = None,
    ) -> None:
        """Tell every interceptor how a record ended, with its *headers* and *latency_s* if they are asked for."""
        told = (metadata, error, topic_partition, headers, latency_s)
        for interceptor, method, arguments in self._on_acknowledgement:
            try:
                method(*told[:arguments])
            except (
                KeyboardInterrupt,
                SystemExit,
            ) as interrupt:  # the caller is a callback or a task of the producer
                pass_on(interrupt)
            except BaseException as failure:  # noqa: BLE001 - user code may raise anything
                self._log_failure(interceptor, "on_acknowledgement", failure)

    def on_send_error(
        self, topic: str, partition: int | None, headers: Headers, error: BaseException
    ) -> None:
        """Tell every interceptor of a record that failed before it was appended, as an acknowledgement like others.

        So does the JVM's chain. They get a ProducerError, whatever *error* is: a call with wrong arguments, or one
        that is cancelled, is the cause of one.
        """
        if not self._on_acknowledgement:
            return
        told = error
        if not isinstance(told, ProducerError):
            cancelled = isinstance(error, asyncio.CancelledError)
            told = ProducerError(f"not appended: {'its call was cancelled' if cancelled else error}")
            told.__cause__ = error
        where = TopicPartition(topic, -1 if partition is None else partition)
        self.on_acknowledgement(None, told, where, headers)

    def close(self) -> None:
        """Tell every interceptor that the producer is closed."""
        for interceptor, method in self._defined("close"):
            try:
                method()
            except (KeyboardInterrupt, SystemExit) as interrupt:
                pass_on(interrupt)
            except BaseException as error:  # noqa: BLE001 - the producer is closed all the same
                self._log_failure(interceptor, "close", error)
        self._limits.close()

    def _defined(self, name: str) -> tuple[tuple[object, Callable[..., object]], ...]:
        return tuple((each, getattr(each, name)) for each in self._interceptors if hasattr(each, name))

    def _log_failure(self, interceptor: object, method: str, error: BaseException) -> None:
        subject = Pairs(interceptor=type(interceptor).__qualname__, method=method)
        self._limits.log(
            log,
            logging.WARNING,
            subject,
            "interceptor.failed %s error=%s",
            *(subject, type(error).__name__),
            error=error,
        )


def _as_pairs(headers: HeadersInput) -> HeadersInput:
    return tuple(headers.items()) if isinstance(headers, Mapping) else headers


def _arguments_of(method: Callable[..., object]) -> int:
    """How many arguments *method* gets, 3 to 5; `*args` takes none, or those who took three so would get more."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # written in C, say
        return 3
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(max(sum(each.kind in positional for each in parameters), 3), 5)
