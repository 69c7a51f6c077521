"""Avro, JSON Schema and Protobuf with a schema registry, through the serializers of confluent-kafka.

    client = SchemaRegistryClient({"url": "http://localhost:8081"})
    orders = value_serializer(AvroSerializer(client, schema))
    await asyncio.to_thread(orders.warm_up, "orders", {"id": 1})
    async with Producer("localhost:9092", value_serializer=orders) as producer: ...

A serializer requests each schema from the registry at its first use, which is in a send unless `warm_up` was called.
confluent-kafka's asynchronous serializers (`AsyncAvroSerializer` …) await the registry without blocking the event loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, overload

from aioproducer._core.extras import needs
from aioproducer._core.logfmt import LONGEST_TEXT, escaped

try:
    from confluent_kafka.serialization import MessageField, SerializationContext
except ImportError as _missing:
    raise ImportError(needs("aioproducer.contrib.schema_registry", "schema-registry")) from _missing

ConfluentSerializer = Callable[[Any, SerializationContext], bytes | None]
"""An AvroSerializer, a JSONSerializer, a ProtobufSerializer, or another of confluent-kafka's serializers."""

AsyncConfluentSerializer = Callable[[Any, SerializationContext], Coroutine[Any, Any, bytes | None]]
"""An AsyncAvroSerializer, an AsyncJSONSerializer or an AsyncProtobufSerializer of confluent-kafka."""

_ASYNC: str = "confluent_kafka.schema_registry._async"
"""Package of confluent-kafka's asynchronous serializers, which are plain callables that return a coroutine."""


class RegistrySerializer:
    """Adapter that calls a serializer of confluent-kafka with topic, field and headers of the record.

    The first use of a schema blocks the event loop until the registry responds. Call `warm_up` before.
    """

    def __init__(self, serializer: ConfluentSerializer, field: MessageField) -> None:
        self._serializer = serializer
        self._field = field

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], value: Any, /) -> bytes | None:
        """Return *value* as bytes; a serializer with this setting adds the schema's id to *headers*.

        Raises: ConnectionError if the registry cannot be reached; the errors of the serializer.
        """
        try:
            return self._serializer(value, _context(topic, self._field, headers))
        except Exception as error:
            _check_reachable(error)
            raise

    def warm_up(self, topic: str, value: Any) -> None:
        """Serialize the example *value*, so that the serializer caches the registry's responses for *topic*.

        The method blocks: call it in a thread, once for each topic, before the first record. Raises: as `serialize`.
        """
        self.serialize(topic, [], value)


class AsyncRegistrySerializer:
    """Adapter that awaits an asynchronous serializer of confluent-kafka, with topic, field and headers of the record."""

    def __init__(self, serializer: AsyncConfluentSerializer, field: MessageField) -> None:
        self._serializer = serializer
        self._field = field

    async def serialize(
        self, topic: str, headers: list[tuple[str, bytes | None]], value: Any, /
    ) -> bytes | None:
        """Return *value* as bytes; a serializer with this setting adds the schema's id to *headers*.

        Raises: ConnectionError if the registry cannot be reached; the errors of the serializer.
        """
        try:
            return await self._serializer(value, _context(topic, self._field, headers))
        except Exception as error:
            _check_reachable(error)
            raise

    async def warm_up(self, topic: str, value: Any) -> None:
        """Serialize the example *value*, so that the serializer caches the registry's responses for *topic*.

        Raises: as `serialize`.
        """
        await self.serialize(topic, [], value)


@overload
def key_serializer(serializer: AsyncConfluentSerializer) -> AsyncRegistrySerializer: ...
@overload
def key_serializer(serializer: ConfluentSerializer) -> RegistrySerializer: ...
def key_serializer(
    serializer: ConfluentSerializer | AsyncConfluentSerializer,
) -> RegistrySerializer | AsyncRegistrySerializer:
    """Return *serializer* for the option `key_serializer`. Raises: TypeError if *serializer* is no serializer."""
    return _wrapped(serializer, MessageField.KEY)


@overload
def value_serializer(serializer: AsyncConfluentSerializer) -> AsyncRegistrySerializer: ...
@overload
def value_serializer(serializer: ConfluentSerializer) -> RegistrySerializer: ...
def value_serializer(
    serializer: ConfluentSerializer | AsyncConfluentSerializer,
) -> RegistrySerializer | AsyncRegistrySerializer:
    """Return *serializer* for the option `value_serializer`. Raises: TypeError if *serializer* is no serializer."""
    return _wrapped(serializer, MessageField.VALUE)


def _wrapped(serializer: Any, field: MessageField) -> RegistrySerializer | AsyncRegistrySerializer:
    if not callable(serializer) or isinstance(serializer, type):
        hint = "; await it first" if inspect.isawaitable(serializer) else ""
        raise TypeError(
            "expected a serializer of confluent-kafka, such as AvroSerializer(client, schema), not"
            f" {serializer!r}{hint}"
        )
    is_async = type(serializer).__module__.startswith(_ASYNC) or inspect.iscoroutinefunction(serializer)
    return (AsyncRegistrySerializer if is_async else RegistrySerializer)(serializer, field)


def _context(
    topic: str, field: MessageField, headers: list[tuple[str, bytes | None]]
) -> SerializationContext:
    # confluent-kafka declares a wider type of headers, that of received records.
    return SerializationContext(topic, field, headers)  # type: ignore[arg-type]


def _check_reachable(error: Exception) -> None:
    """Raise ConnectionError if *error* means that the registry cannot be reached."""
    # The error is raised by httpx or httpx2, which confluent-kafka uses.
    if any(base.__name__ == "TransportError" for base in type(error).__mro__):
        raise ConnectionError(
            f"the schema registry cannot be reached: {escaped(str(error), LONGEST_TEXT)}"
        ) from error
