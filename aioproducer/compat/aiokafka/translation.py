"""A translation of our errors and Futures into aiokafka's."""

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
    (ours.MetadataTimeout, theirs.UnknownTopicOrPartitionError),  # theirs says so whatever the reason
    (ours.BufferTimeout, theirs.KafkaTimeoutError),
    (ours.TransactionTimeout, theirs.KafkaTimeoutError),
    (ours.TransactionOutcomeUnknown, theirs.KafkaTimeoutError),
    (ours.ProducerClosed, theirs.ProducerClosed),
    (ours.ConnectionFailed, theirs.KafkaConnectionError),
    (ours.AuthenticationFailed, theirs.AuthenticationFailedError),
    (ours.ProtocolError, theirs.KafkaProtocolError),
)


def translated(error: BaseException) -> BaseException:
    """Return what aiokafka raises where we raise *error*, which is its `__cause__` then.

    What is no ProducerError is returned as it is.
    """
    match error:
        case ours.SendManyError(__cause__=ours.ProducerError() as first):
            # a large batch goes as several, and some of them may be in the log
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
            return _kind(first)  # theirs raises why it cannot be committed
        case ours.BrokerError():
            return theirs.for_code(error.code)
        case ours.DeliveryTimeout(__cause__=ours.ConnectionFailed(written=False)):
            return theirs.NodeNotReadyError
        case ours.DeliveryTimeout(__cause__=ours.UnknownTopicId()):
            return theirs.NotLeaderForPartitionError  # what theirs says of a topic that is gone
        case ours.DeliveryTimeout(__cause__=ours.ProducerError() as last):
            return _kind(last)  # it was tried, and theirs raises what the last attempt has failed of
        case ours.DeliveryTimeout(possibly_persisted=True):
            return theirs.RequestTimedOutError
        case ours.DeliveryTimeout():
            return theirs.KafkaTimeoutError
        case ours.ConnectionFailed(written=True, __cause__=TimeoutError()):
            return theirs.RequestTimedOutError
    return next((kind for base, kind in _KINDS if isinstance(error, base)), theirs.KafkaError)


def also_theirs(kind: type[E]) -> type[E]:
    """Return *kind* as a subclass of what aiokafka calls so, too, where that is imported in the same program.

    So whoever has only put our class in aiokafka's place catches what they always did.
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
    """Unpickle what `also_theirs` has made: another process may have no aiokafka."""
    error = also_theirs(kind)(*args)
    vars(error).update(fields)
    return error


@contextmanager
def translating() -> Generator[None]:
    """Raise aiokafka's errors where ours are raised."""
    try:
        yield
    except ours.ProducerError as error:
        raise translated(error) from error


def relayed(inner: asyncio.Future[T], convert: Callable[[T], U]) -> asyncio.Future[U]:
    """Return a Future of what *convert* makes of the result of *inner*; its failure is translated.

    Cancelling it leaves *inner* alone. Nobody needs to look at its failure, which the producer logs.
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
        outer.exception()  # counts as looked at
