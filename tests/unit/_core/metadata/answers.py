"""Short ways to write down answers to metadata requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aioproducer._core.metadata.snapshot import MetadataSnapshot
from aioproducer._core.protocol.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer.errors import BrokerError

AN_ID = bytes(range(16))
ANOTHER_ID = bytes(range(1, 17))


def port_of(node_id: int) -> int:
    return 9000 + node_id


def partition(index: int, leader: int, epoch: int = 0) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index, leader_id=leader, leader_epoch=epoch, replica_nodes=(), isr_nodes=()
    )


def topic(
    name: str,
    *leaders: int | tuple[int, int],
    topic_id: bytes = AN_ID,
    error: type[BrokerError] | None = None,
) -> MetadataResponseTopic:
    """A topic with so many partitions as *leaders*: node ids, or pairs of those and leader epochs."""
    pairs = [each if isinstance(each, tuple) else (each, 0) for each in leaders]
    return MetadataResponseTopic(
        name=name,
        topic_id=topic_id,
        error_code=0 if error is None else error.code,
        partitions=[partition(index, *pair) for index, pair in enumerate(pairs)],
    )


def refused(name: str, error: type[BrokerError]) -> MetadataResponseTopic:
    return topic(name, topic_id=NO_TOPIC_ID, error=error)


def answer(*topics: MetadataResponseTopic, nodes: Iterable[int] = (1, 2, 3)) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=each, host=f"b{each}", port=port_of(each)) for each in nodes]
    return MetadataResponse(brokers=brokers, topics=list(topics), cluster_id="c", controller_id=1)


def after(
    snapshot: MetadataSnapshot,
    *topics: MetadataResponseTopic,
    asked: Sequence[str] | None = None,
    complete: bool = True,
    nodes: Iterable[int] = (1, 2, 3),
    now: float = 1.0,
) -> MetadataSnapshot:
    """Return *snapshot* updated by a response with *topics*, which were requested by default."""
    names = [str(each.name) for each in topics] if asked is None else asked
    return snapshot.with_answer(answer(*topics, nodes=nodes), asked=names, complete=complete, now=now)


def leaders(snapshot: MetadataSnapshot, name: str) -> list[int]:
    return [each.leader for each in snapshot.topics[name].partitions]
