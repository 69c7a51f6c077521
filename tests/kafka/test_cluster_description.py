"""`Producer.cluster` on a real Apache Kafka, and `purge` during writes."""

from __future__ import annotations

import asyncio

from aioproducer import Producer, RecordPurged
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.conftest import NewTopic


async def test_describe_cluster_lists_brokers_leaders_and_replicas(three_brokers: ApacheKafka) -> None:
    topic = "described"
    three_brokers.create_topic(topic, partitions=2)
    async with Producer(three_brokers.bootstrap_servers) as producer:
        seen = await producer.cluster()
    assert set(seen.brokers) == {1, 2, 3}
    assert seen.cluster_id is not None
    assert seen.controller_id in seen.brokers
    assert [each.partition for each in seen.topics[topic].partitions] == [0, 1]
    for each in seen.topics[topic].partitions:
        assert each.leader == three_brokers.leader(topic, each.partition)
        assert set(each.replicas) == set(each.in_sync) == {1, 2, 3}


async def test_purged_records_are_not_in_the_log(kafka: ApacheKafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    async with Producer(kafka.bootstrap_servers, linger_ms=50, batch_size=1_000) as producer:
        futures = []
        for number in range(2_000):
            futures.append(await producer.enqueue(topic, b"%d" % number))
            if number % 500 == 499:
                producer.purge()
                await asyncio.sleep(0)
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        last = await producer.send(topic, b"last")
    purged = [each for each in outcomes if isinstance(each, RecordPurged)]
    assert purged
    assert not any(each.possibly_persisted for each in purged)
    assert last.offset == len(outcomes) - len(purged)
