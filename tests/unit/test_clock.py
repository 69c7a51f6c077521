from __future__ import annotations

import time

from aioproducer.clock import wall_ms


def test_it_counts_milliseconds_since_the_epoch() -> None:
    before = time.time_ns()
    now_ms = wall_ms()
    after = time.time_ns()
    assert before // 1_000_000 <= now_ms <= after // 1_000_000
