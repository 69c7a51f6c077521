from __future__ import annotations

from collections.abc import Callable

import pytest

from aioproducer._core.records import record_batch
from aioproducer._core.records.columns import RecordColumns, RecordHeaders
from aioproducer._core.records.compression import Codec, compressor
from aioproducer._core.records.decode import DecodedBatch, DecodedRecord, decode_batches
from aioproducer._core.records.record_batch import TRANSACTIONAL
from aioproducer._core.wire import crc32c
from aioproducer.errors import ProtocolError
from tests.cases import for_each
from tests.encoding import encode_columns

LIMIT = 1 << 20
TRACE: RecordHeaders = (("trace", b"1f"), ("é", None))


def batch_of_two() -> bytearray:
    columns = RecordColumns()
    columns.append(b"value", None, (), 1_000)
    columns.append(None, b"key", TRACE, 900)
    return encode_columns(columns, producer_id=7, producer_epoch=2, base_sequence=5, attributes=TRANSACTIONAL)


def decode(data: bytes | bytearray | memoryview) -> list[DecodedBatch]:
    return list(decode_batches(data, limit=LIMIT))


def with_crc(batch: bytearray) -> bytearray:
    record_batch.CRC.pack_into(batch, record_batch.CRC_AT, crc32c(batch[record_batch.CHECKED_FROM :]))
    return batch


def batch_around(section: bytes, *, count: int = 1, attributes: int = 0) -> bytearray:
    """Return a batch with a right header around a section that may be anything."""
    header = record_batch.HEADER.pack(
        0, 49 + len(section), -1, 2, 0, attributes, count - 1, 1_000, 1_000, -1, -1, -1, count
    )
    return with_crc(bytearray(header + section))


def test_decode_reads_every_field_of_a_batch() -> None:
    batch = batch_of_two()
    batch[0:8] = (40).to_bytes(8)  # the broker sets offset and leader epoch; the CRC does not cover them
    batch[12:16] = (9).to_bytes(4)
    assert decode(batch) == [
        DecodedBatch(
            base_offset=40,
            leader_epoch=9,
            attributes=0b1_0000,
            codec=Codec.NONE,
            timestamp_type_log_append=False,
            transactional=True,
            control=False,
            base_timestamp=1_000,
            max_timestamp=1_000,
            producer_id=7,
            producer_epoch=2,
            base_sequence=5,
            last_offset=41,
            records=[
                DecodedRecord(40, 1_000, None, b"value", ()),
                DecodedRecord(41, 900, b"key", None, TRACE),
            ],
        )
    ]


@pytest.mark.parametrize("of", [bytes, bytearray, memoryview])
def test_decode_accepts_any_buffer(of: Callable[[bytearray], bytes]) -> None:
    (batch,) = decode(of(batch_of_two()))
    assert [type(batch.records[0].value), type(batch.records[1].key)] == [bytes, bytes]


def test_decode_returns_no_batches_for_no_bytes() -> None:
    assert decode(b"") == []


@for_each("codec", Codec)
def test_compressed_records_are_read(codec: Codec) -> None:
    columns = RecordColumns()
    columns.extend([b"value %d" % number for number in range(1000)], None, None, 5)
    compress = compressor(codec, None) if codec else None
    (batch,) = decode(encode_columns(columns, codec, compress))
    assert batch.codec is codec
    assert [record.value for record in batch.records] == columns.values


def test_decode_uses_log_append_time_for_all_records() -> None:
    batch = batch_of_two()
    batch[record_batch.CHECKED_FROM + 1] |= record_batch.LOG_APPEND_TIME
    batch[35:43] = (5_000).to_bytes(8)
    (decoded,) = decode(with_crc(batch))
    assert decoded.timestamp_type_log_append
    assert [record.timestamp_ms for record in decoded.records] == [5_000, 5_000]


def test_control_batches_say_so() -> None:
    (decoded,) = decode(batch_around(b"\x0e\0\0\0\x01\x02v\0", attributes=record_batch.CONTROL))
    assert decoded.control


def test_batches_follow_one_another() -> None:
    one = batch_of_two()
    assert [len(batch.records) for batch in decode(one + one + one)] == [2, 2, 2]


@for_each("kept", [1, 11, 12, 60, -1])
def test_decode_omits_a_truncated_last_batch_on_request(kept: int) -> None:
    whole = batch_of_two()
    data = whole + whole[:kept]
    with pytest.raises(ProtocolError, match="ends within a record batch"):
        decode(data)
    assert len(list(decode_batches(data, limit=LIMIT, partial_ok=True))) == 1


def test_decode_yields_earlier_batches_before_a_broken_one() -> None:
    broken = batch_of_two()
    broken[-1] ^= 1
    batches = decode_batches(batch_of_two() + broken, limit=LIMIT)
    assert next(batches).base_offset == 0
    with pytest.raises(ProtocolError, match="CRC"):
        next(batches)


def test_decode_limit_applies_to_one_batch() -> None:
    columns = RecordColumns()
    columns.append(b"v" * 993, None, (), 0)  # 7 bytes more, and 2 of length
    for codec in (Codec.NONE, Codec.GZIP):
        batch = encode_columns(columns, codec, compressor(codec, None))
        assert len(list(decode_batches(batch + batch, limit=1002))) == 2
        with pytest.raises(ProtocolError, match="limit of 1001 bytes"):
            list(decode_batches(batch, limit=1001))


