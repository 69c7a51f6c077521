"""Bytes from the network are decoded to batches or raise ProtocolError, at a bounded cost."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from aioproducer._core.records import record_batch
from aioproducer._core.records.columns import RecordColumns
from aioproducer._core.records.compression import Codec, compressor, decompress
from aioproducer._core.records.decode import decode_batches
from aioproducer._core.wire import crc32c
from aioproducer.errors import ProtocolError
from tests.encoding import encode_columns

LIMIT = 1 << 16
PACKED = [codec for codec in Codec if codec is not Codec.NONE]


def valid_batch(codec: Codec) -> bytearray:
    columns = RecordColumns()
    for number in range(20):
        columns.append(b"value" * number, b"key", (("name", b"header"), ("null", None)), 1_000 + number)
    return encode_columns(columns, codec, compressor(codec, None) if codec else None)


VALID = {codec: valid_batch(codec) for codec in Codec}


def decode(data: bytes | bytearray, *, partial_ok: bool = False) -> None:
    for batch in decode_batches(data, limit=LIMIT, partial_ok=partial_ok):
        assert batch.records


def try_to_decode(data: bytes | bytearray) -> None:
    for partial_ok in (False, True):
        with suppress(ProtocolError):
            decode(data, partial_ok=partial_ok)


def with_crc(batch: bytearray) -> bytearray:
    """Correct length and CRC, so that the decoder reaches the bytes after them."""
    record_batch.LENGTH.pack_into(batch, record_batch.LENGTH_AT, len(batch) - record_batch.LENGTH_PREFIX)
    record_batch.CRC.pack_into(batch, record_batch.CRC_AT, crc32c(batch[record_batch.CHECKED_FROM :]))
    return batch


@given(st.binary(max_size=200))
def test_decoder_refuses_random_bytes(data: bytes) -> None:
    try_to_decode(data)


@given(st.binary(max_size=100), st.integers(0, 0xFF), st.integers(-2, 12))
def test_decoder_refuses_random_records_behind_a_valid_header(
    section: bytes, attributes: int, count: int
) -> None:
    header = record_batch.HEADER.pack(0, 0, -1, 2, 0, attributes, count - 1, 0, 0, -1, -1, -1, count)
    try_to_decode(with_crc(bytearray(header + section)))


@given(
    st.sampled_from(Codec),
    st.lists(st.tuples(st.integers(min_value=record_batch.CHECKED_FROM), st.integers(0, 255)), max_size=5),
    st.integers(0, 30),
    st.booleans(),
)
def test_decoder_survives_damage_under_a_correct_crc(
    codec: Codec, changes: list[tuple[int, int]], cut: int, from_the_end: bool
) -> None:
    batch = bytearray(VALID[codec])
    for position, byte in changes:
        batch[position % (len(batch) - record_batch.CHECKED_FROM) + record_batch.CHECKED_FROM] = byte
    if cut and from_the_end:
        del batch[-cut:]
    elif cut:
        del batch[record_batch.HEADER.size : record_batch.HEADER.size + cut]
    try_to_decode(with_crc(batch))


@given(st.sampled_from(PACKED), st.binary(max_size=300), st.booleans())
def test_decoder_survives_random_compressed_bytes(codec: Codec, data: bytes, begin_well: bool) -> None:
    if begin_well:  # past the magic numbers
        data = compressor(codec, None)(b"some records")[:12] + data
    with suppress(ProtocolError):
        assert len(decompress(codec, data, limit=LIMIT)) <= LIMIT


@given(st.sampled_from(Codec), st.integers(min_value=1))
def test_truncated_batch_is_refused(codec: Codec, cut: int) -> None:
    batch = VALID[codec]
    with pytest.raises(ProtocolError):
        decode(batch[: cut % (len(batch) - 1) + 1])


@pytest.mark.parametrize("codec", PACKED)
def test_decompression_bomb_is_refused(codec: Codec) -> None:
    """A compressed batch of 20 MB uses only the memory that the limit allows."""
    bomb = compressor(codec, None)(bytes(20_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="limit"):
            decompress(codec, bomb, limit=LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
