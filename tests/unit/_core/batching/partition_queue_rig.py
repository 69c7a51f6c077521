"""The queue of one partition, and batches that pass through the queue."""

from __future__ import annotations

from typing import Any

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.idempotence import IdentityKeeper
from tests.unit.floor_rig import FIRST, batching_settings


class Rig:
    """One partition's queue."""

    def __init__(self, *, identified: bool = True, acknowledged_here: bool = True, **settings: Any) -> None:
        self.identities = IdentityKeeper()
        if identified:
            self.identities.assign(*FIRST)
        self.queue = PartitionQueue("orders", 3, batching_settings(**settings), self.identities)
        if acknowledged_here:
            assert self.queue.sequences.may_assign(self.identities, unsettled=()) == identified
            self.queue.sequences.acknowledged_here = True

    def add(self, records: int = 1, *, ready: bool = True) -> Batch:
        """Append an open batch and seal the earlier batches."""
        if self.queue.open is not None:
            self.queue.seal(self.queue.open)
        batch = Batch(self.queue.topic_partition, self.queue.next_order(), created_at=0.0, deadline=120.0)
        for _ in range(records):
            batch.columns.append(b"value", None, (), 0)
        if ready:
            batch.mark_ready()
        self.queue.add(batch)
        return batch

    def take(self, now: float = 0.0) -> Batch:
        """Do as the schedule does."""
        batch = self.queue.next_batch(now)
        assert isinstance(batch, Batch)
        self.queue.take(batch)
        return batch

    def answered(self, batch: Batch) -> None:
        self.queue.remove(batch)
        batch.acknowledge()
