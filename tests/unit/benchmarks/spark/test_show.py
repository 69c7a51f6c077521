from __future__ import annotations

import io

from rich.console import Console

from benchmarks.figures import Played, Results, Run
from benchmarks.spark.show import show_results


def run(**figures: float) -> Run:
    return Run(sent=10, figures=dict(figures))


def test_each_sink_has_a_line_and_each_target_a_verdict() -> None:
    results = Results(
        made="2026-01-31",
        machine={"processor": "A Processor"},
        versions={"pyspark": "4.2.1"},
        options={},
        rows={
            "batch": Played(
                runs={
                    "kafka": [run(records_s=500_000.0, cpu_us=3.0, python_us=0.0)],
                    "aioproducer": [run(records_s=600_000.0, cpu_us=2.5, python_us=1.25)],
                },
            ),
            "micro-batch": Played(
                runs={"aioproducer": [run(p50_ms=200.0, sink_ms=50.0)], "kafka": [None]},
                failures={"kafka": ["round 2: it broke"]},
            ),
        },
    )
    text = io.StringIO()
    show_results(results, Console(file=text, width=150))
    lines = text.getvalue().splitlines()
    assert lines[0] == "A Processor, pyspark 4.2.1"
    ours, theirs = (next(line for line in lines if rate in line).split() for rate in ("600,000", "500,000"))
    assert ours[-4:] == ["aioproducer", "600,000", "2.50", "1.25"]
    assert theirs[-4:] == ["kafka", "500,000", "3.00", "0.00"]
    [throughput] = [line for line in lines if "throughput" in line]
    assert "1.20× (1.20-1.20)" in throughput
    assert throughput.split()[-2:] == ["must", "reached"]
    [latency] = [line for line in lines if "latency" in line]
    assert "not measured" in latency
    assert lines[-1] == "failed: micro-batch, kafka: round 2: it broke"
