"""Type of a row: workload, clients, figures and targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from benchmarks.clients import OURS
from benchmarks.settings import Settings, Tuning, Work


class Figure(NamedTuple):
    """Title and unit of a measured quantity."""

    title: str
    unit: str
    more_is_better: bool = False


FIGURES: Final = {
    "records_s": Figure("throughput", "records/s", more_is_better=True),
    "cpu_us": Figure("CPU per record", "µs"),
    "mean_ms": Figure("latency mean", "ms"),
    "p50_ms": Figure("latency p50", "ms"),
    "p90_ms": Figure("latency p90", "ms"),
    "p99_ms": Figure("latency p99", "ms"),
    "p999_ms": Figure("latency p99.9", "ms"),
    "compressor_us": Figure("CPU per record of the compressor", "µs"),
    "load_us": Figure("CPU per record of the load", "µs"),
    "rss_mib": Figure("peak memory", "MiB"),
    "kept_mib": Figure("memory growth from the start to the last acknowledgement", "MiB"),
    "lag_ms": Figure("event loop lag p99.9, minus the control", "ms"),
    "control_ms": Figure("event loop lag p99.9 of the control", "ms"),
    "import_ms": Figure("import, without asyncio", "ms"),
    "first_ms": Figure("first acknowledged record, from process start", "ms"),
    "requests": Figure("Produce requests per 1,000 records", "requests"),
    "slow_share": Figure("records to the slow broker", "%"),
    "zone_share": Figure("bytes that leave the client's zone", "%"),
    "growth": Figure("largest growth of the cost from a size to a larger size", "×"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Required figure of aioproducer: a ratio to the client *against*, or an absolute value if *against* is empty."""

    figure: str
    tuning: Tuning = Tuning.EQUAL
    """Table that the target applies to."""
    against: str = ""
    must: float | None = None
    goal: float | None = None
    ours: str = OURS


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A workload with its settings, clients and targets."""

    name: str
    title: str
    settings: Settings
    clients: tuple[str, ...] = (OURS,)
    targets: tuple[Target, ...] = ()
    tunings: tuple[Tuning, ...] = tuple(Tuning)
    """Tables that include the row."""
    tuned_as: str = ""
    """Row whose sweep determines the best options; this row if empty."""
    quick: bool = False
    """True if `quick` measures the row."""
    lasts: float = 1.0
    """Duration of a run, as a multiple of `--seconds`."""

    @property
    def work(self) -> Work:
        """Workload of the row."""
        return self.settings.work

    @property
    def in_process(self) -> bool:
        """True if the row uses in-process brokers and needs no Kafka."""
        return self.work in {Work.SCALE, Work.STEADY, Work.ZONES} or self.settings.slow_ms > 0

    @property
    def swept(self) -> bool:
        """True if a sweep must find the best options of the row."""
        return Tuning.BEST in self.tunings and not self.tuned_as
