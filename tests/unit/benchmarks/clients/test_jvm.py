from __future__ import annotations

import pytest

from benchmarks.clients.jvm import latencies, numbers, steady_rate
from benchmarks.settings import Settings, Work

SAID = """\
13968 records sent, 2793.0 records/sec (0.27 MB/sec), 250.5 ms avg latency, 798.0 ms max latency.
20000 records sent, 3561.2 records/sec (0.34 MB/sec), 298.70 ms avg latency, 798.00 ms max latency, 505 ms 50th, 702 ms 95th, 755 ms 99th, 782 ms 99.9th.
12000 steady state records sent, 3461.2 records/sec (0.33 MB/sec), 300.98 ms avg latency, 790.00 ms max latency, 506 ms 50th, 703 ms 95th, 756 ms 99th, 783 ms 99.9th.
""".splitlines()


def test_figures_start_after_the_warm_up() -> None:
    assert steady_rate(SAID) == 3461.2
    assert latencies(SAID) == {"mean_ms": 300.98, "p50_ms": 506.0, "p99_ms": 756.0, "p999_ms": 783.0}


def test_output_without_figures_raises_runtime_error() -> None:
    with pytest.raises(RuntimeError, match="printed no latencies"):
        latencies(SAID[:1])
    with pytest.raises(RuntimeError, match="printed no records/sec"):
        steady_rate([])


def test_numbers_include_the_warm_up_at_the_given_rate() -> None:
    paced = Settings(work=Work.SLOW_BROKER, rate=4_000, warm_up_s=2.0, seconds=3.0)
    assert numbers(paced) == (20_000, 8_000)
    assert numbers(Settings(work=Work.BULK, seconds=2.0)) == (1_500_000, 500_000)
