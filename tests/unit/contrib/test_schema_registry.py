from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    SchemaRegistryClient,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AsyncAvroSerializer, AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import AsyncJSONSerializer, JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import (
    AsyncProtobufSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
)
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

from aioproducer import ConfigError, Producer, SendManyError, SerializationError, SerializerUnavailable
from aioproducer._core.extras import needs
from aioproducer.contrib.schema_registry import (
    AsyncRegistrySerializer,
    RegistrySerializer,
    key_serializer,
    value_serializer,
)
from aioproducer.testing import ThreadedCluster
from tests.cases import for_each
from tests.unit.contrib.registry_fake import RegistryFake, registry

FIELDS = [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}]
AVRO = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
JSON_SCHEMA = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}})
ORDER = {"id": 7, "note": "grün"}


def protobuf_order() -> Any:
    """What protoc makes of `message Order { string note = 1; }`."""
    field_kind = descriptor_pb2.FieldDescriptorProto
    field = field_kind(name="note", number=1, type=field_kind.TYPE_STRING, label=field_kind.LABEL_OPTIONAL)
    message = descriptor_pb2.DescriptorProto(name="Order", field=[field])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3", message_type=[message]))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))


@pytest.fixture
def fake() -> Iterator[RegistryFake]:
    with registry() as running:
        yield running


@pytest.fixture
def client(fake: RegistryFake) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": fake.url})


def avro(client: SchemaRegistryClient) -> tuple[Any, Any, Any]:
    return AvroSerializer(client, AVRO), AvroDeserializer(client), ORDER


def json_schema(client: SchemaRegistryClient) -> tuple[Any, Any, Any]:
    return (
        JSONSerializer(JSON_SCHEMA, client),
        JSONDeserializer(JSON_SCHEMA, schema_registry_client=client),
        ORDER,
    )


def protobuf(client: SchemaRegistryClient) -> tuple[Any, Any, Any]:
    message = protobuf_order()
    return (
        ProtobufSerializer(message, client),
        ProtobufDeserializer(message, None, client),
        message(note="grün"),
    )


@pytest.mark.parametrize("kind", [avro, json_schema, protobuf])
async def test_sent_records_can_be_deserialized(
    kind: Callable[[SchemaRegistryClient], tuple[Any, Any, Any]],
    client: SchemaRegistryClient,
    fake: RegistryFake,
    kafka_cluster: ThreadedCluster,
) -> None:
    serializer, deserializer, value = kind(client)
    options: Any = {
        "key_serializer": key_serializer(serializer),
        "value_serializer": value_serializer(serializer),
    }
    async with Producer(kafka_cluster.bootstrap_servers, **options) as producer:
        await producer.send("orders", value, value)
        await producer.send_many("orders", [value, None])
    first, second, tombstone = kafka_cluster.records("orders", 0)
    context = SerializationContext("orders", MessageField.VALUE)
    assert deserializer(first.value, context) == deserializer(second.value, context) == value
    assert deserializer(first.key, SerializationContext("orders", MessageField.KEY)) == value
    assert (second.key, tombstone.value) == (None, None)
    assert {schema["subject"] for schema in fake.schemas} == {"orders-key", "orders-value"}


async def test_schema_id_may_be_in_the_headers(
    client: SchemaRegistryClient, kafka_cluster: ThreadedCluster
) -> None:
    serializer = AvroSerializer(client, AVRO, conf={"schema.id.serializer": header_schema_id_serializer})
    async with Producer(
        kafka_cluster.bootstrap_servers, value_serializer=value_serializer(serializer)
    ) as producer:
        await producer.send("orders", ORDER, headers={"own": b"1"})
        await producer.send_many("orders", [ORDER])
    deserializer = AvroDeserializer(client, conf={"schema.id.deserializer": dual_schema_id_deserializer})
    first, second = kafka_cluster.records("orders", 0)
    assert [name for name, _ in first.headers] == ["own", "__value_schema_id"]
    for record in (first, second):
        context = SerializationContext("orders", MessageField.VALUE, list(record.headers))
        assert deserializer(record.value, context) == ORDER


