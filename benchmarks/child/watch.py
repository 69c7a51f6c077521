"""Measurement of a run: time, memory, and CPU of the whole process, including threads of native clients."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

import psutil

from benchmarks.figures import Series

MIB: Final = 1024 * 1024


class Watch:
    """Stopwatch for time and CPU, started when it is created."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._cpu_began = time.process_time()

    def figures(self, records: int) -> dict[str, float]:
        """Return the figures of a run that ends now with *records* acknowledged records."""
        cpu_s = time.process_time() - self._cpu_began
        seconds = time.perf_counter() - self._began
        return {"records_s": records / seconds, "cpu_us": cpu_s / records * 1e6}


class MemoryWatch:
    """Series of samples of this process's resident memory."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._began = time.perf_counter()
        self.series: Series = []
        self.look()

    def look(self) -> None:
        """Add a sample of the resident memory."""
        seconds = time.perf_counter() - self._began
        self.series.append((round(seconds, 4), round(self._process.memory_info().rss / MIB, 2)))


def peak_rss_mib() -> float:
    """Return the peak resident memory of this process, in MiB.

    On Linux the value is read from /proc, because `getrusage` there includes the parent's memory at the fork.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name == "VmHWM":
                return int(value.split()[0]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (MIB if sys.platform == "darwin" else 1024)
