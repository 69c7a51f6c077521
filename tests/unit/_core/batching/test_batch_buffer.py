"""Batches with a RecordBuffer of the accelerator."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.waiters import FutureWaiters, acknowledgement_on
from aioproducer._core.records.columns import BATCH_OVERHEAD
from aioproducer.testing.virtual_time import in_virtual_time
from aioproducer.types import TopicPartition

accelerator: Any = pytest.importorskip(
    "aioproducer._core._accelerator", reason="it was not built", exc_type=ImportError
)
LIMIT = 16_384


def empty_batch() -> Batch:
    buffer = accelerator.RecordBuffer()
    return Batch(TopicPartition("orders", 0), (5,), 1.0, 121.0, LIMIT, columns=buffer)


def batch_of(*values: bytes) -> Batch:
    """Return a batch with one Future per value."""
    batch = empty_batch()
    assert batch.extend((values, None, None, 1_000), 0, LIMIT, 1 << 20) == batch.held - BATCH_OVERHEAD
    batch.add_waiters(FutureWaiters([asyncio.get_running_loop().create_future() for _ in values]))
    return batch


@in_virtual_time
async def test_extend_returns_the_growth_of_the_buffer() -> None:
    batch = batch_of(b"a" * 1_000)
    before = batch.held
    grown = batch.extend(([b"b" * 100], None, None, 1_000), 0, LIMIT, 1 << 20)
    assert (batch.size, batch.held) == (batch.columns.size, batch.columns.held)
    assert grown == batch.held - before == before, "the capacity doubles"


@in_virtual_time
async def test_capacity_grows_neither_beyond_limit_nor_free_memory() -> None:
    rows = ([b"b" * 100], None, None, 1_000)
    limited, scarce = batch_of(b"a" * 1_000), batch_of(b"a" * 1_000)
    limited.extend(rows, 0, limited.size + 400, 1 << 20)
    assert limited.held == 1_070 + 400
    scarce.extend(rows, 0, LIMIT, 0)
    assert scarce.held == scarce.size


@in_virtual_time
async def test_trim_releases_more_than_a_quarter_of_spare_memory() -> None:
    batch = batch_of(b"a" * 1_000)
    batch.extend(([b"b" * 100], None, None, 1_000), 0, LIMIT, 1 << 20)
    size, held = batch.size, batch.held
    assert held - size > held // 4
    batch.size = held - held // 4
    assert (batch.trim(), batch.held) == (0, held)
    batch.size = size
    assert (batch.trim(), batch.held) == (held - size, size)


@in_virtual_time
async def test_withdrawn_records_keep_their_memory_until_the_drain() -> None:
    batch = batch_of(b"a", b"b", b"c")
    before = batch.size, batch.held
    assert batch.withdraw([1], batch.columns.take([1])) == 0
    assert (batch.size, batch.held) == before
    batch.repair()
    assert (batch.size, batch.held) == before
    batch.leave_out_withdrawn()
    assert batch.columns.values == [b"a", b"c"]
    assert batch.size == batch.columns.size < before[0]


@in_virtual_time
async def test_stretch_of_a_buffer_is_not_plain() -> None:
    batch, kind = empty_batch(), acknowledgement_on(asyncio.get_running_loop())
    batch.begin_stretch(kind)
    assert (batch.kind, batch.plain_kind) == (kind, None)
