from __future__ import annotations

import asyncio
import gc
from typing import Any
from weakref import ref

import pytest

from aioproducer._core.acceleration import accelerated, python_untracking, untracking
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.metrics import WINDOW_S, Metrics
from tests.cases import for_each
from tests.unit._core.batching.partition_queue_rig import Rig
from tests.unit._core.batching.test_topic import topic


class Witness:
    """An object that refers to anything."""

    subject: object = None


@for_each("each", [[], {1: []}, (1, []), Witness(), 5, "text", None])
def test_untracking_returns_what_its_argument_creates(each: object) -> None:
    assert untracking(lambda: each)() is each
    assert untracking(lambda: each)() is each
    assert not (accelerated and gc.is_tracked(each))
    assert python_untracking(Witness) is Witness


def test_untracked_object_is_freed_without_the_collector() -> None:
    witness = Witness()
    freed = ref(witness)
    each: Any = untracking(list)((witness,))
    each.append(witness)
    del witness
    gc.collect()
    assert freed() is not None
    del each
    assert freed() is None


def test_untracking_raises_what_its_argument_raises() -> None:
    with pytest.raises(ZeroDivisionError):
        untracking(divmod)(1, 0)


def kept_by_a_topic() -> dict[str, object]:
    queues = topic(1)
    return {"limits": queues.limits, "place": queues[0].topic_partition, "sequences": queues[0].sequences}


def kept_by_a_batch() -> dict[str, object]:
    rig = Rig()
    batch = rig.add()
    rig.take()
    return {"persistence": batch.persistence, "sequence": batch.sequence}


def kept_by_metrics() -> dict[str, object]:
    counters = Metrics(lambda: 0.0).topic("orders")
    first = counters._now
    counters.at(WINDOW_S)
    return {"counters": counters, "first": first, "second": counters._now}


@pytest.mark.parametrize("kept", [kept_by_a_topic, kept_by_a_batch, kept_by_metrics])
def test_collector_visits_no_object_that_is_part_of_no_cycle(kept: Any) -> None:
    assert {name: gc.is_tracked(each) for name, each in kept().items()} == dict.fromkeys(
        kept(), not accelerated
    )


def add_batch(queue: PartitionQueue, state: str, number: int, witness: Witness) -> None:
    """Add a batch to *queue* with a Future whose callback refers to *witness*."""
    batch = Batch(queue.topic_partition, (number,), created_at=0.0, deadline=1.0)
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda _, witness=witness: witness)  # type: ignore[misc]
    batch.last = future
    if state == "batches":
        queue.add(batch)
    else:
        setattr(queue, state, (*getattr(queue, state), batch))


@for_each("batches", [1, 2])
@for_each("state", ["batches", "in_flight", "retrying"])
async def test_topic_is_freed_with_a_waiter_that_refers_to_it(state: str, batches: int) -> None:
    queues, witness = topic(1), Witness()
    queue, freed = queues[0], ref(witness)
    for number in range(batches):
        add_batch(queue, state, number, witness)
    witness.subject = queues
    del queues, witness, queue
    gc.collect()
    assert freed() is None
