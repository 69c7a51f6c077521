"""The checks that a broker makes of a batch, as far as its header and checksum show.

Source: Kafka's LogValidator; https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple, NoReturn

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
from aioproducer.errors import (
    BrokerError,
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    MessageTooLarge,
    ProtocolError,
    UnsupportedCompressionType,
)
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
    """Whether the batch says that it is compressed by zstd, which old versions of requests must not carry."""
    return len(data) >= HEADER.size and data[CHECKED_FROM + 1] & CODEC_MASK == Codec.ZSTD


def check_batch(data: BytesLike, max_bytes: int) -> BatchHeader:
    """Return the header of the one batch that a client may send for a partition.

    Raises: Refused. These are a broker's checks, in its order, as far as header and checksum show. What is inside
    a record is looked at when it is read.
    """
    if len(data) < HEADER.size:
        raise Refused(InvalidRecord, "there must be exactly one record batch for each partition")
    header = BatchHeader._make(HEADER.unpack_from(data))
    size = LENGTH_PREFIX + header.length
    _object(_ABOUT_THE_FORM, header)
    if size < len(data):
        raise Refused(InvalidRecord, f"there must be one batch of {size} bytes, there are {len(data)} bytes")
    if size > max_bytes:
        raise Refused(MessageTooLarge, f"the batch has {size} bytes, the topic allows {max_bytes}")
    if size > len(data) or header.crc != crc32c(memoryview(data)[CHECKED_FROM:]):
        raise Refused(CorruptMessage, f"the batch is cut, or its checksum is not {header.crc:#010x}")
    _object(_ABOUT_THE_RECORDS, header)
    return header


class _Objection(NamedTuple):
    """Something that a broker refuses a batch for."""

    applies: Callable[[BatchHeader], bool]
    error: type[BrokerError]
    message: str


_CODECS = frozenset(Codec)

_ABOUT_THE_FORM = (
    _Objection(lambda h: h.magic != MAGIC, InvalidRecord, "batches must have magic 2, not {h.magic}"),
    _Objection(
        lambda h: h.length < HEADER.size - LENGTH_PREFIX,
        CorruptMessage,
        "a batch cannot be {h.length} bytes long",
    ),
    _Objection(
        lambda h: h.attributes & CODEC_MASK not in _CODECS,
        UnsupportedCompressionType,
        "no codec is known for the attributes {h.attributes:#x}",
    ),
    _Objection(
        lambda h: h.base_offset != 0, InvalidRecord, "a client's base offset is 0, not {h.base_offset}"
    ),
)

_ABOUT_THE_RECORDS = (
    _Objection(
        lambda h: h.record_count <= 0 or h.record_count != h.last_offset_delta + 1,
        InvalidRecord,
        "{h.record_count} records cannot have a last offset delta of {h.last_offset_delta}",
    ),
    _Objection(lambda h: h.attributes & CONTROL != 0, InvalidRecord, "clients may not write control records"),
    _Objection(
        lambda h: h.attributes & TRANSACTIONAL != 0 and h.producer_id < 0,
        InvalidRecord,
        "a batch of a transaction names its producer",
    ),
    _Objection(
        lambda h: h.producer_id >= 0 and (h.base_sequence < 0 or h.producer_epoch < 0),
        InvalidRecord,
        "producer {h.producer_id} cannot have sequence {h.base_sequence} and epoch {h.producer_epoch}",
    ),
)


def _object(objections: Iterable[_Objection], header: BatchHeader) -> None:
    for objection in objections:
        if objection.applies(header):
            raise Refused(objection.error, objection.message.format(h=header))


FUTURE_LIMIT_MS = 3_600_000
"""Kafka's default for `message.timestamp.after.max.ms`: how far ahead of the broker's clock a record may be."""

MAX_DECOMPRESSED_BYTES = 1 << 30


class StoredBatch(NamedTuple):
    """A batch in the log."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    data: bytes


class Appended(NamedTuple):
    """What a broker answers for a batch that is in the log, now or since an earlier attempt."""

    base_offset: int
    log_append_time_ms: int
    """-1: the records keep the time their producer gave them."""


