from __future__ import annotations

import math

from aioproducer.batching.batch import Batch
from aioproducer.batching.topic import GROWS_FOR_S, BatchLimits
from aioproducer.types import TopicPartition
from tests.unit.batching.accumulator_rig import BATCH
from tests.unit.floor_rig import batching_settings


def limits() -> BatchLimits:
    return BatchLimits(batching_settings(batch_bytes=1_000, batch_max_bytes=5_000, batch_cap_s=10.0))


def test_batches_are_small_for_a_while_and_only_ever_smaller() -> None:
    made = limits()
    assert (made.ready, made.full, made.capped_until) == (1_000, 5_000, math.inf)
    made.cap(3_000, 4.0)
    assert (made.ready, made.full, made.capped_until) == (1_000, 3_000, 14.0)
    made.cap(400, 5.0)
    assert (made.ready, made.full, made.capped_until) == (400, 400, 15.0)
    made.cap(700, 6.0)
    assert (made.ready, made.full, made.capped_until) == (400, 400, 16.0)
    made.uncap()
    assert (made.ready, made.full, made.capped_until) == (1_000, 5_000, math.inf)


def test_a_batch_grows_until_it_is_full_or_old() -> None:
    made = limits()
    batch = Batch(TopicPartition("orders", 0), (1,), created_at=7.0, deadline=127.0)
    assert made.to_grow_to(batch, 1_000, 7.0) == BATCH + 1_000
    assert made.to_grow_to(batch, 6_000, 7.0 + GROWS_FOR_S) == 5_000
    assert made.to_grow_to(batch, 1_000, 7.1 + GROWS_FOR_S) < batch.size
