"""Avro, JSON Schema and Protobuf with a schema registry, by the serializers of confluent-kafka.

client = SchemaRegistryClient({"url": "http://localhost:8081"})
orders = value_serializer(AvroSerializer(client, schema))
await asyncio.to_thread(orders.warm_up, "orders", {"id": 1})
async with Producer("localhost:9092", value_serializer=orders) as producer: ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from confluent_kafka.serialization import MessageField, SerializationContext
except ImportError as _missing:
    raise ImportError(
        'serializers with a schema registry need another package: pip install "aioproducer[schema-registry]"'
    ) from _missing

ConfluentSerializer = Callable[[Any, SerializationContext], bytes | None]
"""An AvroSerializer, a JSONSerializer, a ProtobufSerializer, or another of confluent-kafka's serializers."""


class RegistrySerializer:
    """Calls a serializer of confluent-kafka with what it wants to know of the record.

    It asks the registry for a schema when it first needs one, and waits for the answer; while it does so in a
    `send`, the event loop stands still. So let it warm up before.
    """

    def __init__(self, serializer: ConfluentSerializer, field: MessageField) -> None:
        self._serializer = serializer
        self._field = field

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], value: Any, /) -> bytes | None:
        """Return *value* as bytes; a schema's id may go to *headers*, if the serializer is configured so."""
        # Their type of headers is that of what is received, and wider.
        return self._serializer(value, SerializationContext(topic, self._field, headers))  # type: ignore[arg-type]

    def warm_up(self, topic: str, value: Any) -> None:
        """Serialize *value*, an example, and forget it: the registry's answers for *topic* are kept.

        It blocks: call it in a thread, once for each topic, before the first record. Raises: as the serializer.
        """
        self.serialize(topic, [], value)


def key_serializer(serializer: ConfluentSerializer) -> RegistrySerializer:
    """Return *serializer* for the option `key_serializer`."""
    return RegistrySerializer(serializer, MessageField.KEY)


def value_serializer(serializer: ConfluentSerializer) -> RegistrySerializer:
    """Return *serializer* for the option `value_serializer`."""
    return RegistrySerializer(serializer, MessageField.VALUE)
