"""The log of one partition: received batches, after the checks of a broker.

The module has no clock, no event loop and no I/O; callers pass the time.

A batch is stored as the received bytes. As in Kafka, the log only writes the base offset and the leader epoch, which
the checksum does not cover. Records are decoded on reading.

Source: Kafka's UnifiedLog and LogValidator; https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple, NoReturn

from aioproducer import errors
from aioproducer._core.records.compression import Codec
from aioproducer._core.records.decode import DecodedBatch, DecodedRecord, decode_batches
from aioproducer._core.records.record_batch import (
    CHECKED_FROM,
    CODEC_MASK,
    CONTROL,
    HEADER,
    LENGTH_PREFIX,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
)
from aioproducer._core.wire import BytesLike, crc32c
from aioproducer.errors import InvalidRecord
from aioproducer.testing.faults import Refused
from aioproducer.testing.producer_state import OpenTransactions, ProducerStates, Stamp, marker


class BatchHeader(NamedTuple):
    """The fixed part of a record batch, in its order on the wire."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def is_zstd(data: BytesLike) -> bool:
    """Return True if the batch is compressed by zstd, which old versions of Produce must not carry."""
    return len(data) >= HEADER.size and data[CHECKED_FROM + 1] & CODEC_MASK == Codec.ZSTD


def check_batch(data: BytesLike, max_bytes: int) -> BatchHeader:
    """Return the header of the only batch in *data*, after a broker's checks of header and checksum in their order.

    Raises: Refused.
    """
    if len(data) < HEADER.size:
        raise Refused(InvalidRecord, "there must be exactly one record batch for each partition")
    header = BatchHeader._make(HEADER.unpack_from(data))
    size = LENGTH_PREFIX + header.length
    _check_form(header)
    if size < len(data):
        raise Refused(InvalidRecord, f"there must be one batch of {size} bytes, there are {len(data)} bytes")
    if size > max_bytes:
        raise Refused(errors.MessageTooLarge, f"the batch has {size} bytes, the topic allows {max_bytes}")
    if size > len(data) or header.crc != crc32c(memoryview(data)[CHECKED_FROM:]):
        raise Refused(errors.CorruptMessage, f"the batch is cut, or its checksum is not {header.crc:#010x}")
    _check_records(header)
    return header


def _check_form(h: BatchHeader) -> None:
    if h.magic != MAGIC:
        raise Refused(InvalidRecord, f"batches must have magic 2, not {h.magic}")
    if h.length < HEADER.size - LENGTH_PREFIX:
        raise Refused(errors.CorruptMessage, f"a batch cannot be {h.length} bytes long")
    if h.attributes & CODEC_MASK not in _CODECS:
        raise Refused(
            errors.UnsupportedCompressionType, f"no codec is known for the attributes {h.attributes:#x}"
        )
    if h.base_offset != 0:
        raise Refused(InvalidRecord, f"a client's base offset is 0, not {h.base_offset}")


def _check_records(h: BatchHeader) -> None:
    if h.record_count <= 0 or h.record_count != h.last_offset_delta + 1:
        raise Refused(
            InvalidRecord,
            f"{h.record_count} records cannot have a last offset delta of {h.last_offset_delta}",
        )
    if h.attributes & CONTROL:
        raise Refused(InvalidRecord, "clients may not write control records")
    if h.attributes & TRANSACTIONAL and h.producer_id < 0:
        raise Refused(InvalidRecord, "a batch of a transaction names its producer")
    if h.producer_id >= 0 and (h.base_sequence < 0 or h.producer_epoch < 0):
        raise Refused(
            InvalidRecord,
            f"producer {h.producer_id} cannot have sequence {h.base_sequence} and epoch {h.producer_epoch}",
        )


_CODECS = frozenset(Codec)

FUTURE_LIMIT_MS = 3_600_000
"""Kafka's default for `message.timestamp.after.max.ms`: largest lead of a timestamp over the broker's clock."""

MAX_DECOMPRESSED_BYTES = 1 << 30


