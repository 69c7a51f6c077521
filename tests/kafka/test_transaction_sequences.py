"""The broker for tests answers transactional producers as Apache Kafka does, and lets readers see the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aioproducer.testing import ThreadedCluster
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka
from tests.kafka.transaction_sequences import SEQUENCES, Recorder, RequestSequence

PARTITIONS = 2


@pytest.fixture(scope="module", params=[1, 2], ids=["TV1", "TV2"])
def both(brokers: Callable[[int], ApacheKafka], request: pytest.FixtureRequest) -> tuple[ApacheKafka, int]:
    """A real broker of each transaction version, with the version."""
    return brokers(request.param), request.param


def seen(bootstrap_servers: str, topic: str) -> dict[str, list[tuple[int, int, bytes | None]]]:
    """Return the visible records by isolation level; gaps in offsets are markers."""
    return {
        level: [
            (record.partition, record.offset, record.value)
            for record in read_with_librdkafka(bootstrap_servers, topic, isolation_level=level)
        ]
        for level in ("read_uncommitted", "read_committed")
    }


async def told(bootstrap_servers: str, sequence: RequestSequence) -> list[tuple[str, int, int]]:
    """Return the answers to a sequence; abort the transaction that it leaves open."""
    recorder = Recorder(bootstrap_servers, transactional_id=sequence.__name__, topic=sequence.__name__)
    await sequence(recorder)
    last = await recorder.producer()
    assert await last.init() == 0
    await recorder.close()
    return recorder.told


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda sequence: sequence.__name__)
async def test_cluster_answers_a_sequence_as_apache_kafka(
    both: tuple[ApacheKafka, int], sequence: RequestSequence
) -> None:
    kafka, version = both
    topic = sequence.__name__
    kafka.create_topic(topic, PARTITIONS)
    with ThreadedCluster(
        topics={topic: PARTITIONS}, auto_create_topics=False, transaction_version=version
    ) as cluster:
        ours = await told(cluster.bootstrap_servers, sequence)
        assert ours == await told(kafka.bootstrap_servers, sequence)
        assert seen(cluster.bootstrap_servers, topic) == seen(kafka.bootstrap_servers, topic)
