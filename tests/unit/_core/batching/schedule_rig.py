"""A schedule with the queues of a topic."""

from __future__ import annotations

from typing import Any

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.batching.schedule import BrokerLatencies, Schedule
from aioproducer._core.batching.topic import TopicQueues
from aioproducer._core.idempotence import IdentityKeeper
from aioproducer._core.records.columns import BATCH_OVERHEAD
from aioproducer.types import TopicPartition
from tests.unit.floor_rig import TOPIC, batching_settings

NOW = 100.0
ALL = 2**31


class Admitting(IdentityKeeper):
    """Keeper that admits some partitions, as a transaction does."""

    def __init__(self, *partitions: int) -> None:
        super().__init__(bumps_partitions=False)
        self.admitted = partitions
        self.wanted: list[int] = []

    def admits(self, where: TopicPartition) -> bool:
        return where.partition in self.admitted

    def want(self, where: TopicPartition) -> None:
        self.wanted.append(where.partition)


class Floor:
    """A schedule and the queues of one topic, without an accumulator."""

    def __init__(
        self,
        *leaders: int,
        identified: bool = True,
        identities: IdentityKeeper | None = None,
        **settings: Any,
    ) -> None:
        self.identities = identities or IdentityKeeper()
        if identified:
            self.identities.assign(7, 0)
        self.queues = TopicQueues(
            TOPIC, batching_settings(**settings), self.identities, BrokerLatencies(lambda: NOW)
        )
        self.queues.update(leaders)
        self.schedule = Schedule(self.identities)

    def batch(self, partition: int = 0, *, size: int = BATCH_OVERHEAD) -> Batch:
        """Put a sealed batch into a queue, and offer that."""
        batch = self.open(partition, size=size)
        self.queue(batch).seal(batch)
        self.schedule.offer(self.queue(batch), NOW)
        return batch

    def open(self, partition: int = 0, *, size: int = BATCH_OVERHEAD) -> Batch:
        queue = self.queues[partition]
        batch = Batch(queue.topic_partition, queue.next_order(), created_at=NOW, deadline=NOW + 120)
        batch.columns.append(b"value", None, (), 0)
        batch.size = size
        queue.add(batch)
        return batch

    def queue(self, batch: Batch) -> PartitionQueue:
        return self.queues[batch.topic_partition.partition]

    def linger(self, batch: Batch, until: float) -> bool:
        return self.schedule.linger(self.queue(batch), batch, until)

    def drain(self, node_id: int = 1, max_bytes: int = ALL) -> list[Batch]:
        return self.schedule.drain(node_id, NOW, max_bytes)

    def update(self, *leaders: int) -> None:
        self.schedule.offer_all(self.queues.update(leaders), NOW)


def settle(floor: Floor, batch: Batch) -> None:
    floor.queue(batch).remove(batch)
    batch.acknowledge()
    assert batch.sequence is not None
    floor.queue(batch).sequences.acknowledge(batch.sequence, batch.order, len(batch), 0, alone=False)
