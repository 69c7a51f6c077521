"""Avro, JSON Schema and Protobuf with a schema registry, by the serializers of confluent-kafka.

    client = SchemaRegistryClient({"url": "http://localhost:8081"})
    orders = value_serializer(AvroSerializer(client, schema))
    await asyncio.to_thread(orders.warm_up, "orders", {"id": 1})
    async with Producer("localhost:9092", value_serializer=orders) as producer: ...

The registry's answers are waited for where a schema is first needed: in a send, unless the serializer was warmed up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aioproducer.escaping import LONGEST_TEXT, escaped
from aioproducer.extras import needs

try:
    from confluent_kafka.serialization import MessageField, SerializationContext
except ImportError as _missing:
    raise ImportError(needs("aioproducer.contrib.schema_registry", "schema-registry")) from _missing

ConfluentSerializer = Callable[[Any, SerializationContext], bytes | None]
"""An AvroSerializer, a JSONSerializer, a ProtobufSerializer, or another of confluent-kafka's serializers."""


class RegistrySerializer:
    """Calls a serializer of confluent-kafka with what it wants to know of the record.

    It asks the registry for a schema when it first needs one, and waits for the answer; while it does so in a
    `send`, the event loop stands still. So let it warm up before.
    """

    def __init__(self, serializer: ConfluentSerializer, field: MessageField) -> None:
        given: object = serializer
        if not callable(given) or isinstance(given, type):
            raise TypeError(
                f"a serializer of confluent-kafka is needed, say AvroSerializer(client, schema), not {serializer!r}"
            )
        self._serializer = serializer
        self._field = field

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], value: Any, /) -> bytes | None:
        """Return *value* as bytes; a schema's id may go to *headers*, if the serializer is configured so.

        Raises: ConnectionError if the registry cannot be reached; what the serializer raises.
        """
        # Their type of headers is that of what is received, and wider.
        context = SerializationContext(topic, self._field, headers)  # type: ignore[arg-type]
        try:
            return self._serializer(value, context)
        except Exception as error:
            # of httpx or httpx2, whichever their client has found
            if any(base.__name__ == "TransportError" for base in type(error).__mro__):
                raise ConnectionError(
                    f"the schema registry cannot be reached: {escaped(str(error), LONGEST_TEXT)}"
                ) from error
            raise

    def warm_up(self, topic: str, value: Any) -> None:
        """Serialize *value*, an example, and forget it: the registry's answers for *topic* are kept.

        It blocks: call it in a thread, once for each topic, before the first record. Raises: as `serialize`.
        """
        self.serialize(topic, [], value)


def key_serializer(serializer: ConfluentSerializer) -> RegistrySerializer:
    """Return *serializer* for the option `key_serializer`. Raises: TypeError if it is not one."""
    return RegistrySerializer(serializer, MessageField.KEY)


def value_serializer(serializer: ConfluentSerializer) -> RegistrySerializer:
    """Return *serializer* for the option `value_serializer`. Raises: TypeError if it is not one."""
    return RegistrySerializer(serializer, MessageField.VALUE)
