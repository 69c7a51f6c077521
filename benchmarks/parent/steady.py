"""A steady rate over many partitions of several brokers: in-process ones, which count the requests."""

from __future__ import annotations

from typing import Final

from aioproducer.testing import ThreadedCluster
from benchmarks.figures import Run
from benchmarks.parent.process import answer_of
from benchmarks.parent.topics import check_count, stored
from benchmarks.settings import Settings

CHILD: Final = "benchmarks.child"
BROKERS: Final = 3
PARTITIONS: Final = 12
TOPIC: Final = "steady"


def measure(client: str, settings: Settings) -> Run:
    """Return a client's figures, its requests among them."""
    with ThreadedCluster(brokers=BROKERS, topics={TOPIC: PARTITIONS}) as cluster:
        told = Run.loads(answer_of(CHILD, [client, cluster.bootstrap_servers, TOPIC, settings.dumps()]))
        told.figures["requests"] = 1_000 * cluster.request_count("produce") / told.sent
        partitions = [(TOPIC, partition) for partition in range(PARTITIONS)]
        check_count(told.sent, stored(cluster.bootstrap_servers, partitions))
    return told
