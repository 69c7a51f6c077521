"""Recovery of appends that an exception interrupted, for example of a signal handler."""

from __future__ import annotations

from aioproducer.batching.batch import Batch
from aioproducer.batching.batch_state import BatchState
from aioproducer.batching.schedule import Schedule
from aioproducer.batching.topic import TopicQueues


def complete_or_undo(topic: TopicQueues, schedule: Schedule, now: float) -> list[Batch]:
    """Complete or undo an append to *topic* that an exception interrupted; return the dropped batches.

    A record with a waiter is appended, even if the call never returned the waiter. Records without a waiter are dropped.
    Open batches are sealed and offered to the schedule again.
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
