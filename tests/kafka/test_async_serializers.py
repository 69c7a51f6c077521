"""An asynchronous serializer of confluent-kafka, a registry over HTTP, and a real broker."""

from __future__ import annotations

import asyncio

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AsyncAvroSerializer, AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from aioproducer import Producer
from aioproducer.contrib.schema_registry import value_serializer
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka
from tests.unit.contrib.registry_fake import registry

SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
RECORDS = 500


async def test_awaited_schemas_keep_the_order_of_the_calls(kafka: ApacheKafka, topic: str) -> None:
    with registry() as fake:
        async with AsyncSchemaRegistryClient({"url": fake.url}) as client:
            orders = value_serializer(await AsyncAvroSerializer(client, SCHEMA))
            async with Producer(kafka.bootstrap_servers, value_serializer=orders) as producer:
                await asyncio.gather(
                    *(producer.send(topic, {"id": number}, partition=0) for number in range(RECORDS))
                )
                bulk = [{"id": number} for number in range(RECORDS, 2 * RECORDS)]
                await producer.send_many(topic, bulk, partition=0)
        read = AvroDeserializer(SchemaRegistryClient({"url": fake.url}))
        context = SerializationContext(topic, MessageField.VALUE)
        records = read_with_librdkafka(kafka.bootstrap_servers, topic)
        assert [read(each.value, context)["id"] for each in records] == list(range(2 * RECORDS))
        assert len(fake.schemas) == 1