async def test_serializer_sends_no_request_after_warm_up(
    client: SchemaRegistryClient, fake: RegistryFake
) -> None:
    orders = value_serializer(AvroSerializer(client, AVRO))
    await asyncio.to_thread(orders.warm_up, "orders", ORDER)
    asked = list(fake.requests)
    assert asked
    headers: list[tuple[str, bytes | None]] = []
    assert orders.serialize("orders", headers, ORDER)
    assert fake.requests == asked


async def test_unreachable_registry_error_is_retriable(kafka_cluster: ThreadedCluster) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and never listens
        away = SchemaRegistryClient({"url": f"http://127.0.0.1:{nobody.getsockname()[1]}", "max.retries": 0})
        orders = value_serializer(AvroSerializer(away, AVRO))
        async with Producer(kafka_cluster.bootstrap_servers, value_serializer=orders) as producer:
            with pytest.raises(
                SerializerUnavailable, match="the schema registry cannot be reached"
            ) as raised:
                await producer.send("orders", ORDER)
            assert isinstance(raised.value.__cause__, ConnectionError)
            with pytest.raises(SendManyError) as some:
                await producer.send_many("orders", [ORDER])
    assert some.value.retriable


@for_each("wrap", [key_serializer, value_serializer])
@for_each("serializer", [5, None, AvroSerializer])
def test_invalid_serializer_is_refused(wrap: Any, serializer: Any) -> None:
    with pytest.raises(TypeError, match=r"^expected a serializer of confluent-kafka"):
        wrap(serializer)


@pytest.mark.parametrize("option", ["key_serializer", "value_serializer"])
def test_unwrapped_serializer_is_refused_by_the_producer(option: str, client: SchemaRegistryClient) -> None:
    options: Any = {option: AvroSerializer(client, AVRO)}
    with pytest.raises(ConfigError, match=rf"{option} .*aioproducer\.contrib\.schema_registry"):
        Producer("localhost:9092", **options)


def test_serializer_works_with_confluents_mock_registry() -> None:
    mock = SchemaRegistryClient.new_client({"url": "mock://orders"})
    assert value_serializer(AvroSerializer(mock, AVRO)).serialize("orders", [], ORDER)


async def test_value_against_the_schema_is_refused_with_its_place(
    client: SchemaRegistryClient, kafka_cluster: ThreadedCluster
) -> None:
    orders = value_serializer(AvroSerializer(client, AVRO))
    async with Producer(kafka_cluster.bootstrap_servers, value_serializer=orders) as producer:
        with pytest.raises(
            SerializationError, match=r"the value of a record for 'orders' \(dict\)"
        ) as raised:
            await producer.send("orders", {"id": "no number"})
        assert raised.value.__cause__ is not None
        with pytest.raises(SendManyError) as some:
            await producer.send_many("orders", [ORDER, {}, ORDER])
    assert list(some.value.result.failures) == [1]
    assert "the value of record 1 for 'orders' (dict)" in str(some.value.result.failures[1])
    assert len(kafka_cluster.records("orders", 0)) == 2


def test_missing_confluent_kafka_error_has_the_install_command() -> None:
    program = "import sys; sys.modules['confluent_kafka'] = None; import aioproducer.contrib.schema_registry"
    output = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=60)
    assert needs("aioproducer.contrib.schema_registry", "schema-registry") in output.stderr.decode()


KINDS = ["avro", "json", "protobuf"]
MESSAGE = protobuf_order()


@asynccontextmanager
async def asking(url: str, **options: Any) -> AsyncIterator[Any]:
    client = AsyncSchemaRegistryClient({"url": url, **options})
    async with client:
        yield client


async def serializer_of(kind: str, client: Any) -> Any:
    if kind == "avro":
        return await AsyncAvroSerializer(client, AVRO)
    if kind == "json":
        return await AsyncJSONSerializer(JSON_SCHEMA, client)
    return await AsyncProtobufSerializer(MESSAGE, client)


def deserializer_of(kind: str, url: str) -> Any:
    client = SchemaRegistryClient({"url": url})
    if kind == "avro":
        return AvroDeserializer(client)
    if kind == "json":
        return JSONDeserializer(JSON_SCHEMA, schema_registry_client=client)
    return ProtobufDeserializer(MESSAGE, None, client)


