from __future__ import annotations

import time

from benchmarks.child.watch import MemoryWatch, Watch, peak_rss_mib


def test_a_watch_counts_time_and_cpu_per_record() -> None:
    watch = Watch()
    began, cpu_began = time.perf_counter(), time.process_time()
    while time.process_time() - cpu_began < 0.01:
        pass
    figures = watch.figures(1_000)
    took = time.perf_counter() - began
    assert 10 <= figures["cpu_us"] <= 1_000
    assert 1_000 / figures["records_s"] >= took * 0.5


def test_memory_is_looked_at_as_often_as_told() -> None:
    watch = MemoryWatch()
    held = bytearray(b"x") * (64 << 20)
    watch.look()
    assert len(held) == 64 << 20
    (first_s, first), (second_s, second) = watch.series
    assert second_s >= first_s
    assert second - first > 50
    assert peak_rss_mib() >= second - 1
