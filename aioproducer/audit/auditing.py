"""One pass over the records of a run, in order of partition and offset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from aioproducer.audit.audit_report import FIRST_LOST, AuditReport, PartitionAudit


@dataclass(slots=True)
class _Tally:
    """A `PartitionAudit` in the making."""

    partition: int
    records: int
    first_offset: int
    last_offset: int
    flaws: dict[str, int] = field(default_factory=dict)
    """How often each was found, and under its name and `_at`, where first."""

    def note(self, flaw: str, offset: int) -> None:
        """Count a *flaw* at *offset*."""
        self.flaws[flaw] = self.flaws.get(flaw, 0) + 1
        self.flaws.setdefault(f"{flaw}_at", offset)

    def audit(self) -> PartitionAudit:
        """Return what was found."""
        return PartitionAudit(self.partition, self.records, self.first_offset, self.last_offset, **self.flaws)


@dataclass(slots=True)
class _Lane:
    """The highest sequences of a lane in the present partition."""

    highest: int = -1
    highest_copy: int = -1


class Audit:
    """Finds out what was lost, duplicated or out of order of the records 0, 1, 2, … that a run sent.

    The first copy of a record, by partition and offset, is the record, any other a duplicate. A record is out of order
    behind a higher sequence of its lane in its partition; duplicates do not count. With *order*, a record out of order is a flaw.

    *expect* is how many the run sent; if it is not known, the highest sequence says. Memory: a bit per record.
    """

    def __init__(self, run: str | None = None, *, expect: int | None = None, order: bool = False) -> None:
        if expect is not None and expect < 0:
            raise ValueError(f"expect = {expect}: a run cannot have sent that many")
        self._run = run
        self._expect = expect
        self._order = order
        self._seen = Sequences()
        self._highest = -1
        self._lanes: dict[bytes | None, _Lane] = {}
        self._tallies: list[_Tally] = []
        # Records out of order may be copies themselves: what is sent again after a kill may go to another partition.
        self._late = Sequences()
        self._displaced = Sequences()
        self._behind_copies = 0

    def add(self, partition: int, offset: int, sequence: int | None, lane: bytes | None = None) -> None:
        """Take the next record of the run into account; a *sequence* of None is one that could not be read.

        *lane* is the record's `lane_of`, if several producers or tasks sent the run.

        Raises:
            ValueError: it does not come behind the one before.
        """
        tally = self._tally(partition, offset)
        tally.records += 1
        tally.last_offset = offset
        here = self._lanes.get(lane)
        if here is None:
            here = self._lanes[lane] = _Lane()
        if sequence is None or sequence < 0 or (self._expect is not None and sequence >= self._expect):
            tally.note("unexpected", offset)
        elif not self._seen.add(sequence):
            tally.note("duplicated", offset)
            self._look_for_displaced(sequence, here)
        elif sequence > here.highest:
            here.highest = sequence
            self._highest = max(self._highest, sequence)
            self._behind_copies += sequence < here.highest_copy
        else:
            tally.note("out_of_order", offset)
            _ = self._late.add(sequence)

    def report(self) -> AuditReport:
        """Return what was found so far."""
        expected = self._highest + 1 if self._expect is None else self._expect
        return AuditReport(
            run=self._run,
            expected=expected,
            expected_was_told=self._expect is not None,
            lost=expected - len(self._seen),
            first_lost=tuple(islice(self._seen.missing(expected), FIRST_LOST)),
            partitions=tuple(tally.audit() for tally in self._tallies),
            order_required=self._order,
            displaced=max(0, len(self._displaced) - self._behind_copies),
        )

    def _look_for_displaced(self, sequence: int, here: _Lane) -> None:
        """See whether this copy is in order here, of a record whose first one was not, in a lower partition."""
        in_order = sequence > here.highest and sequence > here.highest_copy
        if in_order and sequence in self._late and self._displaced.add(sequence):
            here.highest_copy = sequence

    def _tally(self, partition: int, offset: int) -> _Tally:
        if self._tallies:
            last = self._tallies[-1]
            if partition == last.partition and offset > last.last_offset:
                return last
            if partition <= last.partition:
                raise ValueError(
                    f"partition {partition}, offset {offset} behind partition {last.partition}, offset "
                    f"{last.last_offset}: an audit takes records in order of partition and offset"
                )
        self._lanes.clear()
        tally = _Tally(partition, 0, offset, offset)
        self._tallies.append(tally)
        return tally


PIECE_BITS: Final = 4_096
PIECE_BYTES: Final = PIECE_BITS // 8
FULL: Final = b"\xff" * PIECE_BYTES


class Sequences:
    """A set of integers from 0 on, of which most are there: a bit each.

    The bits are kept in pieces, so that one integer far off from the others costs 512 bytes, not all between.
    """

    def __init__(self) -> None:
        self._pieces: dict[int, bytearray] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, sequence: int) -> bool:
        """Add *sequence*; return whether it is new."""
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
        """Yield what is not there of 0 to *end* - 1, in order."""
        for first in range(0, end, PIECE_BITS):
            piece = self._pieces.get(first // PIECE_BITS, bytes(PIECE_BYTES))
            if piece != FULL:
                for sequence in range(first, min(first + PIECE_BITS, end)):
                    bit = sequence - first
                    if not piece[bit >> 3] & 1 << (bit & 7):
                        yield sequence
