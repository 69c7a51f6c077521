from __future__ import annotations

import math
from collections import deque

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.schedule import JOINS_FOR_S
from aioproducer._core.batching.topic import MOST_TIMES, RATE_MARGIN, TRIAL_S, BatchLimits
from aioproducer.types import TopicPartition
from tests.cases import for_each
from tests.unit._core.batching.accumulator_rig import BATCH
from tests.unit.floor_rig import batching_settings


def limits() -> BatchLimits:
    return BatchLimits(batching_settings(batch_bytes=1_000, batch_max_bytes=5_000, batch_cap_s=10.0))


def batch_of(size: int, created_at: float = 0.0) -> Batch:
    batch = Batch(TopicPartition("orders", 0), (1,), created_at=created_at, deadline=127.0)
    batch.size = size
    return batch


def test_batches_are_small_after_a_refusal() -> None:
    made = limits()
    assert (made.ready, made.full, made.capped_until) == (1_000, 5_000, math.inf)
    made.refused(batch_of(6_000), 3_000, 4.0)
    assert (made.ready, made.full, made.capped_until) == (1_000, 3_000, 14.0)
    made.refused(batch_of(3_000), 1_500, 5.0)
    made.refused(batch_of(5_000), 2_500, 6.0)
    assert (made.ready, made.full, made.capped_until) == (1_000, 1_500, 16.0)
    made.refused(batch_of(800), 400, 7.0)
    assert (made.ready, made.full) == (400, 400)


def test_probe_of_a_size_between_the_limits_is_one_at_a_time() -> None:
    made = limits()
    made.refused(batch_of(4_000), 2_000, 4.0)
    assert made.first_limit(4.0, is_next=False) == 1_000, "2,000 may be too much"
    assert made.accepted(batch_of(2_000))
    assert [made.first_limit(5.0, is_next=False) for _ in range(3)] == [3_000, 1_000, 1_000]
    assert made.full == 2_000
    made.refused(batch_of(3_000), 1_500, 5.0)
    assert made.full == 2_000
    assert [made.first_limit(5.0, is_next=False) for _ in range(2)] == [2_500, 1_000]
    assert made.accepted(batch_of(2_500))
    assert made.full == 2_500
    assert made.first_limit(5.0, is_next=False) == 2_750
    assert made.accepted(batch_of(100)), "smaller batches say nothing"
    assert made.accepted(batch_of(2_970))
    assert made.first_limit(6.0, is_next=False) == 1_000, "near enough"


def test_trial_that_was_sent_half_full_is_repeated() -> None:
    made = limits()
    made.refused(batch_of(4_000), 2_000, 4.0)
    assert made.accepted(batch_of(2_000))
    tried = [made.first_limit(5.0 + each, is_next=False) for each in (0, TRIAL_S - 0.1, TRIAL_S)]
    assert tried == [3_000, 1_000, 3_000]


@pytest.mark.parametrize(("accepted", "limit"), [(800, 1_000), (1_000, 1_000), (1_001, 3_000)])
def test_trial_needs_an_accepted_batch_above_half_the_cap(accepted: int, limit: int) -> None:
    made = limits()
    made.refused(batch_of(4_000), 2_000, 4.0)
    assert made.accepted(batch_of(accepted))
    assert made.first_limit(5.0, is_next=False) == limit


@pytest.mark.parametrize(("part", "limit"), [(3_150, 1_000), (3_149, 3_174)])
def test_search_ends_close_to_the_refused_size(part: int, limit: int) -> None:
    made = limits()
    made.refused(batch_of(3_200), part, 4.0)
    assert made.accepted(batch_of(part))
    assert made.first_limit(5.0, is_next=False) == limit


def test_refusal_of_an_accepted_size_lowers_the_limit() -> None:
    made = limits()
    made.refused(batch_of(4_000), 2_000, 4.0)
    assert made.accepted(batch_of(2_000))
    made.refused(batch_of(2_000), 1_000, 5.0)
    assert made.full == 1_000


@pytest.mark.parametrize(("size", "is_limited"), [(2_499, True), (2_500, False)])
def test_accepted_probe_of_half_the_maximum_ends_the_limit(size: int, is_limited: bool) -> None:
    made = limits()
    made.refused(batch_of(1_000), 500, 4.0)
    assert made.first_limit(14.0, is_next=False) == 1_250
    assert made.accepted(batch_of(size, created_at=14.0)) is is_limited
    assert made.full == (size if is_limited else 5_000)


