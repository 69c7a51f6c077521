from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from aioproducer._core.records.columns import (
    BATCH_OVERHEAD,
    SMALL_PAYLOAD,
    HeaderColumn,
    HeaderColumns,
    RecordColumns,
)
from aioproducer._core.records.record_batch import HEADER, encode_batch
from aioproducer._core.wire import crc32c
from tests.cases import for_each
from tests.unit._core.records.buffer_rig import accelerator, buffer_of, contents

MAX_MS = 2**63 - 1
TRACE = (("trace", b"1f"),)


def test_buffer_starts_without_memory_for_records() -> None:
    buffer = buffer_of()
    assert (len(buffer), buffer.size, buffer.held) == (0, BATCH_OVERHEAD, BATCH_OVERHEAD)
    assert (buffer.values, buffer.keys, buffer.headers, buffer.timestamps, buffer.sizes()) == (
        [], None, None, (), [],
    )  # fmt: skip
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch(buffer)
    with pytest.raises(BufferError, match="there are no records"):
        memoryview(buffer)


def test_lone_record_holds_its_size() -> None:
    buffer = buffer_of(b"v" * 100)
    assert buffer.held == buffer.size == BATCH_OVERHEAD + 109


def test_capacity_grows_by_a_factor_and_not_beyond_the_limit() -> None:
    buffer, resized, limit = accelerator.RecordBuffer(), 0, 16_384
    while buffer.size + 110 <= limit:
        held = buffer.held
        buffer.append(b"v" * 100, None, (), 0, limit, 32 << 20)
        resized += buffer.held != held
    assert resized < 12
    assert buffer.held <= limit


def test_capacity_grows_exactly_when_no_memory_is_free() -> None:
    buffer = accelerator.RecordBuffer()
    for _ in range(50):
        buffer.append(b"v" * 100, None, (), 0, 1 << 20, 0)
        assert buffer.held == buffer.size


def test_trim_gives_back_a_quarter_or_more() -> None:
    buffer = buffer_of(*[b"v" * 100] * 6)
    assert buffer.held > buffer.size * 4 / 3
    assert buffer.trim() == buffer.held == buffer.size
    buffer.append(b"v", None, (), 0)
    spare = buffer.held - buffer.size
    buffer.extend([b"v" * (spare - 20)], None, None, 0)
    assert buffer.trim() == buffer.held > buffer.size


def test_equal_neighbours_share_one_timestamp() -> None:
    buffer = accelerator.RecordBuffer()
    for timestamp_ms in (5_000, 5_000, 6_000, 6_000, 5_000):
        buffer.append(b"v", None, (), timestamp_ms)
    stamps = buffer.timestamps
    assert stamps == (5_000, 5_000, 6_000, 6_000, 5_000)
    assert [left is right for left, right in pairwise(stamps)] == [True, False, True, False]
    assert buffer.span == (5_000, 6_000)


@for_each("runs", [1, 2, 15, 16, 17, 18, 40])
def test_timestamps_follow_runs_of_equal_times(runs: int) -> None:
    stamps = tuple(sorted(range(runs), key=lambda run: run % 7) * 2)
    buffer = accelerator.RecordBuffer()
    for stamp in stamps:
        buffer.extend([b"v"] * 3, None, None, stamp)
    assert buffer.timestamps == tuple(stamp for stamp in stamps for _ in range(3))
    for count in range(len(buffer), -1, -1):
        buffer.truncate(count)
        assert buffer.timestamps == tuple(stamp for stamp in stamps for _ in range(3))[:count]
        changed = buffer.take(range(count))
        changed.append(b"v", None, (), runs)
        assert changed.timestamps == (*buffer.timestamps, runs)


def test_records_far_apart_are_found_by_index() -> None:
    buffer = accelerator.RecordBuffer()
    buffer.extend([b"%d" % number for number in range(1_000)], None, None, 1)
    for index in (999, 0, 64, 63, 65, -1, -1_000, 500):
        assert buffer.take([index]).values == [b"%d" % (index % 1_000)]
    buffer.truncate(65)
    buffer.extend([b"x"] * 200, None, None, 1)
    assert buffer.take([64, 65, 200, 264]).values == [b"64", b"x", b"x", b"x"]
    for index in (265, -266, 2**63, -(2**70)):
        with pytest.raises(IndexError):
            buffer.take([0, index])


