"""Appends that an exception interrupted, such as one that a signal handler raised."""

from __future__ import annotations

from aioproducer.batching.batch import Batch
from aioproducer.batching.batch_state import BatchState
from aioproducer.batching.schedule import Schedule
from aioproducer.batching.topic import TopicQueues
from aioproducer.records.sizes import BATCH_OVERHEAD


def complete_or_undo(
    topic: TopicQueues, schedule: Schedule, now: float, waiter: object, records: int, size: int
) -> tuple[int, list[Batch]]:
    """Complete or undo an append to *topic* that an exception interrupted; return the bytes it took, and dropped batches.

    *records* of *size* bytes are appended once *waiter* is in a batch. Columns without a waiter are dropped, and open
    batches are sealed and offered to the schedule again.
    """
    taken, dropped, topic.sticky = 0, list[Batch](), None
    for queue in topic.by_partition.values():
        for batch in tuple(queue.batches):
            if batch.state is BatchState.SEALED and batch.due:
                continue
            if batch.state is BatchState.OPEN and batch.repair(waiter):
                taken += size + (BATCH_OVERHEAD if len(batch) == records else 0)
            if len(batch):
                queue.seal(batch)
            else:
                queue.remove(batch)
                dropped.append(batch)
            schedule.forget(batch)
        queue.open = None
        schedule.offer_again(queue, now)
    return taken, dropped
