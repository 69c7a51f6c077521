"""Chain of the user's interceptors, whose exceptions are contained."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from aioproducer._core.log_limits import LogLimits
from aioproducer._core.logfmt import Pairs
from aioproducer._core.steps import Log, pass_on
from aioproducer.errors import ProducerError
from aioproducer.types import Headers, HeadersInput, ProducerRecord, RecordMetadata, TopicPartition

log: Final = Log("aioproducer.interceptors")


class InterceptorChain:
    """Calls interceptors in order, and contains their exceptions; falsy without interceptors.

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
        """Return *record* after all `on_send` methods; a method that fails is skipped."""
        for interceptor, method in self._on_send:
            try:
                # The method gets a copy, so that the changes of a method that fails are dropped.
                changed = method(replace(record, headers=_as_pairs(record.headers)))
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"on_send returned {type(changed).__name__} instead of a ProducerRecord")  # noqa: TRY301 - contained like an error of the method
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
        """Call every interceptor for an acknowledged or failed record, with 3 to 5 arguments (`_arguments_of`)."""
        outcome = (metadata, error, topic_partition, headers, latency_s)
        for interceptor, method, arguments in self._on_acknowledgement:
            try:
                method(*outcome[:arguments])
            except (KeyboardInterrupt, SystemExit) as interrupt:
                pass_on(interrupt)  # the caller is a callback or task of the producer
            except BaseException as failure:  # noqa: BLE001 - user code may raise anything
                self._log_failure(interceptor, "on_acknowledgement", failure)

    def on_send_error(
        self, topic: str, partition: int | None, headers: Headers, error: BaseException
    ) -> None:
        """Call every `on_acknowledgement` for a record that failed before it was appended, as in the JVM client.

        Interceptors get a ProducerError. Any other *error*, for example of a cancelled call, becomes the ProducerError's
        cause.
        """
        if not self._on_acknowledgement:
            return
        failed = error
        if not isinstance(failed, ProducerError):
            cancelled = isinstance(error, asyncio.CancelledError)
            failed = ProducerError(f"not appended: {'its call was cancelled' if cancelled else error}")
            failed.__cause__ = error
        where = TopicPartition(topic, -1 if partition is None else partition)
        self.on_acknowledgement(None, failed, where, headers)

    def close(self) -> None:
        """Call `close` of every interceptor."""
        for interceptor, method in self._defined("close"):
            try:
                method()
            except (KeyboardInterrupt, SystemExit) as interrupt:
                pass_on(interrupt)
            except BaseException as error:  # noqa: BLE001 - the producer closes anyway
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
    """Return the number of arguments for *method*, 3 to 5; `*args` does not count."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # a method in C may have no signature
        return 3
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(max(sum(each.kind in positional for each in parameters), 3), 5)