def test_truncate_forgets_the_times_of_dropped_records() -> None:
    buffer = buffer_of(b"a", b"b", b"c")
    buffer.append(None, b"k", TRACE, 2**62)
    buffer.append(None, None, (), -5)
    buffer.truncate(5)
    assert buffer.span == (1_000, 2**62)
    buffer.truncate(2)
    assert (buffer.span, buffer.timestamps) == ((1_000, 1_001), (1_000, 1_001))
    buffer.truncate(0)
    assert (len(buffer), buffer.keys, buffer.headers) == (0, None, None)
    buffer.append(b"n", None, (), 7)
    assert (buffer.span, buffer.timestamps, buffer.values) == ((7, 7), (7,), [b"n"])
    with pytest.raises(ValueError, match="not negative"):
        buffer.truncate(-1)


class Indexed:
    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def __index__(self) -> int:
        self.act()
        return 0


HOSTILE_APPENDS: list[tuple[tuple[Any, ...], type[Exception]]] = [
    (("text", None, (), 1), TypeError),
    ((bytearray(b"v"), None, (), 1), TypeError),
    ((b"v", "key", (), 1), TypeError),
    ((b"v", None, (), "1"), TypeError),
    ((b"v", None, (), 1.0), TypeError),
    ((b"v", None, (), Indexed(lambda: None)), TypeError),
    ((b"v", None, (), 2**63), OverflowError),
    ((b"v", None, (), -(2**63)), ValueError),
    ((b"v", None, None, 1), TypeError),
    ((b"v", None, "ab", 1), TypeError),
    ((b"v", None, (5,), 1), TypeError),
    ((b"v", None, (("a",),), 1), TypeError),
    ((b"v", None, (("a", b"1", b"2"),), 1), TypeError),
    ((b"v", None, ((b"a", b"1"),), 1), TypeError),
    ((b"v", None, (("a", "1"),), 1), TypeError),
    ((b"v", None, (("\ud800", b"1"),), 1), UnicodeEncodeError),
    ((b"v", None), TypeError),
    ((b"v", None, (), 1, 5), TypeError),
    ((b"v", None, (), 1, "room", 5), TypeError),
    ((b"v", None, (), 1, 2**64, 5), OverflowError),
]


@for_each(("arguments", "error"), HOSTILE_APPENDS)
def test_append_refuses_invalid_records(arguments: tuple[Any, ...], error: type[Exception]) -> None:
    buffer = buffer_of(b"a", b"b")
    before = contents(buffer)
    with pytest.raises(error):
        buffer.append(*arguments)
    assert contents(buffer) == before
    if len(arguments) == 4 and type(arguments[3]) is int and arguments[3] == 1:
        assert not buffer.put(*arguments, 1 << 20, 1 << 20) or arguments[2] is None


@for_each(
    ("arguments", "error"),
    [
        (([b"a", "b"], None, None, 1), TypeError),
        (([b"a", b"b"], [b"k"], None, 1), ValueError),
        (([b"a"], None, [(), ()], 1), ValueError),
        (([b"a"], None, None, [1, 2]), ValueError),
        (([b"a", b"b"], None, None, [1, "2"]), TypeError),
        (([b"a", b"b"], None, None, [1, 2**63]), OverflowError),
        (([b"a", b"b"], None, None, [1, -(2**63)]), ValueError),
        (([b"a"], None, [(("\ud800", b""),)], 1), UnicodeEncodeError),
        (([b"a"], None, HeaderColumns([HeaderColumn("a", None, [b"1", b"2"])], 1), 1), ValueError),
        ((5, None, None, 1), TypeError),
        (([b"a"], None, None, None), TypeError),
        (([b"a"], None), TypeError),
    ],
)
def test_extend_adds_all_records_or_none(arguments: tuple[Any, ...], error: type[Exception]) -> None:
    buffer = buffer_of(b"a", b"b")
    before = contents(buffer)
    with pytest.raises(error):
        buffer.extend(*arguments)
    assert contents(buffer) == before


