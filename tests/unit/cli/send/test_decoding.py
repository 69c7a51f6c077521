from __future__ import annotations

import json

from aioproducer.cli.send.decoding import Columns, Fields, keyed, objects, text_only, whole, with_constants
from tests.cases import for_each

PARTITIONS = frozenset(range(3))
EVERYTHING = Fields(value="order.payload", key="order.id", headers="meta", partition="to")


def decoded(fields: Fields, *lines: object) -> Columns:
    items = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return objects(fields, PARTITIONS)(items)


def test_line_is_a_value() -> None:
    columns = whole([b"a", b""])
    assert (list(columns.rows), columns.values) == ([0, 1], [b"a", b""])
    assert (columns.keys, columns.headers, columns.partitions) == (None, None, None)
    assert not columns.bad


def test_key_ends_at_first_separator() -> None:
    columns = keyed(b"=>")([b"k=>v=>w", b"=>", b"no", b"k=>v"])
    assert columns.keys == [b"k", b""]
    assert columns.values == [b"v=>w", b""]
    assert list(columns.rows) == [0, 1]
    assert columns.bad == [(2, "there is no key separator '=>'")]


def test_json_without_fields_is_sent_unchanged() -> None:
    columns = decoded(Fields(), b' {"a":  1.50}\r', b"", b"  ", b"[1]")
    assert columns.values == [b'{"a":  1.50}', b"[1]"]
    assert columns.rows == [0, 3]
    assert (columns.keys, columns.headers, columns.partitions) == (None, None, None)
    assert not columns.bad


def test_every_part_of_a_record_is_found_by_its_path() -> None:
    line = {"order": {"payload": "grün", "id": 7}, "meta": {"trace": "1f", "none": None, "n": 1}, "to": 2}
    columns = decoded(EVERYTHING, line)
    assert columns.values == ["grün".encode()]
    assert columns.keys == [b"7"]
    assert columns.headers == [[("trace", b"1f"), ("none", None), ("n", b"1")]]
    assert columns.partitions == [2]


def test_line_is_the_value_when_only_key_is_named() -> None:
    columns = decoded(Fields(key="id"), {"id": "a"})
    assert (columns.keys, columns.values, columns.headers) == ([b"a"], [b'{"id": "a"}'], None)


