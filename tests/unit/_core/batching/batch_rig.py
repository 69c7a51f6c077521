"""A batch in any state, with records and their waiters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from aioproducer._core.batching.batch import Batch, RecordFuture
from aioproducer._core.batching.batch_state import BatchEvent, BatchState
from aioproducer._core.batching.bulk import CallWaiters, SendManyCall
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.batching.receipts import FutureKind
from aioproducer._core.batching.waiters import Kind
from aioproducer._core.idempotence import IdentityKeeper
from aioproducer._core.records.columns import record_size_bound
from tests.unit.floor_rig import TOPIC, batching_settings

W = TypeVar("W")
HEADERS = (("trace", b"1"),)
HAPPEN: Mapping[BatchEvent, Callable[[Batch], None]] = {
    BatchEvent.SEAL: Batch.seal,
    BatchEvent.DRAIN: Batch.drain,
    BatchEvent.ACKNOWLEDGE: Batch.acknowledge,
    BatchEvent.RETRY: lambda batch: batch.retry(5.0),
    BatchEvent.RENUMBER: Batch.renumber,
    BatchEvent.SPLIT: lambda batch: batch.split((batch_in(), batch_in())),
    BatchEvent.EXPIRE: Batch.expire,
    BatchEvent.FAIL: Batch.fail,
}
"""What each event is called on a batch."""
SENT = (BatchEvent.SEAL, BatchEvent.DRAIN)
WAYS: Mapping[BatchState, Sequence[BatchEvent]] = {
    BatchState.OPEN: (),
    BatchState.SEALED: (BatchEvent.SEAL,),
    BatchState.IN_FLIGHT: SENT,
    BatchState.BACKOFF: (*SENT, BatchEvent.RETRY),
    BatchState.EXPIRED_IN_FLIGHT: (*SENT, BatchEvent.EXPIRE),
    BatchState.DELIVERED: (*SENT, BatchEvent.ACKNOWLEDGE),
    BatchState.SPLIT: (*SENT, BatchEvent.SPLIT),
    BatchState.FAILED: (BatchEvent.FAIL,),
}
"""The shortest way to each state."""


def batch_in(state: BatchState = BatchState.OPEN) -> Batch:
    queue = PartitionQueue(TOPIC, 3, batching_settings(), IdentityKeeper())
    batch = Batch(queue.topic_partition, (5,), created_at=1.0, deadline=121.0)
    for event in WAYS[state]:
        HAPPEN[event](batch)
    return batch


def added(kind: Kind[W], stretch: Any) -> W:
    """Return a new waiter of *kind* in *stretch*."""
    waiter = kind.waiter()
    stretch.append(waiter)
    return waiter


def send(
    batch: Batch, value: bytes = b"v", key: bytes | None = None, *, timestamp_ms: int = 1
) -> RecordFuture:
    """Append one record, as `send` does."""
    batch.columns.append(value, key, (), timestamp_ms)
    batch.size += record_size_bound(value, key, ())
    if batch.kind is None:
        batch.begin_stretch(FutureKind(asyncio.get_running_loop()))
    assert batch.kind is not None
    return added(batch.kind, batch.last)


def send_many(batch: Batch, call: SendManyCall, *positions: int, timestamp_ms: int = 1) -> None:
    """Append a record per position, as `send_many` does."""
    for _ in positions:
        batch.columns.append(b"many", None, HEADERS, timestamp_ms)
        batch.size += record_size_bound(b"many", None, HEADERS)
    batch.add_waiters(CallWaiters(call, positions))


def call_of(total: int) -> SendManyCall:
    return SendManyCall(TOPIC, total, asyncio.get_running_loop())


def mixed() -> tuple[Batch, list[RecordFuture], SendManyCall]:
    """Return a batch of six records in three runs (single 0, 1; bulk 2, 3, 4; single 5) and the waiters."""
    batch, call = batch_in(), call_of(3)
    futures = [send(batch, b"zero", timestamp_ms=10), send(batch, b"one", b"key", timestamp_ms=11)]
    send_many(batch, call, 0, 1, 2, timestamp_ms=12)
    futures.append(send(batch, b"five", timestamp_ms=15))
    return batch, futures, call
