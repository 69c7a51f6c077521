"""Memory of a client with a slow broker, so that the client's memory for unsent records is always full."""

from __future__ import annotations

from typing import Final

from aioproducer.testing import ThreadedCluster
from benchmarks.figures import Run
from benchmarks.parent.process import answer_of
from benchmarks.parent.topics import check_count, stored
from benchmarks.settings import PARTITIONS, Settings

CHILD: Final = "benchmarks.child"
TOPIC: Final = "memory"


def measure(client: str, settings: Settings) -> Run:
    """Return a client's figures with an in-process broker that delays each Produce request."""
    with ThreadedCluster(topics={TOPIC: PARTITIONS}) as cluster:
        cluster.on("produce", times=None).delay(settings.slow_ms / 1_000)
        told = Run.loads(answer_of(CHILD, [client, cluster.bootstrap_servers, TOPIC, settings.dumps()]))
        partitions = [(TOPIC, partition) for partition in range(PARTITIONS)]
        check_count(told.sent, stored(cluster.bootstrap_servers, partitions))
    return told
