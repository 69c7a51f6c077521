"""Translation of errors and Futures to aiokafka's."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType
from typing import Any, TypeVar, cast

from aioproducer import errors
from aioproducer.compat.aiokafka import errors as aiokafka_errors

T = TypeVar("T")
U = TypeVar("U")
E = TypeVar("E", bound=Exception)

_KINDS: tuple[tuple[type[errors.ProducerError], type[aiokafka_errors.KafkaError]], ...] = (
    (errors.RecordTooLarge, aiokafka_errors.MessageSizeTooLargeError),
    # aiokafka raises UnknownTopicOrPartitionError for any reason
    (errors.MetadataTimeout, aiokafka_errors.UnknownTopicOrPartitionError),
    (errors.BufferTimeout, aiokafka_errors.KafkaTimeoutError),
    (errors.TransactionTimeout, aiokafka_errors.KafkaTimeoutError),
    (errors.TransactionOutcomeUnknown, aiokafka_errors.KafkaTimeoutError),
    (errors.ProducerClosed, aiokafka_errors.ProducerClosed),
    (errors.ConnectionFailed, aiokafka_errors.KafkaConnectionError),
    (errors.AuthenticationFailed, aiokafka_errors.AuthenticationFailedError),
    (errors.ProtocolError, aiokafka_errors.KafkaProtocolError),
)


def translated(error: BaseException) -> BaseException:
    """Return aiokafka's error for *error*, which becomes its `__cause__`.

    Other errors than ProducerError are returned unchanged.
    """
    match error:
        case errors.SendManyError(__cause__=errors.ProducerError() as first):
            # a large batch is split, and some parts may be in the log
            return _translation(
                first, possibly_persisted=error.possibly_persisted or error.result.delivered > 0
            )
        case errors.ProducerError():
            return _translation(error, possibly_persisted=error.possibly_persisted)
    return error


def _translation(
    error: errors.ProducerError, *, possibly_persisted: bool
) -> aiokafka_errors.KafkaError | aiokafka_errors.IllegalOperation:
    if isinstance(error, errors.TransactionStateError):
        illegal = as_aiokafka(aiokafka_errors.IllegalOperation)(str(error))
        illegal.__cause__ = error
        return illegal
    translation = as_aiokafka(_kind(error))(str(error))
    translation.possibly_persisted = possibly_persisted
    translation.__cause__ = error
    return translation


def _kind(error: errors.ProducerError) -> type[aiokafka_errors.KafkaError]:  # noqa: PLR0911 - a table
    match error:
        case errors.ProducerFenced() | errors.InvalidProducerEpoch(fatal=True):
            return aiokafka_errors.ProducerFenced
        case errors.CommitFailed(__cause__=errors.ProducerError() as first):
            return _kind(first)  # aiokafka raises the reason
        case errors.BrokerError():
            return aiokafka_errors.for_code(error.code)
        case errors.DeliveryTimeout(__cause__=errors.ConnectionFailed(written=False)):
            return aiokafka_errors.NodeNotReadyError
        case errors.DeliveryTimeout(__cause__=errors.UnknownTopicId()):
            return aiokafka_errors.NotLeaderForPartitionError  # aiokafka's error for a deleted topic
        case errors.DeliveryTimeout(__cause__=errors.ProducerError() as last):
            return _kind(last)  # aiokafka raises the error of the last attempt
        case errors.DeliveryTimeout(possibly_persisted=True):
            return aiokafka_errors.RequestTimedOutError
        case errors.DeliveryTimeout():
            return aiokafka_errors.KafkaTimeoutError
        case errors.ConnectionFailed(written=True, __cause__=TimeoutError()):
            return aiokafka_errors.RequestTimedOutError
    return next((kind for base, kind in _KINDS if isinstance(error, base)), aiokafka_errors.KafkaError)


def as_aiokafka(kind: type[E]) -> type[E]:
    """Return a subclass of *kind* and of aiokafka's class of this name, if aiokafka is imported; else *kind*.

    Existing `except` clauses with aiokafka's classes keep working.
    """
    module = sys.modules.get("aiokafka.errors")
    if module is None:
        return kind
    made: type[E] = _combined(cast("Any", kind), module)
    return made


@cache
def _combined(kind: Any, module: ModuleType) -> Any:
    of_aiokafka = getattr(module, kind.__name__, None)
    if not (isinstance(of_aiokafka, type) and issubclass(of_aiokafka, Exception)):
        return kind

    def reduced(error: BaseException) -> tuple[object, ...]:
        return _unpickled, (kind, error.args, vars(error))

    body = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": reduced}
    return type(kind.__name__, (kind, of_aiokafka), body)


def _unpickled(kind: type[E], args: tuple[object, ...], fields: dict[str, object]) -> E:
    """Unpickle an error of `as_aiokafka`; aiokafka may be missing in another process."""
    error = as_aiokafka(kind)(*args)
    vars(error).update(fields)
    return error


@contextmanager
def translating() -> Generator[None]:
    """Convert errors of aioproducer to aiokafka's."""
    try:
        yield
    except errors.ProducerError as error:
        raise translated(error) from error


def relayed(inner: asyncio.Future[T], convert: Callable[[T], U]) -> asyncio.Future[U]:
    """Return a Future with the converted result, or the translated error, of *inner*.

    Cancelling the returned Future does not cancel *inner*. An unretrieved error causes no warning, because the producer
    logs the error.
    """
    outer: asyncio.Future[U] = inner.get_loop().create_future()
    inner.add_done_callback(partial(_settle, outer, convert))
    return outer


def _settle(outer: asyncio.Future[U], convert: Callable[[T], U], inner: asyncio.Future[T]) -> None:
    if inner.cancelled():
        outer.cancel()
        return
    error = inner.exception()
    if outer.done():  # cancelled
        return
    if error is None:
        outer.set_result(convert(inner.result()))
    else:
        outer.set_exception(translated(error))
        outer.exception()  # marks the error as retrieved
