"""Records are sent by topic id if the broker requires ids (KIP-516); a recreated topic has another id."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer import DeliveryTimeout, Producer
from aioproducer._core.protocol.produce import BY_NAME
from aioproducer.config import ProducerOptions
from aioproducer.errors import NotEnoughReplicas, UnknownTopicId
from aioproducer.testing import Cluster
from tests.scenarios.faults.hostile import of_another_topic, with_topic_id
from tests.scenarios.rig import (
    TOPIC,
    cluster as open_cluster,
    now,
    producing,
    scenario,
    settle,
    speak_no_newer,
    values,
)

BEFORE_IDS = 9
"""The last version of Metadata that has none."""
PLAIN: ProducerOptions = {"enable_idempotence": False, "acks": "all"}
BOTH = pytest.mark.parametrize("options", [{}, PLAIN], ids=["idempotent", "plain"])


def make_anew(cluster: Cluster, partitions: int = 1) -> None:
    cluster.delete_topic(TOPIC)
    cluster.create_topic(TOPIC, partitions)


def retries(producer: Producer) -> Any:
    return producer.metrics()["producer"]["record_retry_total"]


@BOTH
@scenario
async def test_single_record_goes_to_a_recreated_topic_at_once(options: ProducerOptions) -> None:
    async with producing(linger_ms=0, **options) as (producer, cluster):
        await producer.send(TOPIC, b"old")
        make_anew(cluster)
        began_at = now()
        sent = await producer.send(TOPIC, b"new")
        assert now() - began_at < 0.02  # without a backoff: the cause of the refusal is known to be over
        assert (sent.offset, values(cluster)) == (0, [b"new"])
        assert retries(producer) == 1  # the old id was refused


@scenario
async def test_unacknowledged_records_survive_a_stale_topic_id() -> None:
    async with producing(linger_ms=0, acks=0) as (producer, cluster):
        await producer.send(TOPIC, b"old")
        await cluster.wait_for_records(TOPIC, 0, 1)
        make_anew(cluster)
        for number in range(3):
            await producer.send(TOPIC, b"%d" % number)
        await producer.flush()
        await cluster.wait_for_records(TOPIC, 0, 3)
        assert values(cluster) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("versions", [{"produce": BY_NAME}, {"metadata": BEFORE_IDS}])
@scenario
async def test_produce_uses_topic_names_without_ids(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, int]
) -> None:
    speak_no_newer(monkeypatch, **versions)
    async with producing(linger_ms=0) as (producer, cluster):
        await producer.send(TOPIC, b"old")
        make_anew(cluster)
        assert (await producer.send(TOPIC, b"new")).offset == 0
        assert retries(producer) == 0


@BOTH
@scenario
async def test_records_under_load_keep_their_order(options: ProducerOptions) -> None:
    async with producing(partitions=2, **options) as (producer, cluster):
        for number in range(1_000):
            _ = await producer.enqueue(TOPIC, b"%d" % number, partition=number % 2)
            if number % 10 == 0:
                await asyncio.sleep(0.001)
            if number == 500:
                make_anew(cluster, 2)
        await producer.flush()
        for partition in range(2):
            stored = [int(value or b"") for value in values(cluster, partition)]
            assert stored == list(range(stored[0], 1_000, 2))
            assert stored[0] <= 502


@scenario
async def test_lagging_broker_is_retried_until_it_has_the_topic_id() -> None:
    async with producing(linger_ms=0) as (producer, cluster):
        await producer.send(TOPIC, b"before")
        cluster.on("produce", times=3).answer(UnknownTopicId)
        await producer.send(TOPIC, b"behind")
        assert values(cluster) == [b"before", b"behind"]
        assert retries(producer) == 3


@scenario
async def test_records_for_a_deleted_topic_fail_at_their_deadline() -> None:
    async with (
        open_cluster(auto_create_topics=False) as cluster,
        Producer(cluster.bootstrap_servers, request_timeout_ms=1_000, delivery_timeout_ms=2_000) as producer,
    ):
        await producer.send(TOPIC, b"old")
        cluster.delete_topic(TOPIC)
        began_at = now()
        with pytest.raises(DeliveryTimeout, match="UnknownTopicId"):
            await producer.send(TOPIC, b"late")
        assert 2 <= now() - began_at < 2.2


@scenario
async def test_late_answer_of_a_deleted_topic_keeps_the_order() -> None:
    """The leader of a recreated log accepts any first sequence."""
    async with producing(brokers=2, partitions=2, linger_ms=0) as (producer, cluster):
        for partition in range(2):
            await producer.send(TOPIC, b"before", partition=partition)
        cluster.on("produce", node=1).delay(0.5, before_append=False)
        late = producer.send_nowait(TOPIC, b"old", partition=0)
        await settle()
        make_anew(cluster, 2)
        await producer.send(TOPIC, b"elsewhere", partition=1)  # learns the new id
        await late
        cluster.on("produce", node=1).answer(NotEnoughReplicas)
        sent = []
        for number in range(6):
            sent.append(producer.send_nowait(TOPIC, b"%d" % number, partition=0))
            await asyncio.sleep(0)
        await asyncio.gather(*sent)
        assert values(cluster) == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("behind", [1, 2])
@scenario
async def test_metadata_with_an_old_id_is_requested_elsewhere(behind: int) -> None:
    async with producing(brokers=2, partitions=2, linger_ms=0) as (producer, cluster):
        for partition in range(2):
            await producer.send(TOPIC, b"before", partition=partition)
        old_id = cluster._state.topics[TOPIC].topic_id
        make_anew(cluster, 2)
        cluster.on("metadata", node=behind, times=None).rewrite(with_topic_id(old_id))
        began_at = now()
        await asyncio.gather(*(producer.send(TOPIC, b"new", partition=partition) for partition in range(2)))
        assert now() - began_at < 1.0


@scenario
async def test_refusal_of_an_unrequested_topic_is_ignored() -> None:
    async with producing(linger_ms=0) as (producer, cluster):
        await producer.send(TOPIC, b"before")
        cluster.on("produce").rewrite(of_another_topic)
        await producer.send(TOPIC, b"behind")
        assert set(cluster._state.topics) == {TOPIC, "acquaintance"}
