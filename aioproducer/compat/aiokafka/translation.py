"""Translation of errors and Futures to aiokafka's."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType
from typing import Any, TypeVar, cast

from aioproducer import errors as ours
from aioproducer.compat.aiokafka import errors as theirs

T = TypeVar("T")
U = TypeVar("U")
E = TypeVar("E", bound=Exception)

_KINDS: tuple[tuple[type[ours.ProducerError], type[theirs.KafkaError]], ...] = (
    (ours.RecordTooLarge, theirs.MessageSizeTooLargeError),
    (ours.MetadataTimeout, theirs.UnknownTopicOrPartitionError),  # aiokafka raises it for any reason
    (ours.BufferTimeout, theirs.KafkaTimeoutError),
    (ours.TransactionTimeout, theirs.KafkaTimeoutError),
    (ours.TransactionOutcomeUnknown, theirs.KafkaTimeoutError),
    (ours.ProducerClosed, theirs.ProducerClosed),
    (ours.ConnectionFailed, theirs.KafkaConnectionError),
    (ours.AuthenticationFailed, theirs.AuthenticationFailedError),
    (ours.ProtocolError, theirs.KafkaProtocolError),
)


def translated(error: BaseException) -> BaseException:
    """Return aiokafka's error for *error*, which becomes its `__cause__`.

    Other errors than ProducerError are returned unchanged.
    """
    match error:
        case ours.SendManyError(__cause__=ours.ProducerError() as first):
            # a large batch is split, and some parts may be in the log
            return _translation(
                first, possibly_persisted=error.possibly_persisted or error.result.delivered > 0
            )
        case ours.ProducerError():
            return _translation(error, possibly_persisted=error.possibly_persisted)
    return error


def _translation(
    error: ours.ProducerError, *, possibly_persisted: bool
) -> theirs.KafkaError | theirs.IllegalOperation:
    if isinstance(error, ours.TransactionStateError):
        illegal = also_theirs(theirs.IllegalOperation)(str(error))
        illegal.__cause__ = error
        return illegal
    translation = also_theirs(_kind(error))(str(error))
    translation.possibly_persisted = possibly_persisted
    translation.__cause__ = error
    return translation


def _kind(error: ours.ProducerError) -> type[theirs.KafkaError]:  # noqa: PLR0911 - a table
    match error:
        case ours.ProducerFenced() | ours.InvalidProducerEpoch(fatal=True):
            return theirs.ProducerFenced
        case ours.CommitFailed(__cause__=ours.ProducerError() as first):
            return _kind(first)  # aiokafka raises the reason
        case ours.BrokerError():
            return theirs.for_code(error.code)
        case ours.DeliveryTimeout(__cause__=ours.ConnectionFailed(written=False)):
            return theirs.NodeNotReadyError
        case ours.DeliveryTimeout(__cause__=ours.UnknownTopicId()):
            return theirs.NotLeaderForPartitionError  # aiokafka's error for a deleted topic
        case ours.DeliveryTimeout(__cause__=ours.ProducerError() as last):
            return _kind(last)  # aiokafka raises the error of the last attempt
        case ours.DeliveryTimeout(possibly_persisted=True):
            return theirs.RequestTimedOutError
        case ours.DeliveryTimeout():
            return theirs.KafkaTimeoutError
        case ours.ConnectionFailed(written=True, __cause__=TimeoutError()):
            return theirs.RequestTimedOutError
    return next((kind for base, kind in _KINDS if isinstance(error, base)), theirs.KafkaError)


def also_theirs(kind: type[E]) -> type[E]:
    """Return a subclass of *kind* and of aiokafka's class of this name, if aiokafka is imported; else *kind*.

    Existing `except` clauses with aiokafka's classes keep working.
    """
    module = sys.modules.get("aiokafka.errors")
    if module is None:
        return kind
    made: type[E] = _also(cast("Any", kind), module)
    return made


@cache
def _also(kind: Any, module: ModuleType) -> Any:
    of_aiokafka = getattr(module, kind.__name__, None)
    if not (isinstance(of_aiokafka, type) and issubclass(of_aiokafka, Exception)):
        return kind

    def reduced(error: BaseException) -> tuple[object, ...]:
        return _again, (kind, error.args, vars(error))

    body = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": reduced}
    return type(kind.__name__, (kind, of_aiokafka), body)


def _again(kind: type[E], args: tuple[object, ...], fields: dict[str, object]) -> E:
    """Unpickle an error of `also_theirs`; aiokafka may be missing in another process."""
    error = also_theirs(kind)(*args)
    vars(error).update(fields)
    return error


@contextmanager
def translating() -> Generator[None]:
    """Convert errors of aioproducer to aiokafka's."""
    try:
        yield
    except ours.ProducerError as error:
        raise translated(error) from error


def relayed(inner: asyncio.Future[T], convert: Callable[[T], U]) -> asyncio.Future[U]:
    """Return a Future with the converted result, or the translated error, of *inner*.

    Its cancellation does not cancel *inner*. An unretrieved error causes no warning, because the producer logs it.
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
