"""Records and batches of one size, for tests of the accumulator."""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer._core.batching.batch import Batch, RecordFuture
from tests.unit.floor_rig import TOPIC, FloorRig

BATCH = 61
"""What a batch takes besides its records."""
RECORD = 14 + 100
"""What `VALUE` takes."""
VALUE = bytes(100)


def put(rig: FloorRig, partition: int | None = 0, *, reserved: int = 0) -> RecordFuture | None:
    """Append `VALUE` to *partition*, or to the sticky one."""
    queue = None if partition is None else rig.queue(partition)
    topic = rig.accumulator.topics[TOPIC]
    return rig.accumulator.append(
        topic, queue, VALUE, None, (), 1_000, RECORD, rig.receipts, reserved=reserved
    )


def unresolved(rig: FloorRig) -> list[Batch]:
    return list(rig.accumulator.unresolved)


def counts(batches: Sequence[Batch]) -> list[int]:
    return [len(batch) for batch in batches]


def room_for(batches: int, records: int) -> int:
    return batches * BATCH + records * RECORD
