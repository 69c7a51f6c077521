"""Counters, updated per batch: cheap enough to be always on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class TopicMetrics:
    """What became of the records of one topic since the producer was started."""

    records_delivered: int = 0
    records_failed: int = 0
    batches_delivered: int = 0
    bytes_delivered: int = 0
    """As they were sent: encoded, compressed."""
    bytes_before_compression: int = 0
    """The upper bound that appending counts with: some 2 % more than the records took."""


class Metrics:
    """All counters of one producer."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicMetrics] = {}

    def topic(self, name: str) -> TopicMetrics:
        """Return the counters of topic *name*."""
        counters = self.topics.get(name)
        if counters is None:
            counters = self.topics[name] = TopicMetrics()
        return counters

    def total(self) -> dict[str, Any]:
        """Return the sums over all topics."""
        totals = asdict(TopicMetrics())
        for counters in self.topics.values():
            for name, value in asdict(counters).items():
                totals[name] += value
        return totals
