"""Refusals by the broker: too large batches are split, bad records fail alone, other records are sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from aioproducer import (
    ConnectionFailed,
    Producer,
    ProducerError,
    RecordMetadata,
    RecordTooLarge,
    SendManyError,
)
from aioproducer._core.batching.batch import Batch
from aioproducer._core.clock import wall_ms
from aioproducer._core.net.connection import Connection
from aioproducer._core.sender.requests import ResponseHandler
from aioproducer.config import ProducerOptions
from aioproducer.errors import InvalidRecord, InvalidTimestamp, MessageTooLarge, OutOfOrderSequenceNumber
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.conftest import NewTopic
from tests.kafka.readback import read_with_librdkafka

either = pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])


def located(values: list[bytes], sent: list[RecordMetadata]) -> list[tuple[int, int, bytes]]:
    return sorted((where.partition, where.offset, value) for value, where in zip(values, sent, strict=True))


def found(kafka: ApacheKafka, topic: str) -> list[tuple[int, int, bytes | None]]:
    records = read_with_librdkafka(kafka.bootstrap_servers, topic)
    return [(each.partition, each.offset, each.value) for each in records]


@either
async def test_batches_over_the_topic_limit_are_split_in_order(
    kafka: ApacheKafka, new_topic: NewTopic, idempotent: bool
) -> None:
    topic = new_topic(partitions=2, max_message_bytes="3000")
    values = [b"%05d " % number + b"x" * (number % 500) for number in range(3_000)]
    partitions = [number % 2 for number in range(len(values))]
    async with Producer(kafka.bootstrap_servers, enable_idempotence=idempotent) as producer:
        futures = [
            await producer.enqueue(topic, value, partition=partition)
            for value, partition in zip(values, partitions, strict=True)
        ]
        sent = await asyncio.gather(*futures)
        result = await producer.send_many(topic, values, partitions=partitions)
    sent += [each for each in result if isinstance(each, RecordMetadata)]
    in_order = [
        [value for value, number in zip(values, partitions, strict=True) if number == each] for each in (0, 1)
    ]
    log = found(kafka, topic)
    assert log == located(values * 2, sent)
    assert [value for _, _, value in log] == in_order[0] * 2 + in_order[1] * 2


async def test_stored_batch_is_not_stored_again_in_parts(
    kafka: ApacheKafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit was lowered before the retry: the broker does not report the duplicate, it refuses the parts."""
    topic, lost = new_topic(), asyncio.Event()
    take = ResponseHandler.take

    def lose_one(
        handler: ResponseHandler, connection: Connection, batches: Sequence[Batch], *answer: Any
    ) -> None:
        if len(batches[0]) > 1 and not lost.is_set():
            lost.set()
            handler.lost(connection, batches, ConnectionFailed("the answer got lost", written=True))
        else:
            take(handler, connection, batches, *answer)

    monkeypatch.setattr(ResponseHandler, "take", lose_one)
    values = [b"%d" % number * 100 for number in range(8)]
    options: ProducerOptions = {"linger_ms": 50, "retry_backoff_ms": 1_000, "retry_backoff_max_ms": 1_000}
    async with Producer(kafka.bootstrap_servers, **options) as producer:
        await producer.send(topic, b"first")
        futures = [await producer.enqueue(topic, value) for value in values]
        await lost.wait()
        await asyncio.to_thread(kafka.configure_topic, topic, {"max.message.bytes": "400"})
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        await producer.send(topic, b"next")
    assert {type(each) for each in outcomes} == {OutOfOrderSequenceNumber}
    assert all(isinstance(each, ProducerError) and each.possibly_persisted for each in outcomes)
    assert [value for _, _, value in found(kafka, topic)] == [b"first", *values, b"next"]


