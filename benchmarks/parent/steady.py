"""A steady rate over many partitions of several brokers: in-process ones, which count requests, and may take their time."""

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
SLOW_NODE: Final = BROKERS
"""The broker that takes its time, if one does: it leads every third partition."""
OTHERS_S: Final = 0.001
"""What the others take then, as a broker with a disk and replicas would; alone in memory they would take nothing."""


def measure(client: str, settings: Settings) -> Run:
    """Return a client's figures, its requests and what went to a slow broker among them."""
    with ThreadedCluster(brokers=BROKERS, topics={TOPIC: PARTITIONS}) as cluster:
        if settings.slow_ms:
            slow_down(cluster, settings.slow_ms / 1_000)
        told = Run.loads(answer_of(CHILD, [client, cluster.bootstrap_servers, TOPIC, settings.dumps()]))
        told.figures["requests"] = 1_000 * cluster.request_count("produce") / told.sent
        partitions = [(TOPIC, partition) for partition in range(PARTITIONS)]
        check_count(told.sent, stored(cluster.bootstrap_servers, partitions))
        if settings.slow_ms:
            of_slow = stored(cluster.bootstrap_servers, partitions[SLOW_NODE - 1 :: BROKERS])
            told.figures["slow_share"] = 100 * of_slow / told.sent
    return told


def slow_down(cluster: ThreadedCluster, slow_s: float) -> None:
    """Let each broker take its time for a Produce request; the later ones of its connection wait as long, as in Kafka."""
    for node in range(1, BROKERS + 1):
        takes_s = slow_s if node == SLOW_NODE else OTHERS_S
        cluster.on("produce", node=node, times=None).delay(takes_s)
