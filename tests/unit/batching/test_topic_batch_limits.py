from __future__ import annotations

import math

import pytest

from aioproducer.batching.batch import Batch
from aioproducer.batching.schedule import JOINS_FOR_S
from aioproducer.batching.topic import MOST_TIMES, RATE_MARGIN, BatchLimits
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
    at = TopicPartition("orders", 0)
    batch = Batch(at, (1,), created_at=7.0, deadline=127.0, joins_until=7.0 + JOINS_FOR_S)
    assert made.to_grow_to(batch, 1_000, 7.0) == BATCH + 1_000
    assert made.to_grow_to(batch, 6_000, 7.0 + JOINS_FOR_S) == 5_000
    assert made.to_grow_to(batch, 1_000, 7.1 + JOINS_FOR_S) < batch.size


def test_half_a_batch_is_enough_for_the_next_and_grows_to_a_whole_one() -> None:
    made = limits()
    assert (made.first_limit(7.0, is_next=False), made.first_limit(7.0, is_next=True)) == (1_000, 500)
    batch = Batch(TopicPartition("orders", 0), (1,), created_at=7.0, deadline=127.0, limit=500)
    batch.size += 400
    assert made.next_limit(batch, 100, 7.0) == 1_000
    assert made.next_limit(batch, 1_000 - batch.size, 7.0) == 1_000
    assert made.next_limit(batch, 1_001 - batch.size, 7.0) == batch.size + 1_000
    batch.grow(1_000)
    assert made.next_limit(batch, 100, 7.0) == batch.size + 1_000


def test_a_cap_ends_with_the_first_batch_after_its_time() -> None:
    made = limits()
    made.cap(400, 4.0)
    assert (made.first_limit(13.9, is_next=False), made.first_limit(14.0, is_next=False)) == (400, 1_000)


def encoded(size: int, sent: int) -> Batch:
    """Return a batch whose records take *size* bytes, *sent* of them when it is sent."""
    batch = Batch(TopicPartition("orders", 0), (1,), created_at=7.0, deadline=127.0)
    batch.size += size
    batch.keep_encoded(bytearray(BATCH + sent))
    return batch


class TestCompression:
    def test_what_is_compressed_well_is_believed_step_by_step(self) -> None:
        made = limits()
        made.compressed(encoded(1_000, 100))
        assert made.rate == pytest.approx(0.995 * RATE_MARGIN)
        made.compressed(encoded(1_000, 100))
        assert made.rate == pytest.approx(0.99 * RATE_MARGIN)
        assert (made.ready, made.full) == (int(1_000 / made.rate), int(5_000 / made.rate))

    def test_it_never_goes_below_what_was_seen(self) -> None:
        made = limits()
        made.compressed(encoded(1_000, 998))
        assert made.rate == pytest.approx(0.998 * RATE_MARGIN)

    def test_what_is_compressed_as_it_was_estimated_changes_nothing(self) -> None:
        made = limits()
        made.compressed(encoded(1_000, 1_000))
        assert made.rate == RATE_MARGIN

    def test_what_is_compressed_badly_is_believed_at_once(self) -> None:
        made = limits()
        for _ in range(100):
            made.compressed(encoded(1_000, 500))
        assert made.rate == pytest.approx(0.5 * RATE_MARGIN)
        made.compressed(encoded(1_000, 510))
        assert made.rate == pytest.approx(0.55 * RATE_MARGIN), "the step, where it is the larger"
        made.compressed(encoded(1_000, 900))
        assert made.rate == pytest.approx(0.9 * RATE_MARGIN)

    def test_before_compression_a_batch_is_no_more_than_so_many_times_as_large(self) -> None:
        made = limits()
        for _ in range(200):
            made.compressed(encoded(1_000, 1))
        assert (made.ready, made.full) == (MOST_TIMES * 1_000, MOST_TIMES * 5_000)

    def test_a_cap_is_of_what_is_sent(self) -> None:
        made = limits()
        made.cap(400, 4.0)
        assert (made.ready, made.full) == (400, 400)
        for _ in range(100):
            made.compressed(encoded(1_000, 500))
        assert made.rate == pytest.approx(0.5 * RATE_MARGIN), "a refusal for its size says nothing of it"
        assert (made.ready, made.full) == (int(400 / made.rate), int(400 / made.rate))
        made.uncap()
        assert (made.ready, made.full) == (int(1_000 / made.rate), int(5_000 / made.rate))
