"""Sizes and shapes of the curves of scale."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SIZES: Final = {"partitions": (10, 100, 1_000, 10_000), "topics": (1, 10, 100, 1_000, 5_000)}
QUICK_SIZES: Final = {"partitions": (10, 1_000), "topics": (100, 1_000)}
"""Sizes of `quick` and `scale --quick`."""

FEW: Final = 10
RECORDS_A_BATCH: Final = 100
LEAST_RECORDS: Final = 100_000
"""Minimum number of records at each size. Every active partition receives at least one batch."""
LEAST_BATCHES: Final = 20_000
"""Minimum number of batches with one record at each size."""

Target = tuple[str, int]
"""A topic and a partition."""


class Shape(StrEnum):
    """Active partitions and batch size."""

    TEN = "ten"
    ALL = "all"
    SINGLE = "single"
    """All partitions, with one record per batch."""

    @property
    def counts_from(self) -> int:
        """Smallest size in the growth. With one record per batch, a single partition is cheaper for reasons other than scale."""
        return 100 if self is Shape.SINGLE else 0


@dataclass(frozen=True, slots=True)
class Point:
    """One size of one curve."""

    what: str
    """Scaled quantity: partitions or topics."""
    shape: Shape
    size: int

    @property
    def topics(self) -> dict[str, int]:
        """Topics of the cluster, with their number of partitions."""
        if self.what == "partitions":
            return {"scale": self.size}
        return {f"scale-{number}": 1 for number in range(self.size)}

    @property
    def active(self) -> list[Target]:
        """Partitions that receive records."""
        everything = [
            (topic, partition) for topic, count in self.topics.items() for partition in range(count)
        ]
        return everything[:FEW] if self.shape is Shape.TEN else everything

    @property
    def records_a_batch(self) -> int:
        """Number of records per batch."""
        return 1 if self.shape is Shape.SINGLE else RECORDS_A_BATCH

    def rounds(self, least_records: int = 0) -> int:
        """Return the number of batches per active partition for at least *least_records* (0: default of the shape)."""
        if not least_records:
            least_records = LEAST_BATCHES if self.shape is Shape.SINGLE else LEAST_RECORDS
        return max(1, -(-least_records // (len(self.active) * self.records_a_batch)))
