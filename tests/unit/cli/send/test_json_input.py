from __future__ import annotations

import pytest

from aioproducer.cli.send.input_framing import NOTHING
from aioproducer.cli.send.json_input import JsonInput, JsonValues, Shape, shape_of
from tests.unit.cli.send.test_input_framing import pieces, taken_apart

LIMIT = 100
SIZES = [1, 2, 3, 7, 1_000]


@pytest.mark.parametrize(
    ("head", "going_on", "ended"),
    [
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
    ],
    ids=range(37),
)
def test_shape_is_recognized(head: bytes, going_on: Shape | None, ended: Shape) -> None:
    assert shape_of(head, ended=False) is going_on
    assert shape_of(head, ended=True) is ended


VALUES = [
    b'{"a": "x\\"]}\\\\"}',
    b"[[1, 2], {}]",
    b'{"b":\n  [{"c": "\xc3\xa4"}\n]}',
    b"null",
    b"-1.5e3",
    b'"s, ]"',
    b"{}",
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("begin", "between", "end"),
    [(b"[", b",", b"]"), (b"\xef\xbb\xbf \n[\n  ", b" ,\r\n  ", b"\n]\n \n"), (b"[ ", b" , ", b" ] ")],
)
def test_elements_of_an_array_are_records(size: int, begin: bytes, between: bytes, end: bytes) -> None:
    data = begin + between.join(VALUES) + end
    items, spans = taken_apart(JsonInput(LIMIT), pieces(data, size))
    assert items == VALUES
    assert b"".join(spans) == data[: len(begin + between.join(VALUES))]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("between", [b"", b" ", b"\n", b"\n\n", b"\r\n", b"\r"])
def test_values_next_to_each_other_are_records(size: int, between: bytes) -> None:
    values = [b'{\n "a": 1\n}', b'{"b": [1,\n2]}', b"[1]", b"{}"]
    items, _ = taken_apart(JsonInput(LIMIT), pieces(between.join(values), size))
    assert items == values


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "lines", [[b"[1]", b"[2]"], [b'[{"a": 1}]', b"", b"[]"], [b'{"a": 1}', b"[", b"nonsense"]]
)
def test_lines_stay_lines(size: int, lines: list[bytes]) -> None:
    framing = JsonInput(LIMIT)
    items, _ = taken_apart(framing, pieces(b"\n".join(lines), size))
    assert (items, framing.unit) == (lines, "line")


@pytest.mark.parametrize("size", SIZES)
def test_arrays_behind_each_other_are_one_list(size: int) -> None:
    for data in (b"[1, 2][3]", b"[1,\n2]\n[]\n[3]\n", b" [\n1, 2, 3\n] "):
        assert taken_apart(JsonInput(LIMIT), pieces(data, size))[0] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("data", [b"[]", b" [ ] \n", b"[\n]\n", b"", b"\n\n"])
def test_an_empty_array_has_no_record(data: bytes) -> None:
    for size in SIZES:
        assert [item for item in taken_apart(JsonInput(LIMIT), pieces(data, size))[0] if item.strip()] == []


def test_array_on_a_line_longer_than_a_record_is_streamed() -> None:
    framing = JsonInput(LIMIT)
    data = b"[" + b",".join(b'{"n": %d}' % number for number in range(1_000)) + b"]\n"
    taken = [framing.feed(piece).items for piece in pieces(data, 64)]
    assert sum(map(len, taken)) == 1_000
    assert max(map(len, taken)) < 20


@pytest.mark.parametrize("size", SIZES)
def test_lines_of_records_are_numbered(size: int) -> None:
    framing = JsonInput(LIMIT)
    data = b'[\n  {"a":\n 1},\n\n {"a": 2}, {"a": 3}\n,4]'
    wholes = [*map(framing.feed, pieces(data, size)), *iter(framing.finish, NOTHING)]
    assert [line for whole in wholes for line in whole.lines or ()] == [2, 5, 5, 6]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
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
    ids=range(11),
)
def test_broken_array_is_refused_behind_its_records(
    size: int, data: bytes, records: int, reason: str
) -> None:
    framing = JsonInput(LIMIT)
    items: list[bytes] = []

    def take() -> None:
        for piece in pieces(data, size):
            items.extend(framing.feed(piece).items)
        while (whole := framing.finish()).items:
            items.extend(whole.items)

    with pytest.raises(ValueError, match=reason):
        take()
    assert len(items) == records


def test_large_record_in_small_pieces_is_scanned_once() -> None:
    value = b'{"a": [' + b", ".join(b'"%d"' % number for number in range(200_000)) + b"]}"
    framing = JsonValues(10_000_000)
    items = [item for piece in pieces(b"[" + value + b"]", 65_536) for item in framing.feed(piece).items]
    assert items == [value]


def test_white_space_without_end_is_refused_before_memory_is_used_up() -> None:
    framing = JsonInput(LIMIT)
    assert framing.feed(b"[\n1,\n").items == [b"1"]
    with pytest.raises(ValueError, match="no value follows in 202 bytes"):
        framing.feed(b" " * 200)
