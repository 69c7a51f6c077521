"""State of the producers and transactions in one partition, and the checks of their batches.

Source: Kafka's ProducerStateManager, ProducerAppendInfo and TransactionIndex; KIP-98, and KIP-360 for unknown producers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from aioproducer._core.records.columns import RecordColumns
from aioproducer._core.records.record_batch import (
    CHECKED_FROM,
    CONTROL,
    CRC,
    CRC_AT,
    HEADER,
    TRANSACTIONAL,
    encode_batch,
)
from aioproducer._core.wire import crc32c
from aioproducer.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber
from aioproducer.testing.faults import Refused

REMEMBERED_BATCHES = 5
"""Remembered batches per producer, which limit its requests in flight on a connection to five."""

MAX_SEQUENCE = 0x7FFFFFFF


class Stamp(NamedTuple):
    """Producer id, epoch, first sequence and number of records of an idempotent producer's batch."""

    producer_id: int
    epoch: int
    first_sequence: int
    records: int

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; 0 follows the largest int32."""
        return (self.first_sequence + self.records - 1) & MAX_SEQUENCE


@dataclass(slots=True)
class _Producer:
    """State of one producer, without batches after a marker with a new epoch."""

    epoch: int
    recent: deque[tuple[Stamp, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


@dataclass(slots=True)
class _Beginning:
    """Lowest sequence of a producer's attempts to begin a transaction (Kafka's VerificationStateEntry)."""

    epoch: int
    sequence: int
    from_zero: bool


class ProducerStates:
    """States of the producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        self._beginnings: dict[int, _Beginning] = {}
        """Attempts to begin a transaction in this partition, by producer id."""

    def restart(self) -> None:
        """Keep the last batch of each producer, as the snapshot of a restarted broker."""
        for producer in self._producers.values():
            while len(producer.recent) > 1:
                _ = producer.recent.popleft()

    def offset_of_duplicate(self, stamp: Stamp) -> int | None:
        """Return the offset of a batch with this stamp among the producer's last five, or None."""
        producer = self._producers.get(stamp.producer_id)
        if producer is None:
            return None
        return next((offset for known, offset in producer.recent if known == stamp), None)

    def epoch(self, producer_id: int) -> int:
        """Return the last epoch of a producer; -1 for an unknown producer."""
        producer = self._producers.get(producer_id)
        return -1 if producer is None else producer.epoch

    def known(self) -> dict[int, tuple[int, int]]:
        """Return epoch and last sequence of each producer; -1 without a batch in its epoch."""
        return {
            producer_id: (each.epoch, each.recent[-1][0].last_sequence if each.recent else -1)
            for producer_id, each in self._producers.items()
        }

    def begins(self, stamp: Stamp, *, from_zero: bool) -> None:
        """Record a batch that begins a transaction: no later batch may overtake it (KIP-890).

        *from_zero*: the epoch belongs to this transaction alone, which therefore begins with sequence 0.
        """
        known = self._beginnings.get(stamp.producer_id)
        if known is None:
            self._beginnings[stamp.producer_id] = _Beginning(stamp.epoch, stamp.first_sequence, from_zero)
        elif stamp.epoch > known.epoch:
            known.epoch, known.sequence = stamp.epoch, stamp.first_sequence
        else:
            known.sequence = min(known.sequence, stamp.first_sequence)

    def check(self, stamp: Stamp) -> None:
        """Raise Refused unless the batch is the next batch of its producer.

        An unknown producer may start at any sequence, because its records may have been deleted (KIP-360).
        """
        producer = self._producers.get(stamp.producer_id)
        beginning = self._beginnings.get(stamp.producer_id)
        if producer is None:
            if beginning is not None and stamp.first_sequence > (
                0 if beginning.from_zero else beginning.sequence
            ):
                raise Refused(
                    OutOfOrderSequenceNumber, f"producer {stamp.producer_id} must begin at a lower sequence"
                )
            return
        if stamp.epoch < producer.epoch:
            raise Refused(
                InvalidProducerEpoch,
                f"producer {stamp.producer_id} has epoch {stamp.epoch}, lower than the last epoch {producer.epoch}",
            )
        if stamp.epoch > producer.epoch or not producer.recent:
            expected = 0
        else:
            last, _ = producer.recent[-1]
            expected = (last.last_sequence + 1) & MAX_SEQUENCE
        if beginning is not None and beginning.sequence < stamp.first_sequence:
            expected = beginning.sequence
        if stamp.first_sequence != expected:
            raise Refused(
                OutOfOrderSequenceNumber,
                f"producer {stamp.producer_id} epoch {stamp.epoch} sent sequence {stamp.first_sequence}, expected {expected}",
            )

    def appended(self, stamp: Stamp, offset: int) -> None:
        """Record a checked batch that the log has at *offset*."""
        producer = self._producers.get(stamp.producer_id)
        if producer is None or producer.epoch != stamp.epoch:
            producer = self._producers[stamp.producer_id] = _Producer(stamp.epoch)
        producer.recent.append((stamp, offset))
        self._beginnings.pop(stamp.producer_id, None)

    def ended(self, producer_id: int, epoch: int) -> None:
        """Record a marker; in a new epoch the producer starts over."""
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            self._producers[producer_id] = _Producer(epoch)
        self._beginnings.pop(producer_id, None)


_ATTRIBUTES = 5
"""Index of the attributes in the header."""


class Aborted(NamedTuple):
    """An aborted transaction, whose records read_committed consumers skip; the last offset is its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class OpenTransactions:
    """Open and aborted transactions of a log, updated by each batch in order."""

    def __init__(self) -> None:
        self._first_offsets: dict[int, int] = {}
        self._aborted: list[Aborted] = []

    def wrote(self, producer_id: int, offset: int) -> None:
        """Record a batch of a transaction."""
        self._first_offsets.setdefault(producer_id, offset)

    def ended(self, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """Record a marker."""
        first_offset = self._first_offsets.pop(producer_id, None)
        if first_offset is not None and not committed:
            self._aborted.append(Aborted(producer_id, first_offset, marker_offset))

    def first_offset(self, producer_id: int) -> int | None:
        """Return the first offset of a producer's open transaction, or None."""
        return self._first_offsets.get(producer_id)

    def stable_offset(self, end_offset: int) -> int:
        """Return the last stable offset: the beginning of the first open transaction, or *end_offset*."""
        return min(self._first_offsets.values(), default=end_offset)

    def aborted(self, start: int, end: int) -> list[Aborted]:
        """Return the aborted transactions with records from offset *start* to before *end*."""
        return [each for each in self._aborted if each.last_offset >= start and each.first_offset < end]

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """Return True if the transactional record at *offset* belongs to an aborted transaction."""
        return any(each.producer_id == producer_id for each in self.aborted(offset, offset + 1))


def marker(producer_id: int, epoch: int, *, committed: bool, now_ms: int) -> bytes:
    """Return the control batch of a marker: one record whose key has version and kind (KIP-98)."""
    columns = RecordColumns()
    version_and_coordinator_epoch = bytes(6)
    columns.extend([version_and_coordinator_epoch], [bytes([0, 0, 0, committed])], None, now_ms)
    batch = encode_batch(columns, producer_id=producer_id, producer_epoch=epoch, attributes=TRANSACTIONAL)
    header = list(HEADER.unpack_from(batch))
    header[_ATTRIBUTES] |= CONTROL
    HEADER.pack_into(batch, 0, *header)
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return bytes(batch)