@either
async def test_record_over_the_topic_limit_fails_alone(
    kafka: ApacheKafka, new_topic: NewTopic, idempotent: bool
) -> None:
    topic = new_topic(max_message_bytes="3000")
    values = [b"%05d" % number for number in range(500)]
    values[77] = values[301] = b"x" * 4_000
    async with Producer(kafka.bootstrap_servers, enable_idempotence=idempotent) as producer:
        futures = [await producer.enqueue(topic, value) for value in values]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        with pytest.raises(SendManyError) as caught:
            await producer.send_many(topic, values)
        after = await producer.send(topic, b"after")
    for failures in (
        {index: each for index, each in enumerate(outcomes) if isinstance(each, ProducerError)},
        caught.value.result.failures,
    ):
        assert failures.keys() == {77, 301}
        assert all(isinstance(each, MessageTooLarge) for each in failures.values())
        assert not any(each.possibly_persisted for each in failures.values())
    good = [value for value in values if len(value) == 5]
    assert [value for _, _, value in found(kafka, topic)] == [*good, *good, b"after"]
    assert after.offset == 2 * len(good)


async def test_record_over_the_client_limit_is_not_sent(kafka: ApacheKafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    async with Producer(kafka.bootstrap_servers, max_request_size=10_000) as producer:
        with pytest.raises(RecordTooLarge, match="max_request_size"):
            await producer.send(topic, b"x" * 10_000)
        with pytest.raises(SendManyError) as caught:
            await producer.send_many(topic, [b"first", b"x" * 10_000, b"last"])
    assert caught.value.result.failures.keys() == {1}
    assert [value for _, _, value in found(kafka, topic)] == [b"first", b"last"]


@either
async def test_record_without_key_fails_alone_in_a_compacted_topic(
    kafka: ApacheKafka, new_topic: NewTopic, idempotent: bool
) -> None:
    topic = new_topic(cleanup_policy="compact")
    keys = [b"key-%d" % number if number % 10 else None for number in range(100)]
    values = [b"%d" % number for number in range(100)]
    async with Producer(kafka.bootstrap_servers, enable_idempotence=idempotent, linger_ms=1_000) as producer:
        futures = [await producer.enqueue(topic, value, key) for value, key in zip(values, keys, strict=True)]
        await producer.flush()
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
    failed = [index for index, each in enumerate(outcomes) if isinstance(each, InvalidRecord)]
    assert failed == list(range(0, 100, 10))
    good = [value for value, key in zip(values, keys, strict=True) if key is not None]
    assert found(kafka, topic) == [(0, offset, value) for offset, value in enumerate(good)]
    assert [each.offset for each in outcomes if isinstance(each, RecordMetadata)] == list(range(len(good)))


@either
async def test_record_with_an_old_timestamp_fails_alone(
    kafka: ApacheKafka, new_topic: NewTopic, idempotent: bool
) -> None:
    topic = new_topic(message_timestamp_before_max_ms="3600000")
    values = [b"%d" % number for number in range(100)]
    timestamps = [1 if number in {0, 50, 99} else wall_ms() for number in range(100)]
    async with Producer(kafka.bootstrap_servers, enable_idempotence=idempotent) as producer:
        with pytest.raises(SendManyError) as caught:
            await producer.send_many(topic, values, timestamps_ms=timestamps)
    failures = caught.value.result.failures
    assert failures.keys() == {0, 50, 99}
    assert all(
        isinstance(each, InvalidTimestamp) and not each.possibly_persisted for each in failures.values()
    )
    good = [value for index, value in enumerate(values) if index not in failures]
    assert found(kafka, topic) == [(0, offset, value) for offset, value in enumerate(good)]


async def test_partitions_with_epochs_of_their_own_share_a_request(
    kafka: ApacheKafka, new_topic: NewTopic
) -> None:
    """A refused record bumps the epoch of its partition; other partitions keep theirs under the same producer id."""
    topic = new_topic(partitions=3, max_message_bytes="2000")
    rounds = 20
    async with Producer(kafka.bootstrap_servers, linger_ms=5) as producer:
        for number in range(rounds):
            sending = [
                asyncio.create_task(producer.send(topic, b"%02d" % number, partition=partition))
                for partition in range(3)
            ]
            with pytest.raises(MessageTooLarge):
                await producer.send(topic, b"x" * 4_000, partition=number % 2)
            await asyncio.gather(*sending)
        assert producer._engine is not None
        queues = producer._engine.accumulator.topic(topic)
        identities = [queues[partition].sequences.identity for partition in range(3)]
    assert len({identity.producer_id for identity in identities if identity is not None}) == 1
    assert [identity.epoch for identity in identities if identity is not None] == [10, 10, 0]
    assert found(kafka, topic) == [
        (partition, number, b"%02d" % number) for partition in range(3) for number in range(rounds)
    ]
