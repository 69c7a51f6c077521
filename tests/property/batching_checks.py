"""Invariants of a World after every step, and at rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.idempotence import add_to_sequence
from aioproducer.errors import ProducerError
from aioproducer.types import RecordMetadata
from tests.checker import Called, check_order, check_records as check_outcomes, log_of
from tests.property.batching_world import MAX_IN_FLIGHT, TOPIC, World


def everywhere(queue: PartitionQueue) -> list[Batch]:
    return [*queue.batches, *queue.retrying, *queue.in_flight]


def is_delivered(batch: Batch) -> bool:
    if batch.state is BatchState.SPLIT:
        return all(map(is_delivered, batch.successors))
    return batch.state is BatchState.DELIVERED


def check_accounts(world: World) -> None:
    """Every batch is in one place, and holds the number of bytes that it reports."""
    accumulator = world.accumulator
    batches = [batch for queue in world.queues for batch in everywhere(queue)]
    assert accumulator.unfinished == len(batches) == len(set(batches))
    assert accumulator.memory.used == sum(batch.held for batch in batches)
    assert set(accumulator.unresolved) == {
        batch for batch in batches if batch.state is not BatchState.EXPIRED_IN_FLIGHT
    }


def check_memory(world: World) -> None:
    """No caller waits while there is enough memory."""
    memory = world.accumulator.memory
    assert not memory.waiters or memory.waiters[0][0] > memory.free


def check_queues(world: World) -> None:
    for queue in world.queues:
        new, retrying, in_flight = queue.batches, queue.retrying, queue.in_flight
        for line in (new, retrying, in_flight):
            assert all(one.order < other.order for one, other in pairwise(line))
        assert all(batch.state is BatchState.BACKOFF for batch in retrying)
        assert {batch.state for batch in in_flight} <= {BatchState.IN_FLIGHT, BatchState.EXPIRED_IN_FLIGHT}
        assert {batch.state for batch in new} <= {BatchState.OPEN, BatchState.SEALED}
        assert [batch for batch in new if batch.state is BatchState.OPEN] == [
            batch for batch in (queue.open,) if batch is not None
        ]
        assert queue.open is None or queue.open is new[-1]
        assert len(in_flight) <= (MAX_IN_FLIGHT if world.idempotent else 1)
        assert all(len(batch) for batch in new)
        check_stamps(sorted([*retrying, *in_flight], key=lambda batch: batch.order))


def check_stamps(unsettled: Sequence[Batch]) -> None:
    """Unsettled batches of a partition have sequences of one identity, in order, and no sequence twice."""
    numbered = [(batch.sequence, len(batch)) for batch in unsettled if batch.sequence is not None]
    for (one, count), (other, _) in pairwise(numbered):
        assert one.identity == other.identity
        assert add_to_sequence(one.base_sequence, count) <= other.base_sequence


def check_records(world: World) -> None:
    """Each record is stored once (except for resends without idempotence), in call order, at the reported offset."""
    told = dict(outcomes(world))
    order = [value for of_partition in world.order for value in of_partition]
    called = [Called(value, told.get(value)) for value in dict.fromkeys([*order, *told])]
    logs = {
        (TOPIC, index): [log_of(partition.log)] for index, partition in enumerate(world.cluster.partitions)
    }
    findings = check_outcomes(called, logs, idempotent=world.idempotent)
    check_order(order, logs, findings)
    findings.check()


def check_sleep(world: World) -> None:
    """A sender that is not woken has nothing to do before the time it asked for."""
    if world.rung or world.check_at <= world.loop.time():
        return
    assert set(world.schedule.waiting) <= world.left_over
    for due in (world.schedule.next_due(), world.accumulator.deadlines.next_due()):
        assert due >= world.check_at


def check_that_nothing_is_stuck(world: World) -> None:
    """Something will happen to every partition that has anything: it is ready, or an event or a time will offer it."""
    for queue in world.queues:
        assert queue.idle or queue.in_flight or waits_for_something(world, queue), (
            f"{everywhere(queue)} are forgotten"
        )


def waits_for_something(world: World, queue: PartitionQueue) -> bool:
    schedule = world.schedule
    if queue.offered_to is not None or queue in schedule._leaderless:
        return True
    if any(queue is backing_off for _, _, backing_off in schedule.backing_off):
        return True
    head = queue.retrying[0] if queue.retrying else queue.batches[0]
    if not head.ready:
        return head in schedule.lingering
    return world.identities.current is None and queue in schedule._without_identity


def outcomes(world: World) -> Iterator[tuple[bytes, RecordMetadata | ProducerError]]:
    """Yield the outcomes that there are."""
    for value, future in world.futures.items():
        if future.done() and not future.cancelled():
            error = future.exception()
            assert error is None or isinstance(error, ProducerError)
            yield value, future.result() if error is None else error
    for call, values in world.calls.items():
        if not call._outstanding:
            assert call.result.delivered + len(call.result.failures) == len(values)
            yield from zip(values, call.result, strict=True)


def check_end(world: World) -> None:
    """No batch or memory is left, and every record has an outcome."""
    accumulator = world.accumulator
    assert accumulator.idle
    assert accumulator.unfinished == 0
    assert accumulator.memory.used == 0
    assert not accumulator.memory.waiters
    assert all(future.done() for future in world.futures.values())
    assert all(not call._outstanding for call in world.calls)
    assert accumulator.deadlines.next_due() == inf
    assert sum(world.told.values()) == len(world.batch_of)
