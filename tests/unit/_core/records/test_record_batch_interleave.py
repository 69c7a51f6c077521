"""The interleaving encoder with every kind of column, compared with a plain encoder."""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer._core.records.columns import HeaderColumn, HeaderColumns, RecordColumns, RecordHeaders
from aioproducer._core.records.record_batch import interleave
from aioproducer._core.wire import append_varlong
from tests.cases import for_each

A: RecordHeaders = (("trace", b"1"), ("source", b"abc"))
B: RecordHeaders = (("trace", b"longer"), ("source", b"abc"))
C: RecordHeaders = (("trace", None), ("source", None))


def plain(columns: RecordColumns) -> bytes:
    """Encode the obvious way."""
    out = bytearray()
    for index, value in enumerate(columns.values):
        body = bytearray(1)
        append_varlong(body, columns.timestamps[index] - columns.timestamps[0])
        append_varlong(body, index)
        append_field(body, columns.keys[index] if columns.keys is not None else None)
        append_field(body, value)
        headers = columns.headers[index] if columns.headers is not None else ()
        append_varlong(body, len(headers))
        for name, header_value in headers:
            append_field(body, name.encode())
            append_field(body, header_value)
        append_varlong(out, len(body))
        out += body
    return bytes(out)


def parts_of(columns: RecordColumns) -> list[bytes]:
    return interleave(columns.values, columns.keys, columns.headers, columns.timestamps)


def section(columns: RecordColumns) -> bytes:
    return b"".join(parts_of(columns))


def append_field(buf: bytearray, data: bytes | None) -> None:
    append_varlong(buf, -1 if data is None else len(data))
    buf += data or b""


def columns_of(
    count: int,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[RecordHeaders] | None = None,
    timestamps: Sequence[int] = (1_700_000_000_000,),
) -> RecordColumns:
    """Return *count* records, from columns that are repeated as often as needed."""
    columns = RecordColumns()
    columns.values = [values[index % len(values)] for index in range(count)]
    columns.timestamps = [timestamps[index % len(timestamps)] for index in range(count)]
    if keys is not None:
        columns.keys = [keys[index % len(keys)] for index in range(count)]
    if headers is not None:
        columns.headers = [headers[index % len(headers)] for index in range(count)]
    return columns


VALUES = {
    "same size": [b"abc", b"xyz"],
    "any size": [b"abc", b"", b"x" * 70, b"y" * 9000],
    "some null": [b"abc", None],
    "all null": [None],
    "all empty": [b""],
}
KEYS = {"absent": None, "same size": [b"kk", b"ll"], "any size": [b"k", b"key", None], "all null": [None]}
HEADERS = {
    "absent": None,
    "none": [()],
    "shared": [A],
    "same names": [A, B],
    "same names, null at the end": [C, (("trace", b"x"), ("source", None))],
    "irregular": [A, (), A[:1], (("", b""),), C],
    "empty names": [(("", b"1"), ("", b"2")), (("", b"1"), ("", b"23"))],
    "a large one, shared": [(("name" * 50, b"h" * 300),)],
}
TIMESTAMPS = {
    "one": [1_000],
    "near": [1_000, 1_063, 936],
    "far": [1_000, 1_064, 5_000_000],
    "extreme": [-(1 << 62), (1 << 62) - 1],
}
COUNTS = [1, 2, 7, 8, 70]


@for_each("timestamps", TIMESTAMPS.values())
@for_each("headers", HEADERS.values())
@for_each("keys", KEYS.values())
@for_each("values", VALUES.values())
def test_interleaved_section_equals_a_plain_encoder(
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    headers: list[RecordHeaders] | None,
    timestamps: list[int],
) -> None:
    for count in COUNTS:
        columns = columns_of(count, values, keys, headers, timestamps)
        assert section(columns) == plain(columns), f"{count} records"


@for_each("trace", [None, [b"1", b"2"], [b"1", None, b"long" * 50]])
@for_each("value", [None, b"", b"json", b"h" * 300])
@for_each("order", [1, -1])
def test_header_columns_encode_like_headers_of_records(
    trace: list[bytes | None] | None, value: bytes | None, order: int
) -> None:
    for count in COUNTS:
        columns = columns_of(count, [b"abc", b"x" * 70], [b"kk", b"ll"])
        traces = None if trace is None else [trace[index % len(trace)] for index in range(count)]
        headers = [HeaderColumn("trace", None, traces), HeaderColumn("type", value)][::order]
        columns.headers = HeaderColumns(headers, count)
        assert section(columns) == plain(columns), f"{count} records"


@for_each("values", [[b""], [b"", b"x"]])
@for_each("count", [63, 64, 65, 4096, 4097, 8192, 8193, 8200])
def test_offset_deltas_of_any_width_are_right(count: int, values: list[bytes | None]) -> None:
    columns = columns_of(count, values)
    assert section(columns) == plain(columns)


def test_interleaving_leaves_columns_unchanged() -> None:
    columns = columns_of(70, [b"abc", None], [b"k", b"key"], [A, B], [1, 2])
    before = columns.take(range(70))
    section(columns)
    assert (columns.values, columns.keys) == (before.values, before.keys)
    assert (columns.headers, columns.timestamps) == (before.headers, before.timestamps)


def test_batches_of_similar_sizes_share_their_rows() -> None:
    values: list[bytes | None] = [b"%03d" % number for number in range(100)]
    parts = parts_of(columns_of(100, values))
    assert parts[1::2] == values
    again = parts_of(columns_of(128, [b"zzz"]))
    assert all(left is right for left, right in zip(parts[2:-1:2], again[2:200:2], strict=True))


@for_each(
    ("strands", "values", "keys", "headers"),
    [
        (1, [b""], None, None),
        (1, [b""], None, [(("trace", b"12"),)]),
        (3, [b""], None, [(("trace", b"123"),)]),  # a longer tail than cached rows have
        (2, [b"abc", b"xyz"], None, None),
        (4, [b"abc", b"xyz"], [b"kk", b"ll"], None),
        (3, [b"abc", b"xyz"], None, [A]),
        (4, [b"abc", b"x"], None, None),
        (6, [b"abc", b"x"], [b"kk", b"l"], None),
    ],
)
def test_parts_that_records_share_need_no_strand(
    strands: int,
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    headers: list[RecordHeaders] | None,
) -> None:
    assert len(parts_of(columns_of(100, values, keys, headers))) == strands * 100 + 1
