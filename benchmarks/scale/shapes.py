"""What the curves of scale go over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SIZES: Final = {"partitions": (10, 100, 1_000, 10_000), "topics": (1, 10, 100, 1_000, 5_000)}
QUICK_SIZES: Final = {"partitions": (10, 1_000), "topics": (100, 1_000)}
"""For the short session and for trying things out."""

FEW: Final = 10
RECORDS_A_BATCH: Final = 100
LEAST_RECORDS: Final = 100_000
"""Of which the cost is taken at each size; every active partition has a batch of them, however many those are."""
LEAST_BATCHES: Final = 20_000
"""The same, where a batch is one record."""

Target = tuple[str, int]
"""A topic and a partition."""


class Shape(StrEnum):
    """Who is active."""

    TEN = "ten"
    ALL = "all"
    SINGLE = "single"
    """All, with one record a batch."""

    @property
    def counts_from(self) -> int:
        """Smallest size in the growth. With one record a batch, a single partition is cheaper for reasons other than scale."""
        return 100 if self is Shape.SINGLE else 0


@dataclass(frozen=True, slots=True)
class Point:
    """One size of one curve."""

    what: str
    """partitions or topics"""
    shape: Shape
    size: int

    @property
    def topics(self) -> dict[str, int]:
        """What there has to be: topics, and how many partitions each."""
        if self.what == "partitions":
            return {"scale": self.size}
        return {f"scale-{number}": 1 for number in range(self.size)}

    @property
    def active(self) -> list[Target]:
        """The partitions that are written to."""
        everything = [
            (topic, partition) for topic, count in self.topics.items() for partition in range(count)
        ]
        return everything[:FEW] if self.shape is Shape.TEN else everything

    @property
    def records_a_batch(self) -> int:
        """How many records make a batch full."""
        return 1 if self.shape is Shape.SINGLE else RECORDS_A_BATCH

    def rounds(self, least_records: int = 0) -> int:
        """Return how often each active partition gets a batch, for so many records at least (0: as declared)."""
        if not least_records:
            least_records = LEAST_BATCHES if self.shape is Shape.SINGLE else LEAST_RECORDS
        return max(1, -(-least_records // (len(self.active) * self.records_a_batch)))
