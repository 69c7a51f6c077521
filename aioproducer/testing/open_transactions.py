"""The transactions in one partition's log: those that are open, and those that were aborted.

Source: Kafka's ProducerStateManager and TransactionIndex.
"""

from __future__ import annotations

from typing import NamedTuple

from aioproducer._core.records.record_batch import (
    CHECKED_FROM,
    CONTROL,
    CRC,
    CRC_AT,
    HEADER,
    TRANSACTIONAL,
    RecordColumns,
    encode_batch,
)
from aioproducer._core.wire.crc32c import crc32c

_ATTRIBUTES = 5
"""Their position in the header."""


class Aborted(NamedTuple):
    """A transaction whose records a read_committed consumer skips; the last offset is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int


class OpenTransactions:
    """What a log knows of transactions, told of each batch in the order of the log."""

    def __init__(self) -> None:
        self._first_offsets: dict[int, int] = {}
        self._aborted: list[Aborted] = []

    def wrote(self, producer_id: int, offset: int) -> None:
        """Note a batch of a transaction."""
        self._first_offsets.setdefault(producer_id, offset)

    def ended(self, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """Note a marker."""
        first_offset = self._first_offsets.pop(producer_id, None)
        if first_offset is not None and not committed:
            self._aborted.append(Aborted(producer_id, first_offset, marker_offset))

    def first_offset(self, producer_id: int) -> int | None:
        """Return where the open transaction of a producer begins; None if it has none here."""
        return self._first_offsets.get(producer_id)

    def stable_before(self, end_offset: int) -> int:
        """Return the last stable offset: where the first open transaction begins, or else *end_offset*."""
        return min(self._first_offsets.values(), default=end_offset)

    def aborted(self, start: int, end: int) -> list[Aborted]:
        """Return the aborted transactions that have records from offset *start* to before *end*."""
        return [each for each in self._aborted if each.last_offset >= start and each.first_offset < end]

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """Whether a transactional record at *offset* belongs to an aborted transaction."""
        return any(each.producer_id == producer_id for each in self.aborted(offset, offset + 1))


def marker(producer_id: int, epoch: int, *, committed: bool, now_ms: int) -> bytes:
    """Return the control batch that ends a transaction: of one record, with version and kind as its key (KIP-98)."""
    columns = RecordColumns()
    version_and_coordinator_epoch = bytes(6)
    columns.extend([version_and_coordinator_epoch], [bytes([0, 0, 0, committed])], None, now_ms)
    batch = encode_batch(columns, producer_id=producer_id, producer_epoch=epoch, attributes=TRANSACTIONAL)
    header = list(HEADER.unpack_from(batch))
    header[_ATTRIBUTES] |= CONTROL
    HEADER.pack_into(batch, 0, *header)
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return bytes(batch)
