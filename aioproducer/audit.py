"""Audit of a run of records: counts lost, duplicated and out-of-order records in the topic.

    await producer.send("orders", value, headers=stamp("nightly-7", number))  # number: 0, 1, 2, …

    audit = Audit("nightly-7", expect=1_000)
    for record in records:  # by partition and offset
        if belongs_to("nightly-7", record.headers):
            audit.add(partition, record.offset, sequence_of(record.headers))
    print(audit.report())

The command `aioproducer audit` audits the records of a topic; `aioproducer.spark.audit` runs the audit on Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Final

__all__ = [
    "LANE_HEADER",
    "RUN_HEADER",
    "SEQUENCE_HEADER",
    "Audit",
    "AuditReport",
    "PartitionAudit",
    "belongs_to",
    "lane_of",
    "sequence_of",
    "stamp",
]

FIRST_LOST: Final = 20
"""Maximum number of lost sequences in a report."""


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """Flaws of one partition, each with its count and its lowest offset. The offset is None if the count is 0."""

    partition: int
    records: int
    """Number of the run's records. Records of other runs may lie between the run's records."""
    first_offset: int
    last_offset: int
    duplicated: int = 0
    """Copies of records that are earlier in this partition or in a lower partition."""
    duplicated_at: int | None = None
    out_of_order: int = 0
    """Records, other than copies, behind a record of a higher sequence in their lane."""
    out_of_order_at: int | None = None
    unexpected: int = 0
    """Records whose sequence is missing or outside 0 to `expected` - 1."""
    unexpected_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The findings about a run's records."""

    run: str | None
    expected: int
    """Expected number of records: the argument `expect`, or the highest sequence plus one."""
    expect_was_given: bool
    """True if `expect` was given. If False, the loss of the run's last records cannot be detected."""
    lost: int
    """Number of expected records that are in no partition."""
    first_lost: tuple[int, ...]
    """The lowest sequences of lost records, at most 20."""
    partitions: tuple[PartitionAudit, ...]
    """Partitions with records of the run, in order."""
    order_required: bool = False
    """True if records out of order are a flaw."""
    displaced: int = field(default=0, compare=False)
    """Number of out-of-order records with another copy in order, in a higher partition. Always 0 in an audit on Spark."""

    @property
    def records(self) -> int:
        """Number of the run's records, including copies."""
        return sum(part.records for part in self.partitions)

    @property
    def duplicated(self) -> int:
        """Number of copies of other records."""
        return sum(part.duplicated for part in self.partitions)

    @property
    def out_of_order(self) -> int:
        """Number of records, other than copies, behind a record of a higher sequence in their partition and lane."""
        return sum(part.out_of_order for part in self.partitions)

    @property
    def unexpected(self) -> int:
        """Number of records without a sequence or with an unexpected sequence."""
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
        return not self.flaws and (self.records > 0 or self.expect_was_given)

    @property
    def doubled_only(self) -> bool:
        """True if copies are the only flaw: nothing is lost, and, if order is required, one copy of each record is in order.

        A sender that was killed and continued from its checkpoint leaves a run with copies. Without keys, copies may be
        in another partition than the record, behind higher sequences.
        """
        harmless = self.lost == self.unexpected == 0 and (self.keeps_order or not self.order_required)
        return harmless and self.duplicated > 0

    @property
    def keeps_order(self) -> bool:
        """True if one copy of each record is in order in its partition and lane."""
        return self.out_of_order == self.displaced

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a dict for JSON."""
        names = (
            "run ok doubled_only order_required expected expect_was_given records lost first_lost"
            " duplicated out_of_order unexpected"
        )
        values = {name: getattr(self, name) for name in names.split()}
        partitions = [asdict(part) for part in self.partitions]
        return {**values, "first_lost": list(self.first_lost), "partitions": partitions}

    def __str__(self) -> str:
        whose = "" if self.run is None else f" of run {self.run}"
        found = ", ".join(f"{count:,} {flaw}" for flaw, count in self.flaws.items())
        if not found:
            once = "each once" if self.out_of_order else "each once, in order"
            found = once if self.ok else "no record found"
        return f"{self.records:,} records{whose}, {self.expected:,} expected: {found}"


RUN_HEADER: Final = "aioproducer-run"
"""Header with the run's id, in UTF-8."""
SEQUENCE_HEADER: Final = "aioproducer-seq"
"""Header with the sequence, a number from 0 in decimal digits."""
LANE_HEADER: Final = "aioproducer-lane"
"""Header with the name, in UTF-8, of a producer or task that keeps an order; optional."""

