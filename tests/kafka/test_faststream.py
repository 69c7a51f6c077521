"""FastStream with this producer on a real Kafka: other clients read the results of its calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from faststream.kafka import KafkaBroker, KafkaMessage, KafkaPublishMessage
from faststream.middlewares import AckPolicy, BaseMiddleware
from pydantic import BaseModel

from aioproducer import Producer, RecordTooLarge, SendManyError, SendManyResult
from aioproducer.compat.aiokafka import group_metadata_of
from aioproducer.contrib.faststream import PublishWith
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import Record, await_records, read_with_librdkafka

NewTopic = Callable[[int], str]


class Order(BaseModel):
    number: int


@asynccontextmanager
async def running(kafka: ApacheKafka, **options: Any) -> AsyncIterator[tuple[Producer, KafkaBroker]]:
    async with Producer(kafka.bootstrap_servers, **options) as producer:
        yield (
            producer,
            KafkaBroker(kafka.bootstrap_servers, middlewares=[PublishWith(producer)], consumer_only=True),
        )


def offsets(record: Any) -> dict[tuple[str, int], int]:
    return {(record.topic, record.partition): record.offset + 1}


def values(records: list[Record]) -> list[bytes | None]:
    return [each.value for each in records]


async def read(kafka: ApacheKafka, topic: str, count: int) -> list[Record]:
    return await asyncio.to_thread(
        await_records, kafka.bootstrap_servers, topic, lambda found: len(found) >= count,
        isolation_level="read_committed",
    )  # fmt: skip


async def test_publish_returns_the_outcome_of_a_record(kafka: ApacheKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    async with running(kafka) as (_, broker), broker:
        await broker.start()
        first = await broker.publish(Order(number=1), topic, key=b"k", headers={"h": "v"}, correlation_id="c")
        assert (first.topic, first.partition, first.offset) == (topic, 0, 0)
        future = await broker.publish("text", topic, no_confirm=True)
        assert (await future).offset == 1
        await broker.publish(None, topic, key=b"k")
        with pytest.raises(RecordTooLarge):
            await broker.publish(bytes(2_000_000), topic)
    one, two, three = await read(kafka, topic, 3)
    assert (one.key, one.value) == (b"k", b'{"number":1}')
    assert dict(one.headers) == {"content-type": b"application/json", "correlation_id": b"c", "h": b"v"}
    assert (two.value, dict(two.headers)["content-type"]) == (b"text", b"text/plain")
    assert (three.key, three.value) == (b"k", None)


async def test_batch_returns_the_outcome_of_each_record(kafka: ApacheKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    async with running(kafka) as (_, broker), broker:
        await broker.start()
        result: Any = await broker.publish_batch(b"a", KafkaPublishMessage(b"b", key=b"k"), topic=topic)
        assert isinstance(result, SendManyResult)
        assert [result.offset(each) for each in (0, 1)] == [0, 1]
        with pytest.raises(SendManyError) as caught:
            await broker.publish_batch(b"c", bytes(2_000_000), b"d", topic=topic)
        assert list(caught.value.result.failures) == [1]
        assert caught.value.result.delivered == 2
        futures: Any = await broker.publish_batch(b"e", b"f", topic=topic, no_confirm=True)
        assert [(await each).offset for each in futures] == [4, 5]
        large: Any = await broker.publish_batch(*[bytes(1_000)] * 3_000, topic=topic)
        assert large.delivered == 3_000
    found = await read(kafka, topic, 3_006)
    assert values(found[:6]) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert found[1].key == b"k"


async def test_handlers_publish_in_a_transaction_with_their_offsets(
    kafka: ApacheKafka, new_topic: NewTopic
) -> None:
    """The first attempt at the third order fails: its transaction is aborted and the order is read again."""
    orders, parcels, bills = new_topic(1), new_topic(1), new_topic(1)
    attempts: list[int] = []
    done = asyncio.Event()
    async with running(kafka, transactional_id=orders) as (producer, broker):

        @broker.subscriber(orders, group_id=orders, auto_offset_reset="earliest", ack_policy=AckPolicy.MANUAL)
        async def ship(order: Order, message: KafkaMessage) -> None:
            attempts.append(order.number)
            record, consumer = message.raw_message, message.consumer
            group = group_metadata_of(consumer)
            try:
                async with producer.transaction() as transaction:
                    await broker.publish(f"parcel {order.number}", parcels)
                    if attempts == [1, 2, 3]:
                        raise ValueError("no stock")  # noqa: TRY301 - as a service does
                    await broker.publish(f"bill {order.number}", bills)
                    await transaction.send_offsets(offsets(record), group)
            except ValueError:
                await message.nack()  # read it again
            if order.number == 5:
                done.set()

        async with Producer(kafka.bootstrap_servers) as other:
            await other.send_many(orders, [b'{"number": %d}' % number for number in range(1, 6)])
        async with broker:
            await broker.start()
            async with asyncio.timeout(40):
                await done.wait()
    assert values(await read(kafka, parcels, 5)) == [b"parcel %d" % each for each in range(1, 6)]
    assert values(await read(kafka, bills, 5)) == [b"bill %d" % each for each in range(1, 6)]
    assert len(await asyncio.to_thread(read_with_librdkafka, kafka.bootstrap_servers, parcels)) == 6
    assert attempts == [1, 2, 3, 3, 4, 5]


async def test_publishers_and_other_middlewares_work(kafka: ApacheKafka, new_topic: NewTopic) -> None:
    source, sink = new_topic(1), new_topic(1)
    seen: list[str] = []

    class Watching(BaseMiddleware[Any, Any]):
        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            seen.append(cmd.destination)
            return await call_next(cmd)

    async with running(kafka) as (producer, _):
        broker = KafkaBroker(
            kafka.bootstrap_servers, middlewares=[Watching, PublishWith(producer)], consumer_only=True
        )

        @broker.subscriber(source, auto_offset_reset="earliest")
        @broker.publisher(sink)
        async def answer(body: str) -> str:
            return body.upper()

        async with broker:
            await broker.start()
            await broker.publish("order", source)
            assert values(await read(kafka, sink, 1)) == [b"ORDER"]
    assert seen == [source, sink]
