"""What a run takes: time, CPU of the whole process (the threads of native clients included), memory."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

import psutil

from benchmarks.figures import Series

MIB: Final = 1024 * 1024


class Watch:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._cpu_began = time.process_time()

    def figures(self, records: int) -> dict[str, float]:
        """Return the figures of a run that ends now with so many *records* acknowledged."""
        cpu_s = time.process_time() - self._cpu_began
        seconds = time.perf_counter() - self._began
        return {"records_s": records / seconds, "cpu_us": cpu_s / records * 1e6}


class MemoryWatch:
    """Looks at this process's resident memory, as often as it is told to."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._began = time.perf_counter()
        self.series: Series = []
        self.look()

    def look(self) -> None:
        """Note how much it is now."""
        seconds = time.perf_counter() - self._began
        self.series.append((round(seconds, 4), round(self._process.memory_info().rss / MIB, 2)))


def peak_rss_mib() -> float:
    """Return the most memory that this process ever had.

    From /proc where there is one: what `getrusage` says there is not less than its parent had when it started us.
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