def test_accepted_batch_of_the_refused_size_ends_the_refusal() -> None:
    made = limits()
    made.refused(batch_of(4_000), 2_000, 4.0)
    assert made.accepted(batch_of(2_000))
    assert made.first_limit(5.0, is_next=False) == 3_000
    assert not made.accepted(batch_of(4_000, created_at=5.0))
    assert made.full == 5_000


def test_batch_from_before_the_refusal_does_not_lift_the_limit() -> None:
    made = limits()
    made.refused(batch_of(4_000), 2_000, 4.0)
    assert made.accepted(batch_of(4_500, created_at=3.0))
    assert made.full == 2_000


def test_probe_of_a_larger_batch_is_periodic() -> None:
    made = limits()
    made.refused(batch_of(800), 400, 4.0)
    assert made.accepted(batch_of(795))
    opened = [made.first_limit(now, is_next=False) for now in (13.9, 14.0, 14.1, 23.9, 24.0)]
    assert opened == [795, 1_000, 795, 795, 1_000]
    made.refused(batch_of(1_000, created_at=24.0), 500, 24.5)
    assert made.full == 795
    assert made.first_limit(25.0, is_next=False) == 795


def test_limit_rises_in_steps_as_larger_batches_are_accepted() -> None:
    made = limits()
    made.refused(batch_of(800), 400, 4.0)
    assert made.first_limit(14.0, is_next=False) == 1_000
    assert made.accepted(batch_of(1_000, created_at=14.0))
    assert (made.ready, made.full) == (1_000, 1_000)
    assert made.first_limit(14.0, is_next=False) == 2_000
    assert made.accepted(batch_of(2_000, created_at=15.0))
    assert not made.accepted(batch_of(4_000, created_at=16.0))
    assert (made.ready, made.full, made.cap) == (1_000, 5_000, math.inf)
    assert made.first_limit(17.0, is_next=False) == 1_000


def test_limit_falls_when_a_smaller_batch_is_refused() -> None:
    made = limits()
    made.refused(batch_of(4_000), 2_000, 4.0)
    assert made.accepted(batch_of(2_000))
    made.refused(batch_of(1_500), 750, 5.0)
    assert made.full == 750
    assert made.accepted(batch_of(750))
    assert made.first_limit(6.0, is_next=False) == 1_125


