"""The findings of an audit."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

FIRST_LOST: Final = 20
"""So many of the lost sequences are named."""


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """What is wrong in one partition, each with the lowest offset where it is: None if it is nowhere."""

    partition: int
    records: int
    """Of the run; those of others may lie between them."""
    first_offset: int
    last_offset: int
    duplicated: int = 0
    """Copies of records that come earlier in this partition, or are in a lower one."""
    duplicated_at: int | None = None
    out_of_order: int = 0
    """Records, other than copies, behind a record of a higher sequence in their lane."""
    out_of_order_at: int | None = None
    unexpected: int = 0
    """Records of which the sequence is missing, or not one of 0 to `expected` - 1."""
    unexpected_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What became of a run's records."""

    run: str | None
    expected: int
    """How many records the run should have: what the audit was told, or the highest sequence found, and one."""
    expected_was_told: bool
    """If not, nobody can say whether the run's last records were lost."""
    lost: int
    """How many of them are in no partition."""
    first_lost: tuple[int, ...]
    """Their lowest sequences, at most 20."""
    partitions: tuple[PartitionAudit, ...]
    """Those that have records of the run, in order."""
    order_required: bool = False
    """True if records out of order are a flaw."""
    displaced: int = field(default=0, compare=False)
    """How many of those out of order are copies: the record is in a higher partition, and in order there. Not known of
    an audit on Spark."""

    @property
    def records(self) -> int:
        """How many records of the run there are, copies included."""
        return sum(part.records for part in self.partitions)

    @property
    def duplicated(self) -> int:
        """How many of them are copies of others."""
        return sum(part.duplicated for part in self.partitions)

    @property
    def out_of_order(self) -> int:
        """Number of records, other than copies, behind a record of a higher sequence in their partition and lane."""
        return sum(part.out_of_order for part in self.partitions)

    @property
    def unexpected(self) -> int:
        """How many have no sequence, or one that is not expected."""
        return sum(part.unexpected for part in self.partitions)

    @property
    def flaws(self) -> dict[str, int]:
        """Number of records by flaw; empty without a flaw. "out of order" is a flaw only if order is required."""
        counts = {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "out of order": self.out_of_order if self.order_required else 0,
            "unexpected": self.unexpected,
        }
        return {flaw: count for flaw, count in counts.items() if count}

    @property
    def ok(self) -> bool:
        """True if the audit found no flaw; a run without any record is a flaw, unless `expect` was 0."""
        return not self.flaws and (self.records > 0 or self.expected_was_told)

    @property
    def doubled_only(self) -> bool:
        """True if copies are the only flaw: nothing is lost, and, if order is required, one copy of each record is in order.

        A sender that was killed and continued from its checkpoint leaves such a run. Without keys, copies may be in
        another partition than the record, behind higher sequences.
        """
        harmless = self.lost == self.unexpected == 0 and (self.keeps_order or not self.order_required)
        return harmless and self.duplicated > 0

    @property
    def keeps_order(self) -> bool:
        """True if one copy of each record is in order in its partition and lane."""
        return self.out_of_order == self.displaced

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "run": self.run,
            "ok": self.ok,
            "doubled_only": self.doubled_only,
            "order_required": self.order_required,
            "expected": self.expected,
            "expected_was_told": self.expected_was_told,
            "records": self.records,
            "lost": self.lost,
            "first_lost": list(self.first_lost),
            "duplicated": self.duplicated,
            "out_of_order": self.out_of_order,
            "unexpected": self.unexpected,
            "partitions": [asdict(part) for part in self.partitions],
        }

    def __str__(self) -> str:
        whose = "" if self.run is None else f" of run {self.run}"
        found = ", ".join(f"{count:,} {flaw}" for flaw, count in self.flaws.items())
        if not found:
            once = "each once" if self.out_of_order else "each once, in order"
            found = once if self.ok else "nothing was found"
        return f"{self.records:,} records{whose}, {self.expected:,} expected: {found}"
