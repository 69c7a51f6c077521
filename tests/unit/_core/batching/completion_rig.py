"""Notifications of the completion, and the state that it leaves."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from aioproducer._core.batching.batch import RecordFuture
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.idempotence import BatchSequence, ProducerIdentity
from aioproducer.errors import DeliveryTimeout, InvalidRecord
from tests.unit.floor_rig import FloorRig

BUMPED = BatchSequence(ProducerIdentity(7, 1), 0)
"""What comes after a gap in the sequences of `FIRST`."""
LATE = Failure(DeliveryTimeout, "too late", possibly_persisted=True)
SPOILT = Failure(InvalidRecord, "spoilt")


def offsets(futures: Iterable[RecordFuture]) -> list[int]:
    return [future.result().offset for future in futures]


def errors(futures: Iterable[RecordFuture]) -> list[type[BaseException | None]]:
    return [type(future.exception()) for future in futures]


def nothing_is_left(rig: FloorRig) -> bool:
    accumulator = rig.accumulator
    return (
        accumulator.memory.used == 0
        and accumulator.unfinished == 0
        and accumulator.idle
        and accumulator.deadlines.next_due() == inf
        and rig.queue().idle
    )


def next_sequence(rig: FloorRig) -> BatchSequence | None:
    """Return the sequence of the next batch of the partition."""
    batch, _ = rig.sent()
    return batch.sequence
