"""Results as a session leaves them, small enough to be written here."""

from __future__ import annotations

from benchmarks.figures import Played, Results, Run
from benchmarks.settings import Tuning

LATENCIES = {"p50_ms": 1.0, "p90_ms": 2.0, "p99_ms": 4.0, "p999_ms": 8.0}


def run(**figures: float) -> Run:
    return Run(sent=10, figures=dict(figures))


def closed() -> Played:
    """Three rounds, in the second of which aiokafka has failed."""
    return Played(
        runs={
            "aioproducer": [
                run(records_s=rate, cpu_us=2.0, **LATENCIES) for rate in (300_000.0, 400_000.0, 500_000.0)
            ],
            "aiokafka": [
                run(records_s=100_000.0, cpu_us=8.0, **LATENCIES),
                None,
                run(records_s=125_000.0, cpu_us=9.0, **LATENCIES),
            ],
        },
        failures={"aiokafka": ["round 2: ended with 1:\nit <b>broke</b>"]},
    )


def results() -> Results:
    curve = Run(sent=10, figures={"growth": 1.1}, series=[(10, 5.0), (1_000, 5.5)])
    memory = Run(
        sent=10, figures={"rss_mib": 90.0, "records_s": 1e5, "cpu_us": 5.0}, series=[(0.0, 30.0), (1.0, 90.0)]
    )
    return Results(
        made="2026-01-31",
        machine={"processor": "A Processor", "cores": "2 cores"},
        versions={"CPython": "3.11.7", "aiokafka": "0.14.0"},
        options={"rounds": 3, "value_bytes": None},
        tables={
            Tuning.DEFAULTS: {"closed": closed()},
            Tuning.BEST: {"closed": closed()},
            Tuning.EQUAL: {
                "closed": closed(),
                "memory": Played(runs={"aioproducer": [memory]}),
                "scale-partitions-all": Played(runs={"aioproducer": [curve]}),
            },
        },
        best={"closed": {"aioproducer": {}, "aiokafka": {"max_batch_size": 65_536, "linger_ms": 1}}},
    )
