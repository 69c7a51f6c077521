"""Columns of any contents are restored from the batch, by `decode_batches` and by another client's decoder."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, strategies as st

from aioproducer._core.records.columns import (
    RECORD_OVERHEAD,
    SMALL_PAYLOAD,
    RecordColumns,
    RecordHeaders,
    record_size_bound,
    sizes,
)
from aioproducer._core.records.compression import Codec, compressor
from aioproducer._core.records.decode import DecodedBatch, decode_batches
from aioproducer._core.records.record_batch import TRANSACTIONAL, set_sequence
from tests.encoding import encode_columns, encode_records

LIMIT = 1 << 24
Record = tuple[bytes | None, bytes | None, RecordHeaders, int]

datas = st.one_of(st.none(), st.binary(max_size=80), st.integers(0, 9000).map(bytes))
few_names = st.sampled_from(["trace", "source", "é", ""])
headers = st.lists(st.tuples(few_names | st.text(max_size=5), datas), max_size=3).map(tuple)
shared_headers: RecordHeaders = (("trace", b"1f"), ("source", None))
times = st.one_of(st.integers(0, 200), st.integers(0, 1 << 50), st.integers(-1, (1 << 62) - 1))


def records(
    keys: st.SearchStrategy[bytes | None], values: st.SearchStrategy[bytes | None], headers: st.SearchStrategy[Any],
    times: st.SearchStrategy[int],
) -> st.SearchStrategy[list[Record]]:  # fmt: skip
    return st.lists(st.tuples(values, keys, headers, times), min_size=1, max_size=80)


same_size = st.binary(min_size=4, max_size=4)
batches = st.one_of(
    records(datas, datas, headers, times),
    records(st.none(), same_size, st.just(()), st.just(1_000)),
    records(same_size, datas, st.just(shared_headers), st.integers(1_000, 1_010)),
    records(same_size, same_size, st.tuples(st.tuples(st.just("trace"), same_size | datas)), st.just(1_000)),
)
codecs = st.sampled_from(Codec)


def columns_of(records: list[Record]) -> RecordColumns:
    columns = RecordColumns()
    for record in records:
        columns.append(*record)
    return columns


def records_of(columns: RecordColumns) -> list[Record]:
    count = len(columns)
    return list(
        zip(
            columns.values,
            columns.keys if columns.keys is not None else [None] * count,
            columns.headers if columns.headers is not None else [()] * count,
            columns.timestamps,
            strict=True,
        )
    )


def encode(columns: RecordColumns, codec: Codec = Codec.NONE, **stamp: Any) -> bytearray:
    compress = compressor(codec, None) if codec else None
    return encode_columns(columns, codec, compress, **stamp)


def decode(batch: bytearray) -> DecodedBatch:
    (decoded,) = decode_batches(batch, limit=LIMIT)
    return decoded


@given(batches, codecs)
def test_encoded_records_come_back(records: list[Record], codec: Codec) -> None:
    batch = decode(encode(columns_of(records), codec))
    assert [(r.value, r.key, r.headers, r.timestamp_ms) for r in batch.records] == records
    assert [record.offset for record in batch.records] == list(range(len(records)))
    assert batch.base_timestamp == records[0][3]
    assert batch.max_timestamp == max(record[3] for record in records)
    assert batch.codec is codec


@given(batches, codecs, st.booleans())
def test_aiokafka_decodes_the_same_records(records: list[Record], codec: Codec, transactional: bool) -> None:
    raw = encode_columns(
        columns_of(records),
        codec | TRANSACTIONAL if transactional else codec,
        compressor(codec, None) if codec else None,
        producer_id=1 << 40,
        producer_epoch=3,
        base_sequence=17,
    )
    peer = DefaultRecordBatch(raw)
    assert peer.validate_crc()
    assert (peer.magic, peer.base_offset, peer.next_offset) == (2, 0, len(records))
    assert (peer.producer_id, peer.producer_epoch, peer.base_sequence) == (1 << 40, 3, 17)
    assert (peer.compression_type, peer.timestamp_type) == (codec, 0)
    assert (peer.is_transactional, peer.is_control_batch) == (transactional, False)
    assert (peer.first_timestamp, peer.max_timestamp) == (records[0][3], max(record[3] for record in records))
    read = [(r.value, r.key, tuple(r.headers), r.timestamp) for r in peer]
    assert read == records


@given(batches)
def test_appending_one_by_one_and_extending_make_the_same_batch(records: list[Record]) -> None:
    values, keys, headers, timestamps = map(list, zip(*records, strict=True))
    extended = RecordColumns()
    half = len(records) // 2
    for part in (slice(0, half), slice(half, None)):
        extended.extend(values[part], keys[part], headers[part], timestamps[part])
    assert records_of(extended) == records
    assert encode(extended) == encode(columns_of(records))


@given(batches, st.data())
def test_parts_of_a_batch_are_its_records(records: list[Record], data: st.DataObject) -> None:
    columns = columns_of(records)
    start = data.draw(st.integers(0, len(records)))
    stop = data.draw(st.integers(start, len(records)))
    assert records_of(columns.take(range(start, stop))) == records[start:stop]
    indices = data.draw(st.lists(st.sampled_from(range(len(records)))))
    assert records_of(columns.take(indices)) == [records[index] for index in indices]


@given(batches, codecs, st.integers(0, (1 << 63) - 1), st.integers(0, 0x7FFF), st.integers(0, 0x7FFF_FFFF))
def test_restamping_changes_only_the_stamp(
    records: list[Record], codec: Codec, producer_id: int, epoch: int, sequence: int
) -> None:
    stamp = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    batch = encode(columns_of(records), codec)
    set_sequence(batch, producer_id, epoch, sequence)
    assert batch == encode(columns_of(records), codec, **stamp)
    assert DefaultRecordBatch(batch).validate_crc()


@given(batches)
def test_record_size_bound_is_tight(records: list[Record]) -> None:
    columns = columns_of(records)
    bounds = sizes(columns.values, columns.keys, columns.headers)
    assert bounds == [record_size_bound(value, key, headers) for value, key, headers, _ in records]
    for bound, size, (_, _, headers, timestamp_ms) in zip(bounds, exact_sizes(columns), records, strict=True):
        large = bound > SMALL_PAYLOAD + RECORD_OVERHEAD
        certain = large or abs(timestamp_ms - records[0][3]) < 1 << 20
        assert size <= (bound if certain else bound + 9)
        assert bound <= size + (29 + 4 * len(headers) if large else 7 + 2 * len(headers))


def exact_sizes(columns: RecordColumns) -> list[int]:
    """Return how many bytes each record adds to the section."""
    ends = [len(encode_records(columns.take(range(stop)))) for stop in range(len(columns) + 1)]
    return [stop - start for start, stop in pairwise(ends)]
