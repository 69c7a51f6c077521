"""Topics recreated with fewer partitions: records for the missing partitions fail soon, with the reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer import DeliveryTimeout, Producer, SendManyError
from aioproducer._core.protocol.metadata import MetadataResponse
from aioproducer._core.protocol.schema import decode_response, encode_response, read_correlation_id
from aioproducer.errors import NotEnoughReplicas, UnknownTopicOrPartition
from aioproducer.testing import Cluster
from aioproducer.testing.faults import Rewrite
from tests.scenarios.rig import (
    TOPIC,
    cluster as open_cluster,
    now,
    producing,
    scenario,
    speak_no_newer,
    values,
)

BEFORE = 6
AFTER = 2
GONE = 5
FAILS_WITHIN_S = 10.0
PLAIN: dict[str, Any] = {"enable_idempotence": False, "acks": "all"}
BOTH = pytest.mark.parametrize("options", [{}, PLAIN], ids=["idempotent", "plain"])
WITHOUT_IDS = 9
"""The last version of Metadata without topic ids."""


def shrink(cluster: Cluster, partitions: int = AFTER) -> None:
    cluster.delete_topic(TOPIC)
    cluster.create_topic(TOPIC, partitions)


def with_partitions(count: int, version: int = MetadataResponse.VERSIONS[1]) -> Rewrite:
    """Return a rewrite to an answer with the first *count* partitions of each topic."""

    def rewrite(frame: bytes) -> bytes:
        answer, _ = decode_response(MetadataResponse, version, frame[4:])
        for topic in answer.topics:
            if topic.name == TOPIC:
                del topic.partitions[count:]
        return bytes(encode_response(answer, version, read_correlation_id(frame[4:])))

    return rewrite


async def failure_of(sending: Any) -> BaseException:
    began_at = now()
    with pytest.raises(Exception) as failed:
        await sending
    assert now() - began_at <= FAILS_WITHIN_S
    return failed.value


async def wrote_everywhere(producer: Producer) -> None:
    await asyncio.gather(*(producer.send(TOPIC, b"before", partition=each) for each in range(BEFORE)))


def assert_gone(error: BaseException, partition: int = GONE) -> None:
    assert isinstance(error, UnknownTopicOrPartition)
    assert f"{TOPIC}-{partition}: no such partition" in str(error)
    assert "2 partitions, 0 to 1" in str(error)


@BOTH
@pytest.mark.parametrize("brokers", [1, 3])
@scenario
async def test_record_for_a_deleted_partition_fails(brokers: int, options: dict[str, Any]) -> None:
    async with producing(brokers, BEFORE, **options) as (producer, cluster):
        await wrote_everywhere(producer)
        shrink(cluster)
        error = await failure_of(producer.send(TOPIC, b"late", partition=GONE))
        assert_gone(error)
        assert not error.possibly_persisted  # type: ignore[attr-defined]
        for partition in range(AFTER):
            await producer.send(TOPIC, b"new", partition=partition)
        assert [values(cluster, each) for each in range(AFTER)] == [[b"new"], [b"new"]]


@BOTH
@scenario
async def test_records_fail_in_every_state_of_their_batch(options: dict[str, Any]) -> None:
    """In flight, behind that, in an open batch that lingers, and sent by other calls than `send`."""
    async with producing(1, BEFORE, linger_ms=300, **options) as (producer, cluster):
        await wrote_everywhere(producer)
        cluster.on("produce", topic=TOPIC, partition=GONE, times=None).answer(NotEnoughReplicas)
        backing_off = [producer.send_nowait(TOPIC, b"x" * 5000, partition=GONE) for _ in range(30)]
        await asyncio.sleep(1)
        keys = [b"%d" % number for number in range(600)]
        calls: list[Any] = [
            *backing_off,
            *(producer.send(TOPIC, b"late", partition=GONE) for _ in range(50)),
            producer.send_many(TOPIC, keys, keys=keys),
        ]
        shrink(cluster)
        began_at = now()
        *each, many = await asyncio.gather(*calls, return_exceptions=True)
        assert now() - began_at <= FAILS_WITHIN_S
        for error in each:
            assert_gone(error)
        assert isinstance(many, SendManyError)
        failures = many.result.failures
        assert 200 < len(failures) < 600  # four of six partitions were deleted
        assert {type(error) for error in failures.values()} == {UnknownTopicOrPartition}
        assert producer.metrics()["producer"]["batches_unfinished"] == 0


@scenario
async def test_records_for_any_partition_move_on() -> None:
    for _ in range(5):  # the sticky partition is random
        async with producing(1, BEFORE) as (producer, cluster):
            await wrote_everywhere(producer)
            shrink(cluster)
            _ = await producer.send_many(TOPIC, [b"learns"], partitions=[0])
            for _ in range(20):
                await producer.send(TOPIC, b"anywhere")


@scenario
async def test_record_that_waits_in_a_long_linger_fails_as_well() -> None:
    async with producing(1, BEFORE, linger_ms=60_000) as (producer, cluster):
        await asyncio.gather(
            *(producer.send(TOPIC, b"before", partition=each) for each in range(BEFORE)), producer.flush()
        )
        lingering = producer.send_nowait(TOPIC, b"late", partition=GONE)
        shrink(cluster)
        other = producer.send_nowait(TOPIC, b"new", partition=0)
        await producer.partitions_for("another")
        flushing = asyncio.create_task(producer.flush())
        assert_gone(await failure_of(lingering))
        await other
        await flushing


@scenario
async def test_time_counts_from_the_new_topic() -> None:
    """While the topic does not exist, its records wait."""
    async with (
        open_cluster(1, BEFORE, auto_create_topics=False) as cluster,
        Producer(cluster.bootstrap_servers) as producer,
    ):
        await wrote_everywhere(producer)
        cluster.delete_topic(TOPIC)
        sending = asyncio.create_task(producer.send(TOPIC, b"late", partition=GONE))
        await asyncio.sleep(20)
        assert not sending.done()
        cluster.create_topic(TOPIC, AFTER)
        assert_gone(await failure_of(sending))


@scenario
async def test_partition_that_is_back_in_time_is_written_to() -> None:
    async with producing(1, BEFORE) as (producer, cluster):
        await wrote_everywhere(producer)
        shrink(cluster)
        sending = asyncio.create_task(producer.send(TOPIC, b"late", partition=GONE))
        await asyncio.sleep(3)
        cluster.add_partitions(TOPIC, BEFORE)
        assert (await sending).offset == 0


@BOTH
@pytest.mark.parametrize("brokers", [1, 3])
@scenario
async def test_brokers_without_topic_ids_have_to_agree(
    monkeypatch: pytest.MonkeyPatch, brokers: int, options: dict[str, Any]
) -> None:
    speak_no_newer(monkeypatch, metadata=WITHOUT_IDS, produce=9)
    async with producing(brokers, BEFORE, **options) as (producer, cluster):
        await wrote_everywhere(producer)
        shrink(cluster)
        assert_gone(await failure_of(producer.send(TOPIC, b"late", partition=GONE)))


@scenario
async def test_broker_that_lags_is_not_believed() -> None:
    """The producer has the metadata of the topic before partitions were added."""
    async with producing(3, BEFORE, delivery_timeout_ms=30_000, request_timeout_ms=5_000) as (
        producer,
        cluster,
    ):
        await wrote_everywhere(producer)
        cluster.on("metadata", times=None).rewrite(with_partitions(AFTER))
        cluster.on("produce", topic=TOPIC, partition=GONE, times=None).answer(UnknownTopicOrPartition)
        began_at = now()
        with pytest.raises(DeliveryTimeout):
            await producer.send(TOPIC, b"late", partition=GONE)
        assert now() - began_at >= 30


@scenario
async def test_record_is_written_when_another_broker_has_the_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speak_no_newer(monkeypatch, metadata=WITHOUT_IDS, produce=9)
    async with producing(3, BEFORE) as (producer, cluster):
        await wrote_everywhere(producer)
        cluster.on("metadata", node=1, times=None).rewrite(with_partitions(AFTER, WITHOUT_IDS))
        cluster.on("produce", topic=TOPIC, partition=GONE, times=8).answer(UnknownTopicOrPartition)
        assert (await producer.send(TOPIC, b"late", partition=GONE)).offset == 1


@scenario
async def test_transaction_with_such_a_record_can_only_be_aborted() -> None:
    async with producing(1, BEFORE, acquainted=False, transactional_id="tx") as (producer, cluster):
        async with producer.transaction():
            await wrote_everywhere(producer)
        shrink(cluster)
        await producer.begin_transaction()
        error = await failure_of(producer.send(TOPIC, b"late", partition=GONE))
        assert error.abortable  # type: ignore[attr-defined]
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(TOPIC, b"new", partition=0)