def test_decode_detects_a_flipped_bit() -> None:
    for position in range(record_batch.CHECKED_FROM, len(batch_of_two())):
        batch = batch_of_two()
        batch[position] ^= 0x10
        with pytest.raises(ProtocolError, match="CRC"):
            decode(batch)


@for_each(
    ("at", "data", "message"),
    [
        (8, "00000030", "cannot have a length of 48"),
        (8, "80000000", "cannot have a length of -2147483648"),
        (8, "7fffffff", "ends within a record batch"),
        (16, "01", "magic 1"),
        (16, "00", "magic 0"),
        (22, "05", "compression type 5 is not known"),
        (22, "01", "not gzip"),
        (23, "00000002", "of 2 records cannot have a last offset delta of 2"),
        (57, "00000000", "of 0 records"),
        (57, "ffffffff", "of -1 records"),
        (23, "7ffffffe7fffffff", "of 2 records cannot"),
    ],
)
def test_decode_refuses_an_impossible_header(at: int, data: str, message: str) -> None:
    batch = batch_of_two()
    change = bytes.fromhex(data)
    batch[at : at + len(change)] = change
    with pytest.raises(ProtocolError, match=message):
        decode(with_crc(batch))


def test_decode_checks_counts_before_allocating() -> None:
    with pytest.raises(ProtocolError, match="2147483647 records do not fit into 8 bytes"):
        decode(batch_around(b"\x0e\0\0\0\x01\x02v\0", count=0x7FFF_FFFF))


@for_each(
    ("section", "message"),
    [
        ("0e 00 00 00 01 02 76", "do not fit|ends within record 0 of 1"),
        ("0e 00 00 00 01 02 76 00 00", "1 bytes follow the 1 records"),
        ("0c 00 00 00 01 02 76 00", "record 0 is not 6 but 7 bytes long"),
        ("01 00 00 00 01 02 76 00", "record 0 is not -1 but 7"),
        ("0e 00 00 02 01 02 76 00", "offset delta 1"),
        ("0e 00 00 01 01 02 76 00", "offset delta -1"),
        ("20 00 feffffffffffffffff 01 00 01 02 76 00", "timestamp 9223372036854776807"),
        ("20 00 ffffffffffffffffff 03 00 01 02 76 00", "more than 64 bits"),
        ("0e 00 00 00 03 02 76 00", "a field of -2 bytes"),
        ("0e 00 00 00 01 08 76 00", "a field of 4 bytes does not fit into the 2"),
        ("0e 00 00 00 01 02 76 01", "cannot have -1 headers"),
        ("0e 00 00 00 01 02 76 02", "cannot have 1 headers"),
        ("16 00 00 00 01 02 76 02 02 61", "ends within record 0 of 1"),
        ("14 00 00 00 01 02 76 02 01 01", "a header has no name"),
        ("16 00 00 00 01 02 76 02 02 ff 01", "not UTF-8"),
        ("ff ff ff ff ff ff ff ff ff ff 01", "past 64 bits"),
        ("0e 00 00 00 01 02 76 80", "ends within record 0 of 1"),
    ],
)
def test_decode_refuses_an_impossible_record(section: str, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        decode(batch_around(bytes.fromhex(section)))


def test_numbers_of_more_bytes_than_needed_are_read() -> None:
    """No client writes such numbers, but they are valid, and other clients read them."""
    (batch,) = decode(batch_around(bytes.fromhex("94 00  00 80 00  80 80 00 01 02 76 00")))
    assert batch.records == [DecodedRecord(0, 1_000, None, b"v", ())]


def compacted(*, kept: tuple[int, ...], of: int) -> bytearray:
    """Return a batch of which compaction has left the records at these positions."""
    section = b"".join(bytes([14, 0, 0, 2 * index, 1, 2, ord("v"), 0]) for index in kept)
    header = record_batch.HEADER.pack(
        40, 49 + len(section), -1, 2, 0, 0, of - 1, 1_000, 1_000, -1, -1, -1, len(kept)
    )
    return with_crc(bytearray(header + section))


@for_each("kept", [(), (0,), (1,), (0, 3), (1, 2, 3), (0, 1, 2, 3)])
def test_decode_keeps_offsets_after_compaction(kept: tuple[int, ...]) -> None:
    (batch,) = decode_batches(compacted(kept=kept, of=4), limit=LIMIT, compacted=True)
    assert [record.offset for record in batch.records] == [40 + index for index in kept]
    assert batch.last_offset == 43


@pytest.mark.parametrize("kept", [(), (1,), (0, 3)])
def test_decode_refuses_unexpected_offset_gaps(kept: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError, match="cannot have a last offset delta of 3"):
        decode(compacted(kept=kept, of=4))


@for_each("kept", [(4,), (2, 1), (1, 1), (0, 1, 2, 3, 3)])
def test_records_that_compaction_cannot_have_left_are_refused(kept: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError):
        list(decode_batches(compacted(kept=kept, of=4), limit=LIMIT, compacted=True))
