"""Calls of the user's serializers. An exception of a serializer becomes a SerializationError that names the record."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.admission import AppendLock, QueuedCall
from aioproducer._core.batching.topic import TopicQueues
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.intake.checks import as_bytes, as_headers
from aioproducer.errors import (
    ProducerClosed,
    ProducerError,
    SerializationError,
    SerializerTimeout,
    SerializerUnavailable,
)
from aioproducer.serializers import AnySerializer, HeaderList, Serialized, Serializer
from aioproducer.types import Headers


class SerializerAwaits(Exception):
    """Raised if a serializer returns an awaitable instead of a result. `Serialization` awaits the awaitable."""

    key: bytes | None = None
    """The serialized key, if the value's serializer returned the awaitable."""
    headers: HeaderList | None = None
    """List that the serializers share; None if the serializers do not receive the headers."""

    def __init__(self, field: str, awaitable: Awaitable[Serialized]) -> None:
        super().__init__(field)
        self.field = field
        """"key" or "value"."""
        self.awaitable = awaitable

    def discard(self) -> None:
        """Drop the awaitable: close a coroutine, or cancel a Future, that the call does not await."""
        drop = getattr(self.awaitable, "close", None) or getattr(self.awaitable, "cancel", None)
        if drop is not None:
            drop()


def serialized(
    field: str, serializer: Serializer | None, topic: str, data: Any, position: int | None = None
) -> bytes | None:
    """Return the bytes of *data*, the key or value of a record, from the user's serializer.

    *position* is the position of the record in a `send_many` call. Raises: SerializationError; SerializerAwaits.
    """
    if serializer is None:
        return as_bytes(field, data)
    try:
        made = serializer(data)
        if made is None or type(made) is bytes:
            return made
        if not inspect.isawaitable(made):
            return as_bytes(f"the result of {field}_serializer", made)
    except Exception as error:
        raise _refused(field, topic, data, position, error) from error
    raise SerializerAwaits(field, made)


