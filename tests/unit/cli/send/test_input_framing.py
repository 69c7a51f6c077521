from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aioproducer.cli.send.input_framing import NOTHING, Framing, LengthPrefixed, Lines

LIMIT = 100


def prefixed(*values: bytes) -> bytes:
    return b"".join(len(value).to_bytes(4, "big") + value for value in values)


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def taken_apart(framing: Framing, data: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the records, and what each takes in the input."""
    items: list[bytes] = []
    spans: list[bytes] = []
    for whole in [*map(framing.feed, data), *iter(framing.finish, NOTHING)]:
        assert len(whole.items) == len(whole.ends)
        assert (whole.ends[-1] if whole.ends else 0) == len(whole.raw)
        items += whole.items
        spans += [whole.raw[a:b] for a, b in zip([0, *whole.ends], whole.ends, strict=False)]
    return items, spans


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_lines_are_the_same_however_they_come(size: int) -> None:
    data = b"one\ntwo\r\n\n\r\nno end\r here"
    items, spans = taken_apart(Lines(LIMIT), pieces(data, size))
    assert items == [b"one", b"two", b"", b"", b"no end\r here"]
    assert spans == [b"one\n", b"two\r\n", b"\n", b"\r\n", b"no end\r here"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_binary_records_are_the_same_however_they_come(size: int) -> None:
    values = [b"one", b"", b"\n\0\xff", b"x" * LIMIT]
    items, spans = taken_apart(LengthPrefixed(LIMIT), pieces(prefixed(*values), size))
    assert items == values
    assert spans == [prefixed(value) for value in values]


@pytest.mark.parametrize("make", [Lines, LengthPrefixed])
def test_an_empty_file_has_nothing(make: Callable[[int], Framing]) -> None:
    assert taken_apart(make(LIMIT), []) == ([], [])


def test_a_line_that_does_not_end_is_refused_before_memory_does() -> None:
    lines = Lines(LIMIT)
    assert lines.feed(b"good\n" + b"x" * LIMIT).items == [b"good"]
    with pytest.raises(ValueError, match=r"longer than max.request.size = 100 bytes"):
        lines.feed(b"x")


@pytest.mark.parametrize("end", [lambda framing: framing.feed(b"more"), lambda framing: framing.finish()])
def test_a_length_that_cannot_be_is_refused_after_the_records_before_it(
    end: Callable[[Framing], Any],
) -> None:
    framing = LengthPrefixed(LIMIT)
    assert framing.feed(prefixed(b"good") + b"text").items == [b"good"]
    with pytest.raises(ValueError, match=r"1,952,807,028 bytes, .* is this really length-prefixed"):
        end(framing)


@pytest.mark.parametrize("cut", [1, 3, 4, 6])
def test_a_binary_record_that_the_input_cuts_is_refused(cut: int) -> None:
    framing = LengthPrefixed(LIMIT)
    assert framing.feed(prefixed(b"good") + prefixed(b"value")[:cut]).items == [b"good"]
    with pytest.raises(ValueError, match="ends in the middle"):
        framing.finish()


@pytest.mark.parametrize("step", [1, 2, 3, 100])
@pytest.mark.parametrize("delimiter", [b"\0", b"\x1e", b"||", b"\r\n", b"aab"])
def test_lines_end_at_any_delimiter(delimiter: bytes, step: int) -> None:
    raw = delimiter.join([b"one\n", b"", b"a", b"last"])
    lines = Lines(1_000, delimiter)
    items: list[bytes] = []
    for start in range(0, len(raw), step):
        items += lines.feed(raw[start : start + step]).items
    items += lines.finish().items
    assert items == raw.split(delimiter)


def test_byte_order_mark_is_no_part_of_the_first_line() -> None:
    raw = b"\xef\xbb\xbfone\n\xef\xbb\xbftwo"
    lines = Lines(1_000)
    first, last = lines.feed(raw), lines.finish()
    assert [*first.items, *last.items] == [b"one", b"\xef\xbb\xbftwo"]
    assert first.raw + last.raw == raw


def test_file_of_a_byte_order_mark_alone_has_no_line() -> None:
    lines = Lines(1_000)
    assert (lines.feed(b"\xef\xbb\xbf").items, lines.finish().items) == ((), ())