class PartitionLog:
    """The batches of one partition, and the producers that wrote them."""

    def __init__(self, *, log_append_time: bool = False, compacted: bool = False) -> None:
        self.end_offset: int = 0
        """The offset that the next record will have."""
        self.record_count: int = 0
        """How many records there are; markers are none."""
        self.watchers: set[Callable[[], None]] = set()
        """Called after each append: fetches that wait for more."""
        self._log_append_time = log_append_time
        self._compacted = compacted
        self._batches: list[StoredBatch] = []
        self.producers: ProducerStates = ProducerStates()
        self.transactions: OpenTransactions = OpenTransactions()

    @property
    def last_stable_offset(self) -> int:
        """Where a read_committed consumer's log ends."""
        return self.transactions.stable_before(self.end_offset)

    def append(
        self,
        data: BytesLike,
        *,
        leader_epoch: int,
        max_bytes: int,
        now_ms: int,
    ) -> Appended:
        """Append the one batch that *data* is; a batch that its producer sent before is answered, not appended.

        Raises: Refused with the error that a broker answers; the log is then as it was.
        """
        header = check_batch(data, max_bytes)
        if not self._log_append_time and header.max_timestamp > now_ms + FUTURE_LIMIT_MS:
            _refuse_the_future(data, now_ms)
        if self._compacted:
            _refuse_null_keys(data)
        append_time_ms = now_ms if self._log_append_time else -1
        stamp = _stamp(header)
        if stamp is not None:
            known = self.producers.offset_of_duplicate(stamp)
            if known is not None:
                return Appended(known, append_time_ms)
            self.producers.check(stamp)
            self._check_transaction(header)
            self.producers.appended(stamp, self.end_offset)
            if header.attributes & TRANSACTIONAL:
                self.transactions.wrote(header.producer_id, self.end_offset)
        return self._store(header, data, leader_epoch, append_time_ms)

    def append_marker(
        self, producer_id: int, epoch: int, *, committed: bool, leader_epoch: int, now_ms: int
    ) -> None:
        """Append the marker that ends the transaction of a producer."""
        data = marker(producer_id, epoch, committed=committed, now_ms=now_ms)
        self._note_marker(producer_id, epoch, self.end_offset, committed=committed)
        self._store(BatchHeader._make(HEADER.unpack_from(data)), data, leader_epoch, -1)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer is in the middle of a transaction here."""
        return (
            self.transactions.first_offset(producer_id) is not None
            and self.producers.epoch(producer_id) == epoch
        )

    def lose_end(self, records: int) -> list[DecodedRecord]:
        """Forget the last *records*, and return them, with those before them in the same batch.

        Replicas copy whole batches, so a log never ends within one. Of producers that is remembered which a broker
        reads from what is left: one that has no batch there is unknown.
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

    def restart(self) -> None:
        """Know of producers what a broker knows that was started again."""
        self.producers.restart()

    def read(
        self, offset: int, max_bytes: int, *, at_least_one: bool = True, until: int | None = None
    ) -> bytes:
        """Return whole batches from the one that holds *offset*, as many as fit in *max_bytes*, up to offset *until*.

        With *at_least_one* the first is returned even if it is larger: a consumer must never be stuck (KIP-74).
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
        """Return everything in the log, decoded; markers are control batches."""
        return _decode(b"".join(batch.data for batch in self._batches))

    def data_batches(self, *, read_committed: bool = False) -> list[DecodedBatch]:
        """Return what a consumer is shown."""
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
        """Return offset and timestamp of the first record that is as late as *timestamp_ms*, if there is one."""
        late = (stored for stored in self._batches if stored.max_timestamp >= timestamp_ms)
        records = (record for batch in _data_batches(late) for record in batch.records)
        found = (
            (record.offset, record.timestamp_ms) for record in records if record.timestamp_ms >= timestamp_ms
        )
        return next(found, None)

    def find_latest_time(self) -> tuple[int, int] | None:
        """Return offset and timestamp of the latest record, which need not be the last (KIP-734)."""
        latest = max((batch.max_timestamp for batch in _data_batches(self._batches)), default=None)
        return None if latest is None else self.find_time(latest)

    def wake(self) -> None:
        """Call the watchers: the log has grown, has lost its end, or something else that they should look at has happened."""
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

    def _check_transaction(self, header: BatchHeader) -> None:
        is_open = self.transactions.first_offset(header.producer_id) is not None
        if is_open and not header.attributes & TRANSACTIONAL:
            raise Refused(
                InvalidTxnState, f"producer {header.producer_id} has to end its transaction before this"
            )

    def _note_stored(self, header: BatchHeader, stored: StoredBatch) -> None:
        """Learn again what a batch of the log says of its producer."""
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
    """Return what an idempotent producer wrote on a batch; None if its producer is not."""
    if header.producer_id < 0:
        return None
    return Stamp(header.producer_id, header.producer_epoch, header.base_sequence, header.record_count)


def transactional_stamp(data: BytesLike) -> Stamp | None:
    """Return what a batch says of its producer, if it says that it is of a transaction; it is not checked for sense."""
    if len(data) < HEADER.size:
        return None
    header = BatchHeader._make(HEADER.unpack_from(data))
    return _stamp(header) if header.attributes & TRANSACTIONAL else None


def _refuse_the_future(data: BytesLike, now_ms: int) -> NoReturn:
    late = {
        position: f"timestamp {record.timestamp_ms} is out of range"
        for position, record in enumerate(_records_to_append(data))
        if record.timestamp_ms > now_ms + FUTURE_LIMIT_MS
    }
    message = f"timestamps may be {FUTURE_LIMIT_MS} ms after the broker's {now_ms}"
    raise Refused(InvalidTimestamp, message, record_errors=late)


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
    except ProtocolError as error:
        raise Refused(CorruptMessage, str(error)) from error


def _data_batches(stored: Iterable[StoredBatch]) -> list[DecodedBatch]:
    return [batch for each in stored for batch in _decode(each.data) if not batch.control]


def _decode(data: BytesLike) -> list[DecodedBatch]:
    return list(decode_batches(data, limit=MAX_DECOMPRESSED_BYTES))