@for_each(
    ("found", "value"),
    [
        (None, None),
        ("", b""),
        (True, b"true"),
        (1.5, b"1.5"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'.encode()),
    ],
)
def test_null_is_none_and_other_values_are_json(found: object, value: bytes | None) -> None:
    assert decoded(Fields(value="v"), {"v": found}).values == [value]


def test_headers_and_a_partition_may_be_missing_or_null() -> None:
    order = {"order": {"payload": "v", "id": None}}
    columns = decoded(EVERYTHING, order, order | {"meta": None, "to": None})
    assert (columns.headers, columns.partitions, columns.keys) == ([[], []], [None, None], [None, None])


@for_each(
    ("line", "reason"),
    [
        (b"\xff\xfe", "it is not UTF-8, from byte 0 on"),
        (b'{"a": }', "it is not JSON: Expecting value, at character 7"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b"[1]", "it is not an object: [1]"),
        ({"order": 3}, "there is no field order.payload"),
        ({"order": {"payload": "v"}}, "there is no field order.id"),
        ({"order": {"payload": "\ud800", "id": 1}}, "half of a surrogate pair cannot be encoded: '\\ud800'"),
        (
            {"order": {"payload": 1, "id": 1}, "meta": "x" * 50},
            f"meta is no object with headers: '{'x' * 39}…",
        ),
        ({"order": {"payload": 1, "id": 1}, "to": "1"}, "to is no partition: '1'"),
        ({"order": {"payload": 1, "id": 1}, "to": True}, "to is no partition: True"),
        ({"order": {"payload": 1, "id": 1}, "to": 3}, "to = 3: the topic has the partitions 0 to 2"),
        ({"order": {"payload": 1, "id": 1}, "to": -1}, "to = -1: the topic has the partitions 0 to 2"),
        (
            {"order": {"payload": 1, "id": 1}, "meta": {"\ud800": 1}},
            "half of a surrogate pair cannot be encoded: '\\ud800'",
        ),
        (b"NaN", "it is not JSON: NaN"),
        (b'{"order": -Infinity}', "it is not JSON: -Infinity"),
        (b'{"order": {"payload": 1e999, "id": 1}}', "it has a number that is too large: inf"),
        (b'{"order": {"payload": "v", "id": [1e999]}}', "it has a number that is too large: [inf]"),
        (b"\xef\xbb\xbf{}", "it is not JSON: it begins with a byte order mark, which is to be taken away"),
    ],
)
def test_malformed_line_ends_the_columns(line: object, reason: str) -> None:
    good = {"order": {"payload": "v", "id": "k"}}
    columns = decoded(EVERYTHING, good, b"", line, good)
    assert columns.bad == [(2, reason)]
    assert columns.rows == [0]
    assert columns.keys == [b"k"]
    assert columns.headers == [[]]
    assert columns.partitions == [None]


def test_deeply_nested_json_is_reported() -> None:
    """Parsing may succeed where writing it as JSON again, some frames further in, does not."""
    told = set()
    for depth in range(100, 1_100):
        line = b'{"v":' + b"[" * depth + b"]" * depth + b"}"
        bad = objects(Fields(value="v"), range(3))([line]).bad
        told.add(bad[0][1] if bad else None)
    assert told <= {None, "it is nested too deeply"}
    assert None in told


def test_constant_headers_precede_own_headers() -> None:
    decode = with_constants(whole, b"k", [("a", b"1")])
    columns = decode([b"x", b"y"])
    assert (columns.keys, columns.headers) == ([b"k", b"k"], [[("a", b"1")], [("a", b"1")]])
    own = with_constants(objects(Fields(headers="h"), {0}), None, [("a", b"1")])
    columns = own([b'{"h": {"b": "2"}}', b"", b"{}"])
    assert columns.keys is None
    assert columns.headers == [[("a", b"1"), ("b", b"2")], [("a", b"1")]]


@for_each(
    ("found", "timestamp_ms"),
    [
        (None, None),
        (0, 0),
        (1_700_000_000_123, 1_700_000_000_123),
        (2**63 - 1, 2**63 - 1),
        ("1970-01-01T00:00:00Z", 0),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("2023-11-14T23:13:20.123999+01:00", 1_700_000_000_123),
        ("2023-11-14 22:13:20.123456789Z", 1_700_000_000_123),
        ("20231114T221320,123Z", 1_700_000_000_123),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ],
)
def test_timestamp_is_milliseconds_or_iso_8601(found: object, timestamp_ms: int | None) -> None:
    columns = decoded(Fields(timestamp="meta.at"), {"meta": {"at": found}})
    assert (columns.timestamps_ms, columns.bad) == ([timestamp_ms], [])
    assert columns.values == [json.dumps({"meta": {"at": found}}).encode()]


@for_each(
    ("line", "reason"),
    [
        ({}, "there is no field at"),
        ({"at": "2023-11-14T22:13:20"}, "the time has no zone; add Z or +00:00"),
        ({"at": "2023-11-14"}, "the time has no zone"),
        ({"at": "yesterday"}, "at is no time: 'yesterday'; expected an integer"),
        ({"at": "1700000000123"}, "at is no time: '1700000000123'"),
        ({"at": ""}, "at is no time: ''"),
        ({"at": 1.5}, "at is no time: 1.5"),
        ({"at": True}, "at is no time: True"),
        ({"at": [1]}, "at is no time: [1]"),
        ({"at": -1}, "at = -1: a timestamp is not before 1970"),
        ({"at": 2**63}, "a timestamp is not before 1970 and fits into 64 bits"),
        ({"at": "1969-12-31T23:59:59.999Z"}, "a timestamp is not before 1970"),
        ({"at": "0001-01-01T00:00:00+14:00"}, "a timestamp is not before 1970"),
    ],
)
def test_malformed_timestamp_is_refused(line: object, reason: str) -> None:
    columns = decoded(Fields(timestamp="at"), {"at": 1}, line)
    [(index, told)] = columns.bad
    assert (index, columns.timestamps_ms) == (1, [1])
    assert reason in told


TAILED = {
    "topic": "orders",
    "partition": 2,
    "offset": 7,
    "timestamp_ms": 5,
    "key": {"base64": "/w=="},
    "value": "v",
    "headers": [["a", "1"], ["a", None]],
}


def test_object_of_tail_is_the_record_in_it() -> None:
    columns = decoded(Fields(), {"a": 1}, TAILED)
    assert columns.values == [b'{"a": 1}', b"v"]
    assert columns.keys == [None, b"\xff"]
    assert columns.headers == [[], [("a", b"1"), ("a", None)]]
    assert columns.timestamps_ms == [None, 5]
    assert columns.partitions is None, "another topic may have fewer"


def test_object_of_tail_keeps_partition_of_named_field() -> None:
    columns = decoded(Fields(partition="partition"), TAILED)
    assert (columns.values, columns.partitions) == ([b"v"], [2])


def test_object_of_tail_is_plain_json_when_a_field_is_named() -> None:
    assert decoded(Fields(key="topic"), TAILED).values == [json.dumps(TAILED).encode()]
    assert decoded(Fields(value="offset"), TAILED).values == [b"7"]


NOT_TEXT = [b"a=1", "ä=2".encode(), b"b\0=3", b"c=\xff", b"no", b"d=\xc3", b"\xa4=5"]


def test_binary_line_ends_the_columns() -> None:
    assert text_only(whole)(NOT_TEXT[:2]).values == NOT_TEXT[:2]
    columns = text_only(whole)(NOT_TEXT)
    assert (list(columns.rows), columns.values) == ([0, 1], NOT_TEXT[:2])
    [(index, reason)] = columns.bad
    assert (index, "NUL byte" in reason, "--force" in reason) == (2, True, True)
    [(index, reason)] = text_only(whole, nul=True)(NOT_TEXT).bad
    assert (index, reason) == (
        3,
        "it is not UTF-8, from byte 2 on; convert the input with iconv, or add --force",
    )
    assert [index for index, _ in text_only(keyed(b"="))([b"no", b"\xff"]).bad] == [0]


def test_binary_lines_are_skipped() -> None:
    columns = text_only(keyed(b"=", skips=True), skips=True)(NOT_TEXT)
    assert (columns.rows, columns.keys) == ([0, 1], [b"a", "ä".encode()])
    assert [index for index, _ in columns.bad] == [2, 3, 4, 5, 6]