@pytest.mark.parametrize("kind", KINDS)
async def test_async_serializers_write_readable_records(
    kind: str, fake: RegistryFake, kafka_cluster: ThreadedCluster
) -> None:
    value = MESSAGE(note="grün") if kind == "protobuf" else ORDER
    async with asking(fake.url) as client:
        serializer = await serializer_of(kind, client)
        options: Any = {
            "key_serializer": key_serializer(serializer),
            "value_serializer": value_serializer(serializer),
        }
        async with Producer(kafka_cluster.bootstrap_servers, **options) as producer:
            with pytest.raises(TypeError, match="key_serializer AsyncRegistrySerializer"):
                _ = producer.send_nowait("orders", value)
            await asyncio.gather(*(producer.send("orders", value, value) for _ in range(3)))
            await producer.send_many("orders", [value, None])
    *sent, last, tombstone = kafka_cluster.records("orders", 0)
    deserializer = deserializer_of(kind, fake.url)
    context = SerializationContext("orders", MessageField.VALUE)
    assert [deserializer(each.value, context) for each in (*sent, last)] == [value] * 4
    assert deserializer(sent[0].key, SerializationContext("orders", MessageField.KEY)) == value
    assert (last.key, tombstone.value) == (None, None)
    assert {schema["subject"] for schema in fake.schemas} == {"orders-key", "orders-value"}


async def test_warm_up_keeps_the_answers_of_the_registry(fake: RegistryFake) -> None:
    async with asking(fake.url) as client:
        orders = value_serializer(await serializer_of("avro", client))
        await orders.warm_up("orders", ORDER)
        asked = list(fake.requests)
        assert asked
        assert await orders.serialize("orders", [], ORDER)
        assert fake.requests == asked


async def test_unreachable_async_registry_error_is_retriable(kafka_cluster: ThreadedCluster) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and never listens
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        async with asking(url, **{"max.retries": 0}) as client:
            orders = value_serializer(await serializer_of("avro", client))
            async with Producer(kafka_cluster.bootstrap_servers, value_serializer=orders) as producer:
                with pytest.raises(SerializerUnavailable, match="the schema registry cannot be reached"):
                    await producer.send("orders", ORDER)
                with pytest.raises(SendManyError) as some:
                    await producer.send_many("orders", [ORDER])
    assert some.value.retriable


async def test_value_that_does_not_fit_fails_alone(
    fake: RegistryFake, kafka_cluster: ThreadedCluster
) -> None:
    async with asking(fake.url) as client:
        orders = value_serializer(await serializer_of("avro", client))
        async with Producer(kafka_cluster.bootstrap_servers, value_serializer=orders) as producer:
            with pytest.raises(SerializationError, match=r"the value of a record for 'orders' \(dict\)"):
                await producer.send("orders", {"id": "no number"})
            with pytest.raises(SendManyError) as some:
                await producer.send_many("orders", [ORDER, {}, ORDER])
    assert list(some.value.result.failures) == [1]


async def test_serializer_that_was_not_awaited_is_refused(fake: RegistryFake) -> None:
    async with asking(fake.url) as client:
        coming: Any = AsyncAvroSerializer(client, AVRO)
        with pytest.raises(TypeError, match=r"expected a serializer of confluent-kafka.*; await it first$"):
            value_serializer(coming)
        bare = await coming
        with pytest.raises(ConfigError, match=r"value_serializer .*aioproducer\.contrib\.schema_registry"):
            Producer("localhost:9092", value_serializer=bare)


async def test_kind_of_the_wrapper_follows_the_serializer(fake: RegistryFake) -> None:
    async def own(value: Any, context: SerializationContext) -> bytes:
        return json.dumps({"of": context.topic, "is": value}).encode()

    async with asking(fake.url) as client:
        assert isinstance(key_serializer(await serializer_of("avro", client)), AsyncRegistrySerializer)
    assert await value_serializer(own).serialize("orders", [], 1) == b'{"of": "orders", "is": 1}'
    blocking = AvroSerializer(SchemaRegistryClient({"url": fake.url}), AVRO)
    assert isinstance(value_serializer(blocking), RegistrySerializer)
