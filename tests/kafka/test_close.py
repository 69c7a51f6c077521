"""The log after `close`: all acknowledged records, and an exact count of the others."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import Producer, ProducerClosed, RecordMetadata
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.conftest import NewTopic
from tests.kafka.readback import read_with_librdkafka

VALUES = [b"%05d" % number for number in range(20_000)]


async def enqueue_all(producer: Producer, topic: str) -> list[asyncio.Future[RecordMetadata]]:
    return [await producer.enqueue(topic, value, partition=0) for value in VALUES]


async def test_close_waits_for_all_records(kafka: ApacheKafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer = Producer(kafka.bootstrap_servers, linger_ms=10_000)
    await producer.start()
    futures = await enqueue_all(producer, topic)
    assert await producer.close() == 0
    assert [future.result().offset for future in futures] == list(range(len(VALUES)))
    assert [each.value for each in read_with_librdkafka(kafka.bootstrap_servers, topic)] == VALUES
    with pytest.raises(ProducerClosed):
        await producer.send(topic, b"too late")
    assert await producer.close() == 0


async def test_flush_returns_after_the_done_callbacks(kafka: ApacheKafka, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=6)
    called: list[object] = []
    async with Producer(kafka.bootstrap_servers) as producer:
        for done in range(10_000, 60_000, 10_000):
            for number in range(10_000):
                future = await producer.enqueue(topic, b"%d" % number, partition=number % 6)
                future.add_done_callback(called.append)
            await producer.flush()
            assert len(called) == done


async def test_close_fails_unsent_records_when_its_timeout_is_zero(
    kafka: ApacheKafka, new_topic: NewTopic
) -> None:
    topic = new_topic()
    producer = Producer(kafka.bootstrap_servers, linger_ms=10_000)
    await producer.start()
    sent = await producer.send_many(topic, [b"acknowledged"])
    futures = [await producer.enqueue(topic, b"lingering") for _ in range(3)]
    assert await producer.close(0) == 3
    for future in futures:
        with pytest.raises(ProducerClosed) as caught:
            future.result()
        assert not caught.value.possibly_persisted
    assert sent.delivered == 1
    [record] = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert record.value == b"acknowledged"


@pytest.mark.parametrize("batches_first", [0, 1, 20])
async def test_close_reports_possible_persistence_of_every_record(
    kafka: ApacheKafka, new_topic: NewTopic, batches_first: int
) -> None:
    topic = new_topic()
    producer = Producer(kafka.bootstrap_servers, linger_ms=0)
    await producer.start()
    futures = await enqueue_all(producer, topic)
    for future in dict.fromkeys(futures[: batches_first * 1_000 : 1_000]):
        await future
    failed = await producer.close(0)
    errors = {index: error for index, each in enumerate(futures) if (error := each.exception()) is not None}
    assert failed == len(errors)
    assert all(isinstance(error, ProducerClosed) for error in errors.values())

    records = [each.value for each in read_with_librdkafka(kafka.bootstrap_servers, topic)]
    assert records == VALUES[: len(records)]
    acknowledged = [index for index in range(len(VALUES)) if index not in errors]
    assert [futures[index].result().offset for index in acknowledged] == acknowledged
    assert len(records) >= len(acknowledged)
    persisted = [error for index, error in errors.items() if index < len(records)]
    assert all(isinstance(each, ProducerClosed) and each.possibly_persisted for each in persisted)


async def test_cancelled_close_fails_the_remaining_records(kafka: ApacheKafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer = Producer(kafka.bootstrap_servers)
    await producer.start()
    futures = await enqueue_all(producer, topic)
    closing = asyncio.create_task(producer.close())
    await next(future for future in futures if not future.done())  # it closes by then
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert producer.state == "closed"
    assert all(future.done() for future in futures)
    delivered = [future.result().offset for future in futures if future.exception() is None]
    assert delivered == list(range(len(delivered)))
    records = [each.value for each in read_with_librdkafka(kafka.bootstrap_servers, topic)]
    assert records == VALUES[: len(records)]
    assert len(records) >= len(delivered)