class StoredBatch(NamedTuple):
    """A batch in the log."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    data: bytes


class Appended(NamedTuple):
    """Result of an append, or of a duplicate of an earlier append."""

    base_offset: int
    log_append_time_ms: int
    """Timestamp of the append in milliseconds; -1 if the records keep the timestamps of their producer."""


class PartitionLog:
    """Batches of one partition, and the state of their producers."""

    def __init__(self, *, log_append_time: bool = False, compacted: bool = False) -> None:
        self.end_offset: int = 0
        """Offset of the next record."""
        self.record_count: int = 0
        """Number of records without markers."""
        self.watchers: set[Callable[[], None]] = set()
        """Callbacks after each append, for waiting fetches."""
        self._log_append_time = log_append_time
        self._compacted = compacted
        self._batches: list[StoredBatch] = []
        self.producers: ProducerStates = ProducerStates()
        self.transactions: OpenTransactions = OpenTransactions()

    @property
    def last_stable_offset(self) -> int:
        """End of the log for read_committed consumers."""
        return self.transactions.stable_offset(self.end_offset)

    def append(
        self,
        data: BytesLike,
        *,
        leader_epoch: int,
        max_bytes: int,
        now_ms: int,
    ) -> Appended:
        """Append the batch *data*; return the offset of the first copy for a duplicate.

        Raises: Refused with the error of a broker; the log is unchanged.
        """
        header = check_batch(data, max_bytes)
        if not self._log_append_time and header.max_timestamp > now_ms + FUTURE_LIMIT_MS:
            _refuse_late_timestamps(data, now_ms)
        if self._compacted:
            _refuse_null_keys(data)
        append_time_ms = now_ms if self._log_append_time else -1
        stamp = _stamp(header)
        if stamp is not None:
            known = self.producers.offset_of_duplicate(stamp)
            if known is not None:
                return Appended(known, append_time_ms)
            self.producers.check(stamp)
            is_open = self.transactions.first_offset(header.producer_id) is not None
            if header.attributes & TRANSACTIONAL:
                self.transactions.wrote(header.producer_id, self.end_offset)
            elif is_open:
                raise Refused(
                    errors.InvalidTxnState,
                    f"producer {header.producer_id} has to end its transaction before this",
                )
            self.producers.appended(stamp, self.end_offset)
        return self._store(header, data, leader_epoch, append_time_ms)

    def append_marker(
        self, producer_id: int, epoch: int, *, committed: bool, leader_epoch: int, now_ms: int
    ) -> None:
        """Append the marker of a producer's transaction."""
        data = marker(producer_id, epoch, committed=committed, now_ms=now_ms)
        self._note_marker(producer_id, epoch, self.end_offset, committed=committed)
        self._store(BatchHeader._make(HEADER.unpack_from(data)), data, leader_epoch, -1)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return True if a producer has an open transaction in this partition."""
        return (
            self.transactions.first_offset(producer_id) is not None
            and self.producers.epoch(producer_id) == epoch
        )

    def lose_end(self, records: int) -> list[DecodedRecord]:
        """Remove the last *records* records with all records of their batches, and return the removed records.

        Replicas copy whole batches. The state of producers is restored from the remaining batches.
        """
        position = self._position(max(0, self.end_offset - records))
        lost = self._batches[position:]
        del self._batches[position:]
        self.end_offset = self._batches[-1].last_offset + 1 if self._batches else 0
        self.record_count = 0
        self.producers, self.transactions = ProducerStates(), OpenTransactions()
        for stored in self._batches:
            self._note_stored(BatchHeader._make(HEADER.unpack_from(stored.data)), stored)
        self.wake()
        return [record for batch in _data_batches(lost) for record in batch.records]

    def read(
        self, offset: int, max_bytes: int, *, at_least_one: bool = True, until: int | None = None
    ) -> bytes:
        """Return whole batches from the one with *offset* on, up to *max_bytes* and to offset *until*.

        *at_least_one* returns the first batch even if it is larger, so that consumers always progress (KIP-74).
        """
        found: list[bytes] = []
        size = 0
        for position in range(self._position(offset), len(self._batches)):
            base_offset, _, _, data = self._batches[position]
            if until is not None and base_offset >= until:
                break
            size += len(data)
            if size > max_bytes and not (at_least_one and not found):
                break
            found.append(data)
        return b"".join(found)

    def batches(self) -> list[DecodedBatch]:
        """Return all batches, decoded; markers are control batches."""
        return _decode(b"".join(batch.data for batch in self._batches))

    def data_batches(self, *, read_committed: bool = False) -> list[DecodedBatch]:
        """Return the batches that consumers receive."""
        batches = _data_batches(self._batches)
        if not read_committed:
            return batches
        return [
            batch
            for batch in batches
            if batch.base_offset < self.last_stable_offset
            and not (
                batch.transactional and self.transactions.is_aborted(batch.producer_id, batch.base_offset)
            )
        ]

    def find_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record at or after *timestamp_ms*, or None."""
        late = (stored for stored in self._batches if stored.max_timestamp >= timestamp_ms)
        records = (record for batch in _data_batches(late) for record in batch.records)
        found = (
            (record.offset, record.timestamp_ms) for record in records if record.timestamp_ms >= timestamp_ms
        )
        return next(found, None)

    def find_latest_time(self) -> tuple[int, int] | None:
        """Return offset and timestamp of the record with the latest timestamp (KIP-734)."""
        latest = max((batch.max_timestamp for batch in _data_batches(self._batches)), default=None)
        return None if latest is None else self.find_time(latest)

    def wake(self) -> None:
        """Call the watchers after a change of the log or of its leader."""
        for watcher in tuple(self.watchers):
            watcher()

    def _position(self, offset: int) -> int:
        return bisect_left(self._batches, offset, key=attrgetter("last_offset"))

    def _store(
        self, header: BatchHeader, data: BytesLike, leader_epoch: int, append_time_ms: int
    ) -> Appended:
        base_offset = self.end_offset
        header = header._replace(base_offset=base_offset, leader_epoch=leader_epoch)
        records = memoryview(data)[HEADER.size :]
        if append_time_ms >= 0:
            attributes = header.attributes | LOG_APPEND_TIME
            header = header._replace(attributes=attributes, max_timestamp=append_time_ms)
            covered = HEADER.pack(*header)[CHECKED_FROM:]
            header = header._replace(crc=crc32c(records, crc32c(covered)))
        self.end_offset += header.record_count
        if not header.attributes & CONTROL:
            self.record_count += header.record_count
        stored = b"".join((HEADER.pack(*header), records))
        self._batches.append(StoredBatch(base_offset, self.end_offset - 1, header.max_timestamp, stored))
        self.wake()
        return Appended(base_offset, append_time_ms)

    def _note_stored(self, header: BatchHeader, stored: StoredBatch) -> None:
        """Restore the state of the producer of a stored batch."""
        stamp = _stamp(header)
        if header.attributes & CONTROL:
            (record,) = _decode(stored.data)[0].records
            committed = record.key is not None and record.key[-1] == 1
            self._note_marker(
                header.producer_id, header.producer_epoch, stored.base_offset, committed=committed
            )
            return
        self.record_count += header.record_count
        if stamp is not None:
            self.producers.appended(stamp, stored.base_offset)
            if header.attributes & TRANSACTIONAL:
                self.transactions.wrote(header.producer_id, stored.base_offset)

    def _note_marker(self, producer_id: int, epoch: int, offset: int, *, committed: bool) -> None:
        self.producers.ended(producer_id, epoch)
        self.transactions.ended(producer_id, offset, committed=committed)


