from __future__ import annotations

import pytest

from aioproducer._core.records.columns import (
    BATCH_OVERHEAD,
    HEADER_OVERHEAD,
    LARGE_HEADER_OVERHEAD,
    LARGE_RECORD_OVERHEAD,
    RECORD_OVERHEAD,
    SMALL_PAYLOAD,
    HeaderColumn,
    HeaderColumns,
    RecordColumns,
    RecordHeaders,
    record_size_bound,
    sizes,
)
from aioproducer._core.records.record_batch import encode_batch
from tests.cases import for_each
from tests.encoding import encode_records


def encoded_size(value: bytes | None, key: bytes | None, headers: RecordHeaders, delta_ms: int = 0) -> int:
    """Return the size of the record as the last of the first million of a batch."""
    columns = RecordColumns()
    columns.append(None, None, (), 0)
    columns.append(value, key, headers, delta_ms)
    first = 7  # a record without anything
    last_offset_delta = 3 - 1  # bytes, in place of offset 1
    return len(encode_records(columns)) - first + last_offset_delta


def test_batch_overhead_is_the_header_size() -> None:
    columns = RecordColumns()
    columns.append(b"value", b"key", (), 0)
    assert len(encode_batch(columns)) == BATCH_OVERHEAD + len(encode_records(columns))


def test_size_bound_of_a_small_record_is_exact() -> None:
    """14 is not just enough for small records: there are some that need it."""
    key, value = b"k" * 3900, b"v" * (SMALL_PAYLOAD - 1 - 3900)
    furthest = (1 << 20) - 1
    assert encoded_size(value, key, (), furthest) == record_size_bound(value, key, ())
    assert encoded_size(value, key, (), -furthest - 1) == len(key) + len(value) + RECORD_OVERHEAD


def test_size_bound_of_a_small_record_holds_with_headers() -> None:
    headers = tuple((f"name-{number}" * 12, b"h" * 70) for number in range(30))
    assert (
        encoded_size(None, None, headers, 1 << 19) <= record_size_bound(None, None, headers) < SMALL_PAYLOAD
    )


def test_size_bound_includes_the_header_count() -> None:
    headers = (("", None),) * 1900
    assert (
        encoded_size(None, None, headers, 1 << 19) <= record_size_bound(None, None, headers) < SMALL_PAYLOAD
    )


def test_size_bound_of_a_large_record_holds_at_any_timestamp() -> None:
    value = b"v" * SMALL_PAYLOAD
    bound = record_size_bound(value, None, ())
    assert bound == SMALL_PAYLOAD + LARGE_RECORD_OVERHEAD
    assert encoded_size(value, None, (), (1 << 63) - 1) <= bound
    assert encoded_size(value, None, (), -(1 << 62)) <= bound


def test_headers_count_with_their_names_as_utf8() -> None:
    assert (
        record_size_bound(b"v", b"key", (("é", b"12"),))
        == 4 + (1 + 2) + 2 + HEADER_OVERHEAD + RECORD_OVERHEAD
    )
    assert record_size_bound(None, None, (("a", None),)) == 1 + 1 + HEADER_OVERHEAD + RECORD_OVERHEAD
    large = b"v" * SMALL_PAYLOAD
    assert record_size_bound(large, None, (("a", b""),)) == (
        SMALL_PAYLOAD + 1 + 1 + LARGE_HEADER_OVERHEAD + LARGE_RECORD_OVERHEAD
    )


def test_size_of_a_header_name_with_surrogates_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        record_size_bound(None, None, (("\ud800", None),))


TRACE: RecordHeaders = (("trace", b"1f"), ("empty", None))


@for_each("big", [b"", b"v" * SMALL_PAYLOAD])
@for_each("keys", [None, [b"k", None, b"key", b""]])
@for_each(
    "headers",
    [
        None,
        [(), (), (), ()],
        [TRACE] * 4,
        [TRACE, (("trace", b"long one"), ("empty", b"")), TRACE, (("trace", None), ("empty", None))],
        [(), TRACE, (("other", b""),), ()],
    ],
)
@for_each("values", [[b"v", b"", b"value"], [None, b"v", None]])
def test_column_sizes_equal_the_bound_of_each_record(
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    headers: list[RecordHeaders] | None,
    big: bytes,
) -> None:
    values = [*values, big]
    assert sizes(values, keys, headers) == [
        record_size_bound(value, keys[index] if keys else None, headers[index] if headers else ())
        for index, value in enumerate(values)
    ]


@pytest.mark.parametrize("big", [b"", b"v" * SMALL_PAYLOAD], ids=["small", "with a large one"])
def test_header_columns_count_as_the_headers_of_each_record(big: bytes) -> None:
    traces: list[bytes | None] = [b"1f", None, b"longer", b"1f"]
    headers = HeaderColumns(
        [HeaderColumn("trace", None, traces), HeaderColumn("é", b"json"), HeaderColumn("null", None)], 4
    )
    values = [b"v", b"", b"value", big]
    assert sizes(values, None, headers) == [
        record_size_bound(value, None, headers[index]) for index, value in enumerate(values)
    ]


def test_column_sizes_of_no_records_are_empty() -> None:
    assert sizes([], [], []) == []
