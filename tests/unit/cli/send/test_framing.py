from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aioproducer.cli.send.framing import (
    NOTHING,
    Framing,
    JsonInput,
    JsonValues,
    LengthPrefixed,
    Lines,
    Shape,
    shape_of,
)
from tests.cases import for_each

LIMIT = 100


def prefixed(*values: bytes) -> bytes:
    return b"".join(len(value).to_bytes(4, "big") + value for value in values)


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def taken_apart(framing: Framing, data: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the records, and the bytes of each in the input."""
    items: list[bytes] = []
    spans: list[bytes] = []
    for whole in [*map(framing.feed, data), *iter(framing.finish, NOTHING)]:
        assert len(whole.items) == len(whole.ends)
        assert (whole.ends[-1] if whole.ends else 0) == len(whole.raw)
        items += whole.items
        spans += [whole.raw[a:b] for a, b in zip([0, *whole.ends], whole.ends, strict=False)]
    return items, spans


def test_lines_are_independent_of_pieces() -> None:
    for size in [1, 2, 3, 7, 1_000]:
        data = b"one\ntwo\r\n\n\r\nno end\r here"
        items, spans = taken_apart(Lines(LIMIT), pieces(data, size))
        assert items == [b"one", b"two", b"", b"", b"no end\r here"]
        assert spans == [b"one\n", b"two\r\n", b"\n", b"\r\n", b"no end\r here"]


def test_binary_records_are_independent_of_pieces() -> None:
    for size in [1, 2, 3, 7, 1_000]:
        values = [b"one", b"", b"\n\0\xff", b"x" * LIMIT]
        items, spans = taken_apart(LengthPrefixed(LIMIT), pieces(prefixed(*values), size))
        assert items == values
        assert spans == [prefixed(value) for value in values]


@pytest.mark.parametrize("make", [Lines, LengthPrefixed])
def test_empty_file_has_no_record(make: Callable[[int], Framing]) -> None:
    assert taken_apart(make(LIMIT), []) == ([], [])


def test_endless_line_is_refused() -> None:
    lines = Lines(LIMIT)
    assert lines.feed(b"good\n" + b"x" * LIMIT).items == [b"good"]
    with pytest.raises(ValueError, match=r"longer than max.request.size = 100 bytes"):
        lines.feed(b"x")


@pytest.mark.parametrize("end", [lambda framing: framing.feed(b"more"), lambda framing: framing.finish()])
def test_illegal_length_is_refused_after_earlier_records(
    end: Callable[[Framing], Any],
) -> None:
    framing = LengthPrefixed(LIMIT)
    assert framing.feed(prefixed(b"good") + b"text").items == [b"good"]
    with pytest.raises(ValueError, match=r"1,952,807,028 bytes, .* is this really length-prefixed"):
        end(framing)


@for_each("cut", [1, 3, 4, 6])
def test_cut_binary_record_is_refused(cut: int) -> None:
    framing = LengthPrefixed(LIMIT)
    assert framing.feed(prefixed(b"good") + prefixed(b"value")[:cut]).items == [b"good"]
    with pytest.raises(ValueError, match="ends in the middle"):
        framing.finish()


@for_each("step", [1, 2, 3, 100])
@for_each("delimiter", [b"\0", b"\x1e", b"||", b"\r\n", b"aab"])
def test_lines_end_at_any_delimiter(delimiter: bytes, step: int) -> None:
    raw = delimiter.join([b"one\n", b"", b"a", b"last"])
    lines = Lines(1_000, delimiter)
    items: list[bytes] = []
    for start in range(0, len(raw), step):
        items += lines.feed(raw[start : start + step]).items
    items += lines.finish().items
    assert items == raw.split(delimiter)


def test_byte_order_mark_is_removed() -> None:
    raw = b"\xef\xbb\xbfone\n\xef\xbb\xbftwo"
    lines = Lines(1_000)
    first, last = lines.feed(raw), lines.finish()
    assert [*first.items, *last.items] == [b"one", b"\xef\xbb\xbftwo"]
    assert first.raw + last.raw == raw


def test_file_of_a_byte_order_mark_alone_has_no_line() -> None:
    lines = Lines(1_000)
    assert (lines.feed(b"\xef\xbb\xbf").items, lines.finish().items) == ((), ())


SIZES = [1, 2, 3, 7, 1_000]


SHAPES: list[tuple[bytes, Shape | None, Shape]] = [
    (b"", None, Shape.LINES),
    (b"\xef\xbb", None, Shape.LINES),
    (b" \n", None, Shape.LINES),
    (b"nonsense", Shape.LINES, Shape.LINES),
    (b"1 2", Shape.LINES, Shape.LINES),
    (b'{"a": 1}', None, Shape.LINES),
    (b'{"a": 1}\n', Shape.LINES, Shape.LINES),
    (b'{"a": 1}\r\n{', Shape.LINES, Shape.LINES),
    (b'\n\n{"a": 1}\n', Shape.LINES, Shape.LINES),
    (b'{"a": 1} x', Shape.LINES, Shape.LINES),
    (b'{"a": 1}, {', Shape.LINES, Shape.LINES),
    (b'{"a": 1}{', Shape.VALUES, Shape.VALUES),
    (b'{"a": 1} [', Shape.VALUES, Shape.VALUES),
    (b'{"a": 1}\r{', Shape.VALUES, Shape.VALUES),
    (b"{", None, Shape.LINES),
    (b"{\n", None, Shape.LINES),
    (b"{\n}", Shape.VALUES, Shape.VALUES),
    (b'{\n "a": "b', Shape.VALUES, Shape.VALUES),
    (b'{\n "a": tru', None, Shape.VALUES),
    (b'{"a":\n{"b": 1}}', Shape.VALUES, Shape.VALUES),
    (b'\xef\xbb\xbf{\n "a"', Shape.VALUES, Shape.VALUES),
    (b'{"a": 1\n{"a": 2}\n', Shape.LINES, Shape.LINES),
    (b'{"a": "b\n{"a": 2}\n', Shape.LINES, Shape.LINES),
    (b'{\n "a": 1\n "b": 2\n}\n', Shape.VALUES, Shape.VALUES),
    (b"[]", None, Shape.ONE_LINE_ARRAY),
    (b'[{"a": 1}]\n', None, Shape.ONE_LINE_ARRAY),
    (b'[{"a": 1}]\n\n[', Shape.LINES, Shape.LINES),
    (b"[1]\n[2]\n", Shape.LINES, Shape.LINES),
    (b"[1][2]", Shape.VALUES, Shape.VALUES),
    (b"[1] 2", Shape.LINES, Shape.LINES),
    (b"[\n", None, Shape.LINES),
    (b'[\n{"a"', Shape.VALUES, Shape.VALUES),
    (b'[{"a": 1},', None, Shape.LINES),
    (b'[{"a": 1},\n{"a"', Shape.VALUES, Shape.VALUES),
    (b"[2026-11-27 03:09] started\n", Shape.LINES, Shape.LINES),
    (b"[section]\n", Shape.LINES, Shape.LINES),
    (b"[" * 100_000, Shape.LINES, Shape.LINES),
]


def test_shape_is_recognized() -> None:
    for head, going_on, ended in SHAPES:
        assert shape_of(head, ended=False) is going_on, head[:40]
        assert shape_of(head, ended=True) is ended, head[:40]


VALUES = [
    b'{"a": "x\\"]}\\\\"}',
    b"[[1, 2], {}]",
    b'{"b":\n  [{"c": "\xc3\xa4"}\n]}',
    b"null",
    b"-1.5e3",
    b'"s, ]"',
    b"{}",
]


@pytest.mark.parametrize(
    ("begin", "between", "end"),
    [(b"[", b",", b"]"), (b"\xef\xbb\xbf \n[\n  ", b" ,\r\n  ", b"\n]\n \n"), (b"[ ", b" , ", b" ] ")],
)
def test_elements_of_an_array_are_records(begin: bytes, between: bytes, end: bytes) -> None:
    for size in SIZES:
        data = begin + between.join(VALUES) + end
        items, spans = taken_apart(JsonInput(LIMIT), pieces(data, size))
        assert items == VALUES
        assert b"".join(spans) == data[: len(begin + between.join(VALUES))]


@for_each("between", [b"", b" ", b"\n", b"\n\n", b"\r\n", b"\r"])
def test_adjacent_json_values_are_records(between: bytes) -> None:
    for size in SIZES:
        values = [b'{\n "a": 1\n}', b'{"b": [1,\n2]}', b"[1]", b"{}"]
        items, _ = taken_apart(JsonInput(LIMIT), pieces(between.join(values), size))
        assert items == values


@pytest.mark.parametrize(
    "lines", [[b"[1]", b"[2]"], [b'[{"a": 1}]', b"", b"[]"], [b'{"a": 1}', b"[", b"nonsense"]]
)
def test_json_lines_stay_lines(lines: list[bytes]) -> None:
    for size in SIZES:
        framing = JsonInput(LIMIT)
        items, _ = taken_apart(framing, pieces(b"\n".join(lines), size))
        assert (items, framing.unit) == (lines, "line")


def test_arrays_behind_each_other_are_one_list() -> None:
    for size in SIZES:
        for data in (b"[1, 2][3]", b"[1,\n2]\n[]\n[3]\n", b" [\n1, 2, 3\n] "):
            assert taken_apart(JsonInput(LIMIT), pieces(data, size))[0] == [b"1", b"2", b"3"]


@for_each("data", [b"[]", b" [ ] \n", b"[\n]\n", b"", b"\n\n"])
def test_empty_array_has_no_record(data: bytes) -> None:
    for size in SIZES:
        assert [item for item in taken_apart(JsonInput(LIMIT), pieces(data, size))[0] if item.strip()] == []


def test_array_on_a_line_longer_than_a_record_is_streamed() -> None:
    framing = JsonInput(LIMIT)
    data = b"[" + b",".join(b'{"n": %d}' % number for number in range(1_000)) + b"]\n"
    taken = [framing.feed(piece).items for piece in pieces(data, 64)]
    assert sum(map(len, taken)) == 1_000
    assert max(map(len, taken)) < 20


def test_lines_of_records_are_numbered() -> None:
    for size in SIZES:
        framing = JsonInput(LIMIT)
        data = b'[\n  {"a":\n 1},\n\n {"a": 2}, {"a": 3}\n,4]'
        wholes = [*map(framing.feed, pieces(data, size)), *iter(framing.finish, NOTHING)]
        assert [line for whole in wholes for line in whole.lines or ()] == [2, 5, 5, 6]


def take_all(framing: Framing, data: list[bytes], items: list[bytes]) -> None:
    for piece in data:
        items.extend(framing.feed(piece).items)
    while (whole := framing.finish()).items:
        items.extend(whole.items)


@for_each(
    ("data", "records", "reason"),
    [
        (b"[\n1,\n2\n", 2, "the array has no end"),
        (b'[\n1,\n{"a": 2', 1, "ends in the middle of it, on line 3"),
        (b'[\n1,\n"a', 1, "ends in the middle of it, on line 3"),
        (b"[\n1,\n2", 1, "ends in the middle of it, on line 3"),
        (b"[\n1,\n2,\n]", 2, "expected a value instead of ']' on line 4"),
        (b"[\n1\n2]", 1, "expected a comma or the end of the array on line 3"),
        (b"[\n,1]", 0, "expected a value instead of ',' on line 2"),
        (b"[\n1,,2]", 1, "expected a value instead of ',' on line 2"),
        (b"{\n}\n}", 1, "expected a value instead of '}' on line 3"),
        (b'{\n"a": 1},\n{"a": 2}', 1, "expected a value instead of ',' on line 2"),
        (b"[\n1,\n" + b'"' + b"x" * LIMIT + b'"]', 1, "longer than max.request.size = 100"),
    ],
)
def test_broken_array_is_refused_after_its_records(data: bytes, records: int, reason: str) -> None:
    for size in SIZES:
        items: list[bytes] = []
        with pytest.raises(ValueError, match=reason):
            take_all(JsonInput(LIMIT), pieces(data, size), items)
        assert len(items) == records


def test_large_record_in_small_pieces_is_scanned_once() -> None:
    value = b'{"a": [' + b", ".join(b'"%d"' % number for number in range(200_000)) + b"]}"
    framing = JsonValues(10_000_000)
    items = [item for piece in pieces(b"[" + value + b"]", 65_536) for item in framing.feed(piece).items]
    assert items == [value]


def test_endless_white_space_is_refused() -> None:
    framing = JsonInput(LIMIT)
    assert framing.feed(b"[\n1,\n").items == [b"1"]
    with pytest.raises(ValueError, match="no value follows in 202 bytes"):
        framing.feed(b" " * 200)
