"""The user's code around every record, and the chain that keeps its errors away from the producer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol, TypeAlias

from aioproducer.errors import ProducerError
from aioproducer.types import ProducerRecord, RecordMetadata, TopicPartition

log = logging.getLogger(__name__)


class Interceptor(Protocol):
    """What an interceptor may do; every method is optional.

    Subclass it to be spared the methods that you do not need, or write a class of your own with the ones
    that you do. All are called on the event loop, for every record: they must be quick and may not block.
    """

    def on_send(self, record: ProducerRecord, /) -> ProducerRecord:
        """Return the record to send: *record*, changed or not, or another one, for another topic even.

        Called before anything is looked up or serialized. *record* is this interceptor's own copy; its
        key, value and headers are the caller's, so put new ones in their place instead of changing them.
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

        The partition of *topic_partition* is -1 if the record failed before one was chosen.
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


class HasClose(Protocol):
    """An interceptor with at least `close`."""

    def close(self) -> None:
        """See `Interceptor`."""


AnyInterceptor: TypeAlias = HasOnSend | HasOnAcknowledgement | HasClose
"""What may be given as an interceptor: every method is optional, and one is needed."""


class InterceptorChain:
    """Calls interceptors in order and contains what they raise; falsy if there are none.

    An exception of the user's code is logged, the first of each class and method as a warning with its
    traceback, later ones at debug level: a broken interceptor fails for every record, and must not flood
    the log.
    """

    def __init__(self, interceptors: Iterable[object]) -> None:
        self._interceptors = tuple(interceptors)
        self._on_send = self._defined("on_send")
        self._on_acknowledgement = self._defined("on_acknowledgement")
        self._warned: set[tuple[type, str]] = set()

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return what the interceptors make of *record*; one that fails is passed over."""
        for interceptor, method in self._on_send:
            try:
                # A copy: what an interceptor changes before it fails must not stay changed.
                changed = method(replace(record))
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"on_send returned {type(changed).__name__} instead of a ProducerRecord")  # noqa: TRY301 - contained and logged like any other
            except Exception as error:  # noqa: BLE001 - the user's code may raise anything
                self._log_failure(interceptor, "on_send", error)
            else:
                record = changed
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ProducerError | None, topic_partition: TopicPartition
    ) -> None:
        """Tell every interceptor how a record ended."""
        for interceptor, method in self._on_acknowledgement:
            try:
                method(metadata, error, topic_partition)
            except BaseException as failure:  # noqa: BLE001 - called from a task of ours: there is nobody to raise to
                self._log_failure(interceptor, "on_acknowledgement", failure)

    def close(self) -> None:
        """Tell every interceptor that the producer is closed."""
        for interceptor, method in self._defined("close"):
            try:
                method()
            except BaseException as error:  # noqa: BLE001 - the producer is closed all the same
                self._log_failure(interceptor, "close", error)

    def _defined(self, name: str) -> tuple[tuple[object, Callable[..., object]], ...]:
        return tuple((each, getattr(each, name)) for each in self._interceptors if hasattr(each, name))

    def _log_failure(self, interceptor: object, method: str, error: BaseException) -> None:
        failed = (type(interceptor), method)
        level = logging.DEBUG if failed in self._warned else logging.WARNING
        self._warned.add(failed)
        log.log(
            level,
            "interceptor.failed interceptor=%s method=%s error=%s",
            failed[0].__qualname__,
            method,
            type(error).__name__,
            exc_info=error,
        )
