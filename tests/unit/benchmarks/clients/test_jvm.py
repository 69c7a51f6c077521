from __future__ import annotations

import pytest

from benchmarks.clients.jvm import numbers, properties, steady_rate
from benchmarks.settings import Settings, Work

SAID = """\
Warmup first 200000 records. Steady state results will print after the complete test summary.
159453 records sent, 31884.2 records/sec (3.04 MB/sec), 69.7 ms avg latency, 1215.0 ms max latency.
300000 records sent, 40821.880528 records/sec (3.89 MB/sec), 179.30 ms avg latency, 1215.00 ms max latency.
100000 steady state records sent, 75471.698113 records/sec (7.20 MB/sec), 394.72 ms avg latency.
[main] INFO org.apache.kafka.common.metrics.Metrics - Metrics reporters closed
"""


def test_the_rate_is_that_of_the_steady_state() -> None:
    assert steady_rate(SAID.splitlines()) == 75_471.698113


def test_no_rate_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="told no records/sec"):
        steady_rate(["Exception in thread main"])


def test_it_sends_its_warm_up_and_then_for_about_as_long_as_others() -> None:
    assert numbers(Settings(work=Work.BULK, seconds=2)) == (1_500_000, 500_000)
    assert numbers(Settings(work=Work.BULK, records=7)) == (500_007, 500_000)
    assert numbers(Settings(work=Work.BULK, value_bytes=1_000)) == (100_000, 50_000)


def test_it_has_the_settings_of_the_others_or_its_own() -> None:
    settings = Settings(work=Work.BULK, linger_ms=5, compression="lz4")
    assert properties(settings) == [
        "compression.type=lz4",
        "acks=all",
        "enable.idempotence=true",
        "batch.size=16384",
        "linger.ms=5",
    ]
    assert properties(Settings(work=Work.BULK, own_defaults=True)) == ["compression.type=none"]