@for_each("in_flight", [1, 5])
@for_each("takes", [1_500, 2_999, 4_000, 10_000, 15_999])
@for_each("record", [10, 100, 1_000])
def test_limit_converges_to_the_size_accepted_by_the_topic(takes: int, record: int, in_flight: int) -> None:
    made = BatchLimits(batching_settings(batch_bytes=16_384, batch_max_bytes=16_384, batch_cap_s=1_000.0))
    refusals, size, now = [], 0, 0.0
    sent: deque[Batch] = deque()
    for number in range(500):
        now += 0.01
        room = made.first_limit(now, is_next=False) - BATCH
        sent.append(batch_of(BATCH + record * max(1, room // record), created_at=now))
        if len(sent) < in_flight:
            continue
        batch = sent.popleft()
        size = batch.size
        if size > takes:
            refusals.append(number)
            made.refused(batch, BATCH + record * max(1, (size - BATCH) // record // 2), now)
        else:
            made.accepted(batch)
    largest = BATCH + record * max(1, (takes - BATCH) // record)
    assert size >= largest - record - takes // 32
    assert len(refusals) <= 4 * in_flight + 8
    assert max(refusals) < 100, "it does not oscillate"


def test_batch_grows_until_it_is_full_or_old() -> None:
    made = limits()
    at = TopicPartition("orders", 0)
    batch = Batch(at, (1,), created_at=7.0, deadline=127.0, joins_until=7.0 + JOINS_FOR_S)
    assert made.grown_limit(batch, 1_000, 7.0) == BATCH + 1_000
    assert made.grown_limit(batch, 6_000, 7.0 + JOINS_FOR_S) == 5_000
    assert made.grown_limit(batch, 1_000, 7.1 + JOINS_FOR_S) == 0


def test_next_batch_starts_at_half_and_grows_to_a_whole_batch() -> None:
    made = limits()
    assert (made.first_limit(7.0, is_next=False), made.first_limit(7.0, is_next=True)) == (1_000, 500)
    batch = Batch(TopicPartition("orders", 0), (1,), created_at=7.0, deadline=127.0, limit=500)
    assert made.next_limit(batch, 1_000, 7.0) == batch.size + 1_000
    batch.size += 400
    assert made.next_limit(batch, 100, 7.0) == 1_000
    assert made.next_limit(batch, 1_000 - batch.size, 7.0) == 1_000
    assert made.next_limit(batch, 1_001 - batch.size, 7.0) == 4 * batch.size
    batch.set_limit(1_000)
    assert made.next_limit(batch, 100, 7.0) == 4 * batch.size
    assert made.next_limit(batch, 3_000, 7.0) == batch.size + 3_000
    batch.size = 200
    assert made.next_limit(batch, 100, 7.0) == 1_200


def test_half_of_a_batch_is_a_whole_number_of_bytes() -> None:
    made = BatchLimits(batching_settings(batch_bytes=1_001))
    assert str(made.first_limit(7.0, is_next=True)) == "500"


def encoded(size: int, sent: int) -> Batch:
    """Return a batch whose records take *size* bytes, *sent* of them when it is sent."""
    batch = Batch(TopicPartition("orders", 0), (1,), created_at=7.0, deadline=127.0)
    batch.size += size
    batch.keep_encoded(bytearray(BATCH + sent))
    return batch


class TestCompression:
    def test_better_compression_changes_the_rate_in_steps(self) -> None:
        made = limits()
        made.compressed(encoded(1_000, 100))
        assert made.rate == pytest.approx(0.995 * RATE_MARGIN)
        made.compressed(encoded(1_000, 100))
        assert made.rate == pytest.approx(0.99 * RATE_MARGIN)
        assert (made.ready, made.full) == (int(1_000 / made.rate), int(5_000 / made.rate))

    @for_each(
        ("size", "step"),
        [(1_000, 0.005), (16_384, 0.005), (65_536, 0.02), (163_840, 1 / 21), (1_000_000, 1 / 21)],
    )
    def test_step_grows_with_the_batch(self, size: int, step: float) -> None:
        made = limits()
        made.compressed(encoded(size - BATCH, size // 10))
        assert made.rate == pytest.approx((1 - step) * RATE_MARGIN)

    @for_each(("better", "worse"), [(0.1, 1.0), (0.3, 0.35), (0.1, 0.15), (0.067, 0.12), (0.07, 0.074)])
    @for_each("size", [10_000, 1_000_000])
    def test_alternating_batches_keep_to_their_limits(self, size: int, better: float, worse: float) -> None:
        made = limits()
        for _ in range(200):
            made.compressed(encoded(size, int(size * better)))
        for _ in range(20):
            made.compressed(encoded(size, int(size * worse)))
            made.compressed(encoded(size, int(size * better)))
            assert made.full * worse <= 5_000 * 1.001

    def test_rate_never_falls_below_the_observed_rate(self) -> None:
        made = limits()
        made.compressed(encoded(1_000, 998))
        assert made.rate == pytest.approx(0.998 * RATE_MARGIN)

    def test_compression_as_estimated_keeps_the_rate(self) -> None:
        made = limits()
        made.compressed(encoded(1_000, 1_000))
        assert made.rate == RATE_MARGIN

    def test_worse_compression_changes_the_rate_immediately(self) -> None:
        made = limits()
        for _ in range(100):
            made.compressed(encoded(1_000, 500))
        assert made.rate == pytest.approx(0.5 * RATE_MARGIN)
        made.compressed(encoded(1_000, 510))
        assert made.rate == pytest.approx(0.55 * RATE_MARGIN), "the step, where it is the larger"
        made.compressed(encoded(1_000, 900))
        assert made.rate == pytest.approx(0.9 * RATE_MARGIN)

    def test_size_before_compression_is_limited_to_a_multiple(self) -> None:
        made = limits()
        for _ in range(200):
            made.compressed(encoded(1_000, 1))
        assert (made.ready, made.full) == (MOST_TIMES * 1_000, MOST_TIMES * 5_000)

    def test_limit_counts_compressed_sizes(self) -> None:
        made = limits()
        for _ in range(100):
            made.compressed(encoded(2_000, 1_000))
        assert made.rate == pytest.approx(0.5 * RATE_MARGIN)
        made.refused(batch := encoded(2_000, 1_000), batch.size // 2, 4.0)
        sent = len(batch.encoded or b"") * (batch.size // 2) // batch.size
        assert made.cap == sent
        assert (made.ready, made.full) == (int(sent / made.rate), int(sent / made.rate))
        assert made.accepted(encoded(1_000, sent - BATCH))
        assert made.first_limit(5.0, is_next=False) == int((sent + BATCH + 1_000) // 2 / made.rate)