def _stamp(header: BatchHeader) -> Stamp | None:
    """Return the stamp of an idempotent producer's batch; None without idempotence."""
    if header.producer_id < 0:
        return None
    return Stamp(header.producer_id, header.producer_epoch, header.base_sequence, header.record_count)


def transactional_stamp(data: BytesLike) -> Stamp | None:
    """Return the stamp of a transactional batch without checks; None for other batches."""
    if len(data) < HEADER.size:
        return None
    header = BatchHeader._make(HEADER.unpack_from(data))
    return _stamp(header) if header.attributes & TRANSACTIONAL else None


def _refuse_late_timestamps(data: BytesLike, now_ms: int) -> NoReturn:
    late = {
        position: f"timestamp {record.timestamp_ms} is out of range"
        for position, record in enumerate(_records_to_append(data))
        if record.timestamp_ms > now_ms + FUTURE_LIMIT_MS
    }
    message = f"timestamps may be {FUTURE_LIMIT_MS} ms after the broker's {now_ms}"
    raise Refused(errors.InvalidTimestamp, message, record_errors=late)


def _refuse_null_keys(data: BytesLike) -> None:
    keyless = {
        position: "compacted topics need keys"
        for position, record in enumerate(_records_to_append(data))
        if record.key is None
    }
    if keyless:
        raise Refused(InvalidRecord, "some records have no key", record_errors=keyless)


def _records_to_append(data: BytesLike) -> list[DecodedRecord]:
    try:
        return [record for batch in _decode(data) for record in batch.records]
    except errors.ProtocolError as error:
        raise Refused(errors.CorruptMessage, str(error)) from error


def _data_batches(stored: Iterable[StoredBatch]) -> list[DecodedBatch]:
    return [batch for each in stored for batch in _decode(each.data) if not batch.control]


def _decode(data: BytesLike) -> list[DecodedBatch]:
    return list(decode_batches(data, limit=MAX_DECOMPRESSED_BYTES))