def test_append_during_an_extend_is_harmless() -> None:
    buffer = buffer_of(b"a", b"b")

    class Values(list[bytes]):
        def __iter__(self) -> Iterator[bytes]:
            buffer.extend([b"x" * 5_000], None, None, 1)
            return super().__iter__()

    class Number(int):
        def __index__(self) -> int:
            raise AssertionError

    buffer.extend(Values([b"c"]), None, None, [Number(3)])
    assert buffer.values == [b"a", b"b", b"x" * 5_000, b"c"]
    assert buffer.timestamps == (1_000, 1_001, 1, 3)
    with pytest.raises(TypeError, match="must be an int"):
        buffer.extend([b"d"], None, None, [Indexed(lambda: buffer.truncate(0))])
    with pytest.raises(IndexError):
        buffer.take([0, Indexed(lambda: buffer.truncate(0)), 1])


def test_put_appends_only_plain_records() -> None:
    buffer, room = buffer_of(b"a"), 1 << 20

    class Text(str):
        __slots__ = ()

    class Raw(bytes):
        __slots__ = ()

    class Pair(tuple[Any, ...]):
        __slots__ = ()

    for value, key, headers in (
        (Raw(b"v"), None, ()),
        (b"v", Raw(b"k"), ()),
        (b"v", None, [["a", b"1"]]),
        (b"v", None, [Pair(("a", b"1"))]),
        (b"v", None, {"a": "1"}),
        (b"v", None, {1: b"1"}),
        (b"v", None, {"\udfff": b"1"}),
        (b"v", None, iter(())),
        (bytes(SMALL_PAYLOAD), None, ()),
    ):
        before = contents(buffer)
        assert not buffer.put(value, key, headers, 1, room, room)
        assert contents(buffer) == before
    assert buffer.put(None, b"", {"a": None, "": b""}, 2, room, room)
    assert buffer.put(b"", None, [("a", b"1")], 2, room, room)
    assert buffer.headers == [(), (("a", None), ("", b"")), (("a", b"1"),)]
    assert not buffer.put(b"v", None, None, -MAX_MS - 1, room, room)


def test_put_keeps_to_room_and_memory() -> None:
    buffer = buffer_of(b"a")
    size = 8
    assert not buffer.put(b"v", None, None, 1, size, size)  # a negative timestamp delta needs two bytes
    assert not buffer.put(b"v", None, None, 1_000, size - 1, size)
    assert not buffer.put(b"v", None, None, 1_000, size, size - 1)
    assert buffer.put(b"v", None, None, 1_000, size, size)
    assert buffer.held == buffer.size == BATCH_OVERHEAD + 16


def test_put_into_spare_room_needs_no_free_memory() -> None:
    buffer = buffer_of(*[b"v" * 100] * 3)
    held = buffer.held
    assert held - buffer.size > 8
    assert buffer.put(b"v", None, None, 1_000, 1 << 20, -5)
    assert buffer.held == held


def test_batch_above_the_largest_length_is_refused() -> None:
    buffer, block = accelerator.RecordBuffer(), bytes(1 << 20)
    many = HeaderColumns([HeaderColumn(str(number), block) for number in range(1_100)], 2)
    with pytest.raises(ValueError, match=r"at most 2\*\*31 - 1 bytes"):
        buffer.extend([b"", b""], None, many, 1)
    assert contents(buffer)[1:4] == (BATCH_OVERHEAD, BATCH_OVERHEAD, 0)
    with pytest.raises(ValueError, match=r"at most 2\*\*31 - 1 bytes"):
        buffer.append(None, None, (("a", block),) * 2_100, 1)
    assert contents(buffer)[1:4] == (BATCH_OVERHEAD, BATCH_OVERHEAD, 0)


