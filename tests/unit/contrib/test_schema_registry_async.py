from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AsyncAvroSerializer, AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import AsyncJSONSerializer, JSONDeserializer
from confluent_kafka.schema_registry.protobuf import AsyncProtobufSerializer, ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from aioproducer import ConfigError, Producer, SendManyError, SerializationError, SerializerUnavailable
from aioproducer.contrib.schema_registry import (
    AsyncRegistrySerializer,
    RegistrySerializer,
    key_serializer,
    value_serializer,
)
from aioproducer.testing import ThreadedCluster
from tests.unit.contrib.registry_fake import RegistryFake, registry
from tests.unit.contrib.test_schema_registry import AVRO, JSON_SCHEMA, ORDER, protobuf_order

KINDS = ["avro", "json", "protobuf"]
MESSAGE = protobuf_order()


@pytest.fixture
def fake() -> Iterator[RegistryFake]:
    with registry() as running:
        yield running


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


async def test_registry_that_is_away_is_retriable(kafka_cluster: ThreadedCluster) -> None:
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
        with pytest.raises(TypeError, match=r"a serializer of confluent-kafka is needed.*; await it first$"):
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