MAX_DIGITS: Final = 18
"""Number of decimal digits that always fit into an int64."""


def stamp(run: str, sequence: int, lane: str | None = None) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of a record of *run*. *sequence* counts the records of the run, 0, 1, 2, …, in sending order.

    If several producers or tasks send for one run, *lane* names the sender of this record: the audit checks the order
    within a lane. Records without a lane (None) form one lane.

    Raises: TypeError, ValueError: the run's id is empty, or the sequence is below 0 or has more than 18 digits.
    """
    if type(run) is not str or type(sequence) is not int:
        raise TypeError(
            f"run must be str and sequence int, not {type(run).__name__}, {type(sequence).__name__}"
        )
    if not run or not 0 <= sequence < 10**MAX_DIGITS:
        raise ValueError(
            f"a run has a name and sequences from 0 up to {MAX_DIGITS} digits, not {run!r}, {sequence}"
        )
    headers = (RUN_HEADER, run.encode()), (SEQUENCE_HEADER, b"%d" % sequence)
    return headers if lane is None else (*headers, (LANE_HEADER, lane.encode()))


def belongs_to(run: str, headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Return True if a record with *headers* belongs to *run*."""
    return _first(RUN_HEADER, headers) == run.encode()


def sequence_of(headers: Iterable[tuple[str, bytes | None]]) -> int | None:
    """Return the sequence of a record with *headers*; None if the sequence is missing or not a number."""
    digits = _first(SEQUENCE_HEADER, headers)
    return None if digits is None or not digits.isdigit() or len(digits) > MAX_DIGITS else int(digits)


def lane_of(headers: Iterable[tuple[str, bytes | None]]) -> bytes | None:
    """Return the lane of a record with *headers*; None if the record has no lane."""
    return _first(LANE_HEADER, headers)


def _first(name: str, headers: Iterable[tuple[str, bytes | None]]) -> bytes | None:
    return next((value for key, value in headers if key == name), None)


@dataclass(slots=True)
class _PartitionCounters:
    """Counters of one partition, from which its `PartitionAudit` is built."""

    partition: int
    records: int
    first_offset: int
    last_offset: int
    flaws: dict[str, int] = field(default_factory=dict)
    """Count by the name of a flaw, and offset of the first flawed record by this name with `_at`."""

    def note(self, flaw: str, offset: int) -> None:
        """Count a *flaw* at *offset*."""
        self.flaws[flaw] = self.flaws.get(flaw, 0) + 1
        self.flaws.setdefault(f"{flaw}_at", offset)

    def audit(self) -> PartitionAudit:
        """Return the counters as a `PartitionAudit`."""
        return PartitionAudit(self.partition, self.records, self.first_offset, self.last_offset, **self.flaws)


@dataclass(slots=True)
class _Lane:
    """The highest sequences of a lane in the current partition."""

    highest: int = -1
    highest_copy: int = -1