@for_each(
    ("arguments", "error"),
    [
        ((0, 1, 1, 1), TypeError),
        ((0, None, 1, 1, crc32c), TypeError),
        ((1 << 15, 1, 1, 1, crc32c), OverflowError),
        ((0, 1 << 63, 1, 1, crc32c), OverflowError),
        ((0, 1, -(1 << 15) - 1, 1, crc32c), OverflowError),
        ((0, 1, 1, 1 << 31, crc32c), OverflowError),
        ((0, 1, 1, 1, lambda *_: -1), OverflowError),
        ((0, 1, 1, 1, lambda *_: "no number"), TypeError),
        ((0, 1, 1, 1, lambda *_: 1 // 0), ZeroDivisionError),
    ],
)
def test_encode_refuses_invalid_arguments(arguments: tuple[Any, ...], error: type[Exception]) -> None:
    buffer = buffer_of(b"v")
    with pytest.raises(error):
        buffer.encode(*arguments)
    buffer.append(b"w", None, (), 1)
    assert buffer.values == [b"v", b"w"]


def test_append_while_the_crc_is_computed_is_refused() -> None:
    buffer = buffer_of(b"v" * 1_000)

    def crc(checked: memoryview, start: int, mode: int) -> int:
        assert (start, mode) == (0, 0)
        with pytest.raises(BufferError):
            buffer.append(b"w" * 10_000, None, (), 1)
        return crc32c(checked)

    assert bytes(buffer.encode(0, -1, -1, -1, crc)) == bytes(encode_batch(buffer_of(b"v" * 1_000)))


def test_records_overwritten_from_outside_are_not_followed() -> None:
    for place in range(40):
        for byte in (0x00, 0x7F, 0x80, 0xFF):
            buffer = accelerator.RecordBuffer()
            buffer.append(b"value", b"key", TRACE, 1)
            buffer.append(b"value", b"key", TRACE, 2)
            with memoryview(buffer) as view:
                records = view[HEADER.size :]
                records[place] = byte
                records.release()
            reads: list[Callable[[Any], object]] = [
                lambda made: made.values,
                lambda made: made.keys,
                lambda made: made.headers,
                lambda made: made.timestamps,
                lambda made: made.sizes(),
                lambda made: made.take([1, 0]),
                lambda made: made.truncate(1),
            ]
            for read in reads:
                try:
                    read(buffer)
                except ValueError:
                    continue


def test_buffer_is_untracked_and_frees_its_memory() -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        buffers = [buffer_of(b"v" * 10_000, b"w") for _ in range(50)]
        assert tracemalloc.get_traced_memory()[0] - before > 500_000
        assert not gc.is_tracked(buffers[0])
        parts = [buffer.take([1, 0]) for buffer in buffers]
        views = [encode_batch(part) for part in parts]
        del buffers, parts, views
        assert tracemalloc.get_traced_memory()[0] - before < 20_000
    finally:
        tracemalloc.stop()


def test_small_buffers_hold_little_memory() -> None:
    buffers = [buffer_of(b"v" * 100) for _ in range(5_000)]
    assert sum(buffer.held for buffer in buffers) < 1 << 20


def test_buffer_grows_in_few_steps_while_memory_is_short() -> None:
    buffer, free, steps = accelerator.RecordBuffer(), 300_000, set[int]()
    while buffer.size < 250_000:
        buffer.append(b"v" * 1_000, None, (), 1, 262_144, free - buffer.held)
        steps.add(buffer.held)
    assert len(steps) < 15
    assert max(steps) <= free


def test_buffer_takes_no_arguments_and_has_no_subclasses() -> None:
    kind = accelerator.RecordBuffer
    makes: list[Callable[[], object]] = [
        lambda: kind(1),
        lambda: kind(size=1),
        lambda: type("Own", (kind,), {}),
    ]
    for make in makes:
        with pytest.raises(TypeError):
            make()


def test_size_and_held_of_columns_are_the_bound() -> None:
    columns = RecordColumns()
    columns.append(b"v", None, (), 1)
    columns.append(b"v" * 100, b"key", TRACE, 1)
    assert columns.sizes() == [15, 14 + 103 + 6 + 5]
    assert columns.size == columns.held == BATCH_OVERHEAD + sum(columns.sizes())
