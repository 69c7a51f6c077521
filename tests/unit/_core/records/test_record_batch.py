from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from aioproducer._core.records import record_batch
from aioproducer._core.records.columns import BATCH_OVERHEAD, RecordColumns
from aioproducer._core.records.compression import Codec, compressor
from aioproducer._core.records.record_batch import set_sequence
from aioproducer._core.wire import crc32c
from tests.encoding import encode_columns, encode_records

GOLDEN_RECORDS = bytes.fromhex(
    "0e 00 00 00 01 02 76 00"  # 7 bytes: attributes, time +0, offset +0, no key, "v", no headers
    "22 00 c801 02 06 6b6579 01"  # 17 bytes: attributes, time +100, offset +1, "key", no value,
    "04 02 68 02 78 02 6e 01"  # two headers: "h" = "x", "n" = null
)
GOLDEN_BATCH = (
    bytes.fromhex(
        "0000000000000000"  # base offset 0
        "0000004b"  # 75 bytes follow
        "ffffffff"  # leader epoch -1
        "02"  # magic
        "88aa0935"  # CRC, as aiokafka computes it
        "0010"  # transactional, not compressed
        "00000001"  # last offset delta
        "00000000000003e8"  # base timestamp 1000
        "000000000000044c"  # max timestamp 1100
        "0000000000000007"  # producer id
        "0002"  # producer epoch
        "00000005"  # base sequence
        "00000002"  # records
    )
    + GOLDEN_RECORDS
)


def golden_columns() -> RecordColumns:
    columns = RecordColumns()
    columns.append(b"v", None, (), 1000)
    columns.append(None, b"key", (("h", b"x"), ("n", None)), 1100)
    return columns


def fields(batch: bytearray) -> tuple[Any, ...]:
    return record_batch.HEADER.unpack_from(batch)


def crc_is_right(batch: bytearray) -> bool:
    return bool(fields(batch)[4] == crc32c(batch[record_batch.CHECKED_FROM :]))


def test_encode_equals_a_batch_written_by_hand() -> None:
    assert encode_records(golden_columns()) == GOLDEN_RECORDS
    batch = encode_columns(
        golden_columns(),
        producer_id=7,
        producer_epoch=2,
        base_sequence=5,
        attributes=record_batch.TRANSACTIONAL,
    )
    assert batch == GOLDEN_BATCH


def test_encode_equals_the_bytes_of_aiokafka() -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    columns = RecordColumns()
    for number in range(200):
        key, value, headers = b"k" * (number % 9), b"v" * number, [("n", b"%d" % number)] * (number % 3)
        builder.append(number, timestamp=1000 + number, key=key, value=value, headers=headers)
        columns.append(value, key, tuple(headers), 1000 + number)
    assert encode_columns(columns) == builder.build()


def test_batch_without_producer_id_has_minus_one() -> None:
    assert fields(encode_columns(golden_columns()))[9:12] == (-1, -1, -1)


def test_batch_has_first_and_latest_timestamp() -> None:
    columns = RecordColumns()
    columns.extend([b"a", b"b", b"c"], None, None, [50, 90, 10])
    batch = encode_columns(columns)
    assert fields(batch)[7:9] == (50, 90)


def test_encode_refuses_an_empty_batch() -> None:
    assert encode_records(RecordColumns()) == b""
    with pytest.raises(ValueError, match=r"^a batch has at least one record$"):
        encode_columns(RecordColumns())


def test_compression_applies_only_to_records() -> None:
    seen = list[bytes | bytearray | memoryview]()

    def compress(data: bytes | bytearray | memoryview) -> bytes:
        seen.append(data)
        return b"compressed, and longer than before: that is sent nevertheless"

    batch = encode_columns(golden_columns(), Codec.LZ4 | record_batch.TRANSACTIONAL, compress)
    assert seen == [GOLDEN_RECORDS]
    assert batch[record_batch.HEADER.size :] == compress(b"")
    assert fields(batch)[1] == len(batch) - record_batch.LENGTH_PREFIX
    assert fields(batch)[5] == Codec.LZ4 | record_batch.TRANSACTIONAL
    assert crc_is_right(batch)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_set_sequence_equals_encoding_with_that_sequence(codec: Codec) -> None:
    compress = compressor(codec, None) if codec else None
    batch = encode_columns(golden_columns(), codec, compress, producer_id=1, producer_epoch=0)
    set_sequence(batch, 9_000_000_000, 3, 0x7FFF_FFFF)
    assert crc_is_right(batch)
    assert batch == encode_columns(
        golden_columns(),
        codec,
        compress,
        producer_id=9_000_000_000,
        producer_epoch=3,
        base_sequence=0x7FFF_FFFF,
    )


def test_header_fields_have_the_offsets_of_kafka() -> None:
    header = record_batch.HEADER.pack(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    assert len(header) == BATCH_OVERHEAD
    places = {0: 1, 8: 2, 12: 3, 16: 4, 17: 5, 21: 6, 23: 7, 27: 8, 35: 9, 43: 10, 51: 11, 53: 12, 57: 13}
    stops = [*list(places)[1:], BATCH_OVERHEAD]
    assert [int.from_bytes(header[at:stop]) for at, stop in zip(places, stops, strict=True)] == list(
        places.values()
    )


def test_restamped_fields_lie_within_the_header() -> None:
    header = record_batch.HEADER.pack(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    assert record_batch.LENGTH.unpack_from(header, record_batch.LENGTH_AT) == (2,)
    assert record_batch.CRC.unpack_from(header, record_batch.CRC_AT) == (5,)
    assert record_batch.IDENTITY.unpack_from(header, record_batch.IDENTITY_AT) == (10, 11, 12)
    assert record_batch.LENGTH_AT + record_batch.LENGTH.size == record_batch.LENGTH_PREFIX
    assert record_batch.CRC_AT + record_batch.CRC.size == record_batch.CHECKED_FROM


def test_checksum_of_large_batch_keeps_the_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[tuple[int, ...]] = []

    def checked(data: memoryview, *mode: int) -> int:
        modes.append(mode)
        return crc32c(data, *mode)

    monkeypatch.setattr(record_batch, "crc32c", checked)
    columns = RecordColumns()
    columns.append(b"v" * 100_000, None, (), 1)
    batch = encode_columns(columns, Codec.GZIP, bytes)
    set_sequence(batch, 1, 0, 0)
    assert modes == [(0, 0), (0, 0)]  # value, gil_release_mode
    assert encode_columns(columns, Codec.GZIP, bytes, 1, 0, 0) == batch
