"""What a row is: its work, who does it, the figures that a run has, and what they have to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from benchmarks.clients import OURS
from benchmarks.settings import Settings, Tuning, Work


class Figure(NamedTuple):
    """A kind of number that a run has."""

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
    "compressor_us": Figure("of which the compressor", "µs"),
    "load_us": Figure("of which the load", "µs"),
    "rss_mib": Figure("peak memory", "MiB"),
    "kept_mib": Figure("memory kept after the last acknowledgement, above the start", "MiB"),
    "lag_ms": Figure("event loop lag p99.9, beyond a control", "ms"),
    "control_ms": Figure("the control's p99.9", "ms"),
    "import_ms": Figure("import, beyond asyncio's", "ms"),
    "first_ms": Figure("first acknowledged record, from process start", "ms"),
    "requests": Figure("Produce requests per 1,000 records", "requests"),
    "slow_share": Figure("records to the slow broker", "%"),
    "zone_share": Figure("bytes that leave the client's zone", "%"),
    "growth": Figure("largest growth of the cost from one size to a larger one", "×"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What our figure has to be: next to another client's (a ratio), or by itself if *against* is empty."""

    figure: str
    tuning: Tuning = Tuning.EQUAL
    """The table in which it is judged."""
    against: str = ""
    must: float | None = None
    goal: float | None = None
    ours: str = OURS


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of work with its settings, who does it, and what is to come of it."""

    name: str
    title: str
    settings: Settings
    clients: tuple[str, ...] = (OURS,)
    targets: tuple[Target, ...] = ()
    tunings: tuple[Tuning, ...] = tuple(Tuning)
    """The tables that it is in."""
    tuned_as: str = ""
    """The row whose sweep says what is best for it; its own, if empty."""
    quick: bool = False
    """Whether it is part of the short session."""
    lasts: float = 1.0
    """How many times as long as others it takes."""

    @property
    def work(self) -> Work:
        """Its kind."""
        return self.settings.work

    @property
    def in_process(self) -> bool:
        """True if the row uses in-process brokers and needs no Kafka."""
        return self.work in {Work.SCALE, Work.STEADY, Work.ZONES} or self.settings.slow_ms > 0

    @property
    def swept(self) -> bool:
        """Whether a sweep has to find what is best for it."""
        return Tuning.BEST in self.tunings and not self.tuned_as
