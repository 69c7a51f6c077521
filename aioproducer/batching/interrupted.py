"""Appends that an exception interrupted, such as one that a signal handler raised."""

from __future__ import annotations

from aioproducer.batching.batch import Batch
from aioproducer.batching.batch_state import BatchState
from aioproducer.batching.schedule import Schedule
from aioproducer.batching.topic import TopicQueues


def complete_or_undo(topic: TopicQueues, schedule: Schedule, now: float) -> list[Batch]:
    """Complete or undo an append to *topic* that an exception interrupted; return the dropped batches.

    A record is appended once it has a waiter, even if the call never returned that waiter. Columns without a waiter are
    dropped, and open batches are sealed and offered to the schedule again.
    """
    dropped, topic.sticky = list[Batch](), None
    for queue in topic.by_partition.values():
        for batch in tuple(queue.batches):
            if batch.state is BatchState.SEALED and batch.due:
                continue
            if batch.state is BatchState.OPEN:
                batch.repair()
            if len(batch):
                queue.seal(batch)
            else:
                queue.remove(batch)
                dropped.append(batch)
            schedule.forget(batch)
        queue.open = None
        schedule.offer_again(queue, now)
    return dropped