class Contents(NamedTuple):
    """Result of the serializers for a record."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class InContext:
    """Key and value serializer of a producer; a serializer that accepts topic and headers receives topic and headers."""

    def __init__(self, key_serializer: AnySerializer | None, value_serializer: AnySerializer | None) -> None:
        self._key_serializer = _taking_all(key_serializer)
        self._value_serializer = _taking_all(value_serializer)
        given = {"key": key_serializer, "value": value_serializer}
        self.names: dict[str, str] = {
            field: f"{field}_serializer {_name(each)}" for field, each in given.items() if each is not None
        }
        """Option and name of each serializer, for messages, by field."""
        self.awaits: str | None = next(
            (self.names[field] for field, each in given.items() if is_async(each)), None
        )
        """Name of the serializer that is a coroutine function; None without a coroutine function."""

    def __call__(
        self, topic: str, headers: Headers, key: Any, value: Any, position: int | None = None
    ) -> Contents:
        """Return key and value as bytes, and the headers with the additions of the serializers.

        Raises: SerializationError; SerializerAwaits.
        """
        shared: HeaderList = list(headers)
        of_key, of_value = self.of_record(topic, shared)
        try:
            key = serialized("key", of_key, topic, key, position)
            value = serialized("value", of_value, topic, value, position)
        except SerializerAwaits as waits:
            waits.key, waits.headers = key, shared
            raise
        return Contents(key, value, self.with_headers(topic, headers, shared, position))

    def of_record(self, topic: str, shared: HeaderList) -> tuple[Serializer | None, Serializer | None]:
        """Return the serializers of key and value for a record of *topic* with the headers *shared*."""
        of_key, of_value = self._key_serializer, self._value_serializer
        return (
            None if of_key is None else partial(of_key, topic, shared),
            None if of_value is None else partial(of_value, topic, shared),
        )

    def with_headers(self, topic: str, headers: Headers, shared: HeaderList, position: int | None) -> Headers:
        """Return *headers*, or the changed headers in *shared*. Raises: SerializationError."""
        try:
            if tuple(shared) != headers:
                return as_headers("the headers changed by serializers", shared)
        except Exception as error:  # comparing objects of user code may raise any exception
            raise SerializationError(f"{_record(topic, position)}: {error}") from error
        return headers


class Serialization:
    """The serialization of one record whose serializers may await."""

    def __init__(
        self,
        serializers: InContext,
        record: tuple[str, Headers, Any, Any],
        position: int | None = None,
        begun: SerializerAwaits | None = None,
    ) -> None:
        """*record*: topic, headers, key and value. *begun*: the earlier awaitable of a serializer, or None."""
        self._serializers = serializers
        self._topic, self._headers, self._key, self._value = record
        self._position = position
        self._begun = begun
        self._field = "key"

    @property
    def awaited(self) -> Awaitable[Serialized] | None:
        """Awaitable that a serializer returned before `contents`; None without an awaitable."""
        return None if self._begun is None else self._begun.awaitable

    async def contents(self) -> Contents:
        """Call and await the key serializer, then the value serializer. Raises: SerializationError."""
        topic, begun = self._topic, self._begun
        shared = list(self._headers) if begun is None or begun.headers is None else begun.headers
        of_key, of_value = self._serializers.of_record(topic, shared)
        if begun is not None and begun.field == "value":
            key = begun.key
        else:
            key = await self._made("key", of_key, self._key)
        value = await self._made("value", of_value, self._value)
        headers = self._serializers.with_headers(topic, self._headers, shared, self._position)
        return Contents(key, value, headers)

    async def _made(self, field: str, serializer: Serializer | None, data: Any) -> bytes | None:
        self._field, begun = field, self._begun
        if begun is None or begun.field != field:
            try:
                return serialized(field, serializer, self._topic, data, self._position)
            except SerializerAwaits as waits:
                begun = waits
        try:
            return as_bytes(f"the result of {field}_serializer", await begun.awaitable)
        except Exception as error:
            raise _refused(field, self._topic, data, self._position, error) from error

    def late(self, waited_s: float) -> SerializerTimeout:
        """Return the error for a serializer that has not returned after *waited_s* seconds."""
        field, data = self._field, self._value if self._field == "value" else self._key
        return SerializerTimeout(
            f"{_subject(field, self._topic, data, self._position)} could not be serialized:"
            f" {self._serializers.names.get(field, field)} has not returned, and the call has waited {waited_s:.3f} s;"
            " max_block_ms or the call's timeout_s ran out"
        )


def in_context(
    key_serializer: AnySerializer | None, value_serializer: AnySerializer | None
) -> InContext | None:
    """Return both serializers as one object if a serializer accepts topic and headers; else None."""
    if hasattr(key_serializer, "serialize") or hasattr(value_serializer, "serialize"):
        return InContext(key_serializer, value_serializer)
    return None


def is_async(serializer: object) -> bool:
    """Return True if *serializer* is a coroutine function, or has a coroutine function as its method."""
    code = getattr(serializer, "serialize", serializer)
    return inspect.iscoroutinefunction(code) or inspect.iscoroutinefunction(getattr(code, "__call__", None))  # noqa: B004 - an object with an async __call__, not a test for callability


def _taking_all(
    serializer: Any,
) -> Callable[[str, HeaderList, Any], Serialized | Awaitable[Serialized]] | None:
    if serializer is None:
        return None
    if hasattr(serializer, "serialize"):
        method: Callable[[str, HeaderList, Any], Serialized | Awaitable[Serialized]] = serializer.serialize
        return method
    return lambda _topic, _headers, value: serializer(value)


def _name(serializer: object) -> str:
    code = serializer.func if isinstance(serializer, partial) else serializer
    return str(getattr(code, "__qualname__", type(code).__qualname__))


def _refused(field: str, topic: str, data: Any, position: int | None, error: Exception) -> SerializationError:
    kind = SerializerUnavailable if isinstance(error, ConnectionError | TimeoutError) else SerializationError
    return kind(
        f"{_subject(field, topic, data, position)} could not be serialized: {type(error).__name__}: {error}"
    )


def _subject(field: str, topic: str, data: Any, position: int | None) -> str:
    return f"the {field} of {_record(topic, position)} ({type(data).__name__})"


def _record(topic: str, position: int | None) -> str:
    return f"a record for {topic!r}" if position is None else f"record {position} for {topic!r}"


_inside: Final[ContextVar[SerializerTurn | None]] = ContextVar("aioproducer_serializer", default=None)
"""Turn of the innermost serializer whose code runs in this context; the turn may have ended."""


class HoldingCall(Protocol):
    """Call that holds the lock returned by `lock_for`."""

    queues: TopicQueues

    def end(self, error: BaseException | None = None) -> None: ...


class SerializerTurn:
    """A call that holds its topic's lock while its serializers await.

    The context variable carries the turn into the serializer and into all tasks that the serializer creates.
    """

    __slots__ = ("_call", "_failure", "_scope", "lock", "outer", "queues")

    def __init__(self, call: HoldingCall, deadline: float) -> None:
        """The wait for the serializers of *call* ends at *deadline* (loop clock)."""
        self._call: HoldingCall | None = call
        self.queues: TopicQueues | None = call.queues
        """Queues of the call's topic; None once the serializers have returned."""
        self.lock: AppendLock = AppendLock()
        """Queue of the calls that the serializers make for the topic."""
        self.outer: SerializerTurn | None = next(_open_turns(), None)
        """Turn of the serializer that made the call, or None."""
        self._scope = asyncio.timeout_at(deadline)
        self._failure: Failure | None = None

    async def contents(
        self, serialization: Serialization, accumulator: Accumulator, began_at: float
    ) -> Contents:
        """Await the serializers, and the calls that serializers made and that are not yet appended.

        Raises: SerializationError; SerializerTimeout; the producer's error if the producer is closed meanwhile; TimeoutError
            if a call of a serializer is not appended in time.
        """
        before, call = _inside.get(), self._call
        # The awaitable may be a running task, which has `get_context` since Python 3.12.
        get_context = getattr(serialization.awaited, "get_context", None)
        try:
            if get_context is not None:
                get_context().run(_inside.set, self)
            _inside.set(self)
            accumulator.interrupts[call] = self.interrupt
            async with self._scope:
                contents = await serialization.contents()
        except Exception as error:
            if self._scope.expired():
                cause = error if self._failure is None else None
                raise self._ended(serialization, began_at) from cause
            raise
        finally:
            accumulator.interrupts.pop(call, None)
            self._call = self.queues = None
            _inside.set(before)  # `reset` may fail: the collector may close the coroutine in another context
        if self._failure is not None or self._scope.expired():
            raise self._ended(serialization, began_at)
        if self.lock.held:
            deadline = self._scope.when()
            assert deadline is not None, "the wait has a deadline"
            await self.lock.acquire(QueuedCall(), deadline)
            self.lock.release()
        return contents

    def _ended(self, serialization: Serialization, began_at: float) -> ProducerError:
        """Return the error of a wait that the deadline or the end of the producer ended."""
        if self._failure is not None:
            return self._failure.error()
        return serialization.late(asyncio.get_running_loop().time() - began_at)

    def interrupt(self, failure: Failure) -> None:
        """End the wait because the producer accepts no more records."""
        self._failure = failure
        if not self._scope.expired():  # an expired scope has already cancelled the serializer
            self._scope.reschedule(asyncio.get_running_loop().time())

    def withdraw(self, accumulator: Accumulator) -> None:
        """Fail the call as the producer closes; the serializer continues, and no other call waits for the serializer."""
        assert self._call is not None, "the serializer runs"
        self._failure = Failure(ProducerClosed, "a serializer closed the producer before it returned")
        accumulator.interrupts.pop(self._call, None)
        self._call.end(self._failure.error())


def _open_turns() -> Iterator[SerializerTurn]:
    """Yield the turns whose serializers run this code, from the innermost outwards."""
    turn = _inside.get()
    while turn is not None:
        if turn.queues is not None:
            yield turn
        turn = turn.outer


def lock_for(queues: TopicQueues) -> AppendLock:
    """Return the lock in which a new call for the topic of *queues* waits for its turn."""
    return next((each.lock for each in _open_turns() if each.queues is queues), queues.append_lock)


def withdraw_callers(accumulator: Accumulator) -> None:
    """Fail the calls whose serializers close the producer: `close` and these calls would wait for each other."""
    for turn in _open_turns():
        if turn.queues is not None and accumulator.topics.get(turn.queues.name) is turn.queues:
            turn.withdraw(accumulator)
