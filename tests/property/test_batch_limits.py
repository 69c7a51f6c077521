"""Batches have a size near the requested one at any compression ratio."""

from __future__ import annotations

from hypothesis import given, strategies as st

from aioproducer._core.batching.topic import DETERIORATING_STEP, MOST_TIMES, RATE_MARGIN, BatchLimits
from aioproducer._core.records.columns import BATCH_OVERHEAD
from tests.unit._core.batching.batch_rig import batch_in
from tests.unit.floor_rig import batching_settings

READY, FULL = 20_000, 200_000
STEPS_DOWN = 240
"""From the worst estimate to 0 by the improving step."""

rates = st.floats(1 / MOST_TIMES, 1.1)


def send(limits: BatchLimits, rate: float) -> int:
    """Send a batch that is just ready and is compressed at *rate*; return how many bytes it has then."""
    batch = batch_in()
    batch.rate, batch.size = limits.rate, limits.ready
    batch.keep_encoded(bytearray(BATCH_OVERHEAD + int((batch.size - BATCH_OVERHEAD) * rate)))
    limits.compressed(batch)
    return batch.bytes_to_send()


@given(st.lists(rates, max_size=20), rates)
def test_batch_limit_approaches_the_target_from_any_history(before: list[float], rate: float) -> None:
    limits = BatchLimits(batching_settings(batch_bytes=READY, batch_max_bytes=FULL))
    for each in before:
        send(limits, each)
    for _ in range(STEPS_DOWN):
        send(limits, rate)
    margin = (DETERIORATING_STEP + rate) / rate * RATE_MARGIN  # where rounding made one look worse
    assert READY / margin - BATCH_OVERHEAD <= send(limits, rate) <= READY + BATCH_OVERHEAD


@given(st.lists(rates, min_size=1, max_size=50))
def test_batch_exceeds_its_limit_only_after_worse_compression(seen: list[float]) -> None:
    limits = BatchLimits(batching_settings(batch_bytes=READY, batch_max_bytes=FULL))
    for rate in seen:
        estimated = limits.rate
        sent = send(limits, rate)
        assert sent <= READY + BATCH_OVERHEAD or rate > estimated
        assert limits.rate >= rate * RATE_MARGIN * 0.98, "the worst is believed at once"
        assert READY / 1.25 <= limits.ready <= MOST_TIMES * READY
        assert FULL / 1.25 <= limits.full <= MOST_TIMES * FULL
