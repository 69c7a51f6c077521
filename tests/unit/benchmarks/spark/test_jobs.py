from __future__ import annotations

from typing import Any

import pytest

from benchmarks.spark.jobs import Target, latencies
from benchmarks.spark.table import WARM_UP_BATCHES


def progress(milliseconds: int) -> dict[str, Any]:
    return {"triggerExecution": milliseconds, "addBatch": milliseconds // 2, "walCommit": 1}


def test_the_first_micro_batches_do_not_count() -> None:
    durations = [progress(5_000)] * WARM_UP_BATCHES + [progress(each) for each in (100, 300, 200)]
    assert latencies(durations, WARM_UP_BATCHES + 3) == {"p50_ms": 200, "sink_ms": 100}


def test_a_look_at_a_source_that_had_nothing_is_no_micro_batch() -> None:
    idle = {"triggerExecution": 1, "latestOffset": 1}
    durations = [progress(100)] * (WARM_UP_BATCHES + 1)
    assert latencies([*durations, idle], len(durations)) == {"p50_ms": 100, "sink_ms": 50}


def test_several_rows_in_one_micro_batch_are_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="12 micro-batches were expected, there were 11"):
        latencies([progress(100)] * 11, 12)


def test_a_sink_is_told_where_to_write_and_nothing_else() -> None:
    options = Target("kafka", "a:9092", "orders").options
    assert options == {"kafka.bootstrap.servers": "a:9092", "topic": "orders"}
