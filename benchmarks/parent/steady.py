"""A constant rate to many partitions of three in-process brokers, with a slow broker or zones if set."""

from __future__ import annotations

from typing import Final

from aioproducer._core.protocol.metadata import MetadataResponse
from aioproducer._core.protocol.schema import decode_response, encode_response, read_correlation_id
from aioproducer.testing import ThreadedCluster
from benchmarks.figures import Run
from benchmarks.parent.process import answer_of
from benchmarks.parent.topics import check_count, stored
from benchmarks.settings import Settings, Work

CHILD: Final = "benchmarks.child"
BROKERS: Final = 3
PARTITIONS: Final = 12
TOPIC: Final = "steady"
SLOW_NODE: Final = BROKERS
"""Node id of the slow broker, which leads every third partition."""
OTHERS_S: Final = 0.001
"""Delay of each Produce request at the other brokers, in seconds, as with a disk and replicas. Without a delay, an
in-process broker answers at once."""
METADATA_VERSION: Final = 13
"""Version of Metadata that the producer and the in-process brokers agree on."""
LENGTH_BYTES: Final = 4


def measure(client: str, settings: Settings) -> Run:
    """Return a client's figures, with its requests and the shares of a slow broker and of other zones."""
    with ThreadedCluster(brokers=BROKERS, topics={TOPIC: PARTITIONS}) as cluster:
        if settings.slow_ms:
            slow_down(cluster, settings.slow_ms / 1_000)
        zones = cluster.on("metadata", times=None)
        if settings.work is Work.ZONES:
            slow_down(cluster, OTHERS_S)
            zones.rewrite(with_zones)
        told = Run.loads(answer_of(CHILD, [client, cluster.bootstrap_servers, TOPIC, settings.dumps()]))
        zones.remove()  # other clients use other versions
        told.figures["requests"] = 1_000 * cluster.request_count("produce") / told.sent
        partitions = [(TOPIC, partition) for partition in range(PARTITIONS)]
        check_count(told.sent, stored(cluster.bootstrap_servers, partitions))
        if settings.slow_ms:
            of_slow = stored(cluster.bootstrap_servers, partitions[SLOW_NODE - 1 :: BROKERS])
            told.figures["slow_share"] = 100 * of_slow / told.sent
        if settings.work is Work.ZONES:  # records have one size
            nearby = stored(cluster.bootstrap_servers, partitions[::BROKERS])
            told.figures["zone_share"] = 100 * (1 - nearby / told.sent)
    return told


def slow_down(cluster: ThreadedCluster, slow_s: float) -> None:
    """Delay each Produce request, and later requests of the same connection, as in Kafka."""
    for node in range(1, BROKERS + 1):
        takes_s = slow_s if node == SLOW_NODE else OTHERS_S
        cluster.on("produce", node=node, times=None).delay(takes_s)


def with_zones(answer: bytes) -> bytes:
    """Return a Metadata response with a different zone for each broker."""
    payload = answer[LENGTH_BYTES:]
    metadata, _ = decode_response(MetadataResponse, METADATA_VERSION, payload)
    for broker in metadata.brokers:
        broker.rack = f"zone-{broker.node_id}"
    return bytes(encode_response(metadata, METADATA_VERSION, read_correlation_id(payload)))
