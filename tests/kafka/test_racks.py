"""Rack-aware partitioning (KIP-1123) on three brokers, each in a rack of its own."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from aioproducer import Producer
from tests.kafka.apache.broker import ApacheKafka


@pytest.mark.parametrize("rack", ["rack-2", "elsewhere"])
async def test_records_without_a_key_go_to_leaders_in_the_rack(three_brokers: ApacheKafka, rack: str) -> None:
    topic = f"racks-{uuid.uuid4()}"
    await asyncio.to_thread(three_brokers.create_topic, topic, partitions=6)
    async with Producer(
        three_brokers.bootstrap_servers, client_rack=rack, partitioner_rack_aware=True, batch_size=0
    ) as producer:
        sent = [await producer.send(topic, b"v" * 100) for _ in range(60)]
        many = await producer.send_many(topic, [b"v" * 20_000] * 60)
        keyed = {(await producer.send(topic, b"v", key=b"%d" % number)).partition for number in range(60)}
        cluster = await producer.cluster()
    leaders = {each.partition: each.leader for each in cluster.topics[topic].partitions}
    used = {leaders[each.partition] for each in (*sent, *many)}
    racks = {cluster.brokers[node_id].rack for node_id in used if node_id is not None}
    assert racks == ({"rack-2"} if rack == "rack-2" else {"rack-1", "rack-2", "rack-3"})
    assert len({leaders[partition] for partition in keyed}) == 3