class Audit:
    """Counter of lost, duplicated and out-of-order records of a run, which has sent the records 0, 1, 2, ….

    The first copy of a record, by partition and offset, counts as the record, every other copy as a duplicate. A record behind
    a higher sequence of its lane in its partition is out of order. Duplicates are never out of order. With *order*, a record
    out of order is a flaw.

    *expect* is the number of records that the run has sent. Default: the highest sequence plus one. Memory: one bit per
    record.
    """

    def __init__(self, run: str | None = None, *, expect: int | None = None, order: bool = False) -> None:
        if expect is not None and expect < 0:
            raise ValueError(f"expect = {expect}: expected a number of records, 0 or more")
        self._run = run
        self._expect = expect
        self._order = order
        self._seen = Sequences()
        self._highest = -1
        self._lanes: dict[bytes | None, _Lane] = {}
        self._partitions: list[_PartitionCounters] = []
        # Out-of-order records may be copies: after a kill, a record may be resent to another partition.
        self._late = Sequences()
        self._displaced = Sequences()
        self._behind_copies = 0

    def add(self, partition: int, offset: int, sequence: int | None, lane: bytes | None = None) -> None:
        """Add the next record of the run. *sequence* is None if the sequence header could not be read.

        *lane* is the record's `lane_of`, if several producers or tasks sent the run.

        Raises:
            ValueError: the record is not behind the previous record.
        """
        counters = self._counters(partition, offset)
        counters.records += 1
        counters.last_offset = offset
        here = self._lanes.get(lane)
        if here is None:
            here = self._lanes[lane] = _Lane()
        if sequence is None or sequence < 0 or (self._expect is not None and sequence >= self._expect):
            counters.note("unexpected", offset)
        elif not self._seen.add(sequence):
            counters.note("duplicated", offset)
            self._count_displaced(sequence, here)
        elif sequence > here.highest:
            here.highest = sequence
            self._highest = max(self._highest, sequence)
            self._behind_copies += sequence < here.highest_copy
        else:
            counters.note("out_of_order", offset)
            _ = self._late.add(sequence)

    def report(self) -> AuditReport:
        """Return the findings so far."""
        expected = self._highest + 1 if self._expect is None else self._expect
        return AuditReport(
            run=self._run,
            expected=expected,
            expect_was_given=self._expect is not None,
            lost=expected - len(self._seen),
            first_lost=tuple(islice(self._seen.missing(expected), FIRST_LOST)),
            partitions=tuple(counters.audit() for counters in self._partitions),
            order_required=self._order,
            displaced=max(0, len(self._displaced) - self._behind_copies),
        )

    def _count_displaced(self, sequence: int, here: _Lane) -> None:
        """Count an in-order copy of a record whose first copy, in a lower partition, is out of order."""
        in_order = sequence > here.highest and sequence > here.highest_copy
        if in_order and sequence in self._late and self._displaced.add(sequence):
            here.highest_copy = sequence

    def _counters(self, partition: int, offset: int) -> _PartitionCounters:
        if self._partitions:
            last = self._partitions[-1]
            if partition == last.partition and offset > last.last_offset:
                return last
            if partition <= last.partition:
                raise ValueError(
                    f"partition {partition}, offset {offset} behind partition {last.partition}, offset "
                    f"{last.last_offset}: an audit takes records in order of partition and offset"
                )
        self._lanes.clear()
        counters = _PartitionCounters(partition, 0, offset, offset)
        self._partitions.append(counters)
        return counters


PIECE_BITS: Final = 4_096
PIECE_BYTES: Final = PIECE_BITS // 8
FULL: Final = b"\xff" * PIECE_BYTES


class Sequences:
    """A dense set of integers from 0, one bit each.

    The bits are stored in pieces of 512 bytes, so a distant integer costs one piece.
    """

    def __init__(self) -> None:
        self._pieces: dict[int, bytearray] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, sequence: int) -> bool:
        """Add *sequence*; return True if *sequence* is new."""
        number, bit = divmod(sequence, PIECE_BITS)
        piece = self._pieces.get(number)
        if piece is None:
            piece = self._pieces[number] = bytearray(PIECE_BYTES)
        byte, mask = bit >> 3, 1 << (bit & 7)
        if piece[byte] & mask:
            return False
        piece[byte] |= mask
        self._count += 1
        return True

    def __contains__(self, sequence: int) -> bool:
        number, bit = divmod(sequence, PIECE_BITS)
        piece = self._pieces.get(number)
        return piece is not None and bool(piece[bit >> 3] & 1 << (bit & 7))

    def missing(self, end: int) -> Iterator[int]:
        """Yield the missing integers from 0 to *end* - 1, in order."""
        for first in range(0, end, PIECE_BITS):
            piece = self._pieces.get(first // PIECE_BITS, bytes(PIECE_BYTES))
            if piece != FULL:
                for sequence in range(first, min(first + PIECE_BITS, end)):
                    bit = sequence - first
                    if not piece[bit >> 3] & 1 << (bit & 7):
                        yield sequence
