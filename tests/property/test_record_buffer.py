"""RecordBuffer and RecordColumns: equal bytes and equal parts after equal steps."""

from __future__ import annotations

from struct import error as StructError  # noqa: N812 - a class
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from aioproducer._core.records.columns import (
    SMALL_PAYLOAD,
    HeaderColumn,
    HeaderColumns,
    RecordColumns,
    Records,
)
from aioproducer._core.records.record_batch import encode_batch
from tests.encoding import encode_records
from tests.property.test_acceleration import DATA, NAMES, columns, outcome

accelerator: Any = pytest.importorskip(
    "aioproducer._core._accelerator", reason="it was not built", exc_type=ImportError
)

TIMES = st.one_of(
    st.integers(1_000, 1_003),
    st.integers(0, 2**62),
    st.sampled_from([-(2**63), -1, 2**63 - 1, 2**63]),
)
PAIRS = st.lists(st.tuples(NAMES, DATA), max_size=7).map(tuple)
SEVEN = (b"v", None, tuple((f"name {number}", b"data" * number) for number in range(7)), 5)
RECORD = st.tuples(DATA, st.one_of(st.none(), DATA), PAIRS, TIMES)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), RECORD),
        st.tuples(st.just("extend"), columns()),
        st.tuples(st.just("extend to now"), columns()),
        st.tuples(st.just("truncate"), st.floats(0, 1)),
        st.tuples(st.just("take"), st.lists(st.floats(-1, 0.999), max_size=90)),
        st.tuples(st.just("take many"), st.floats(0, 1)),
    ),
    max_size=6,
)


def step(records: Any, name: str, given: Any) -> Any:
    """Run a step, and return the resulting records."""
    count = len(records)
    if name == "append":
        records.append(*given)
    elif name == "extend":
        records.extend(*given)
    elif name == "extend to now":
        records.extend(*given[:3], given[3][0])
    elif name == "truncate":
        records.truncate(int(given * (count + 1)))
    elif name == "take":
        return records.take([int(each * count) for each in given] if count else ())
    else:
        return records.take(range(int(given * count), count))
    return records


def parts(records: Records) -> tuple[Any, ...]:
    """Return the parts of *records*; a missing part is filled with empty items."""
    count = len(records)
    return (
        list(records.values),
        list(records.keys or [None] * count),
        list(records.headers or [()] * count),
        list(records.timestamps),
    )


@given(STEPS)
@example([("extend", ([b"v"] * 8200, None, None, [0] * 8200)), ("take many", 0.01)])
@example([("append", SEVEN), ("append", SEVEN)])
@example([("append", (b"v", None, (), -(2**63))), ("append", (b"v", None, (), 2**63 - 1))])
def test_buffer_makes_the_bytes_of_columns(steps: list[tuple[str, Any]]) -> None:
    buffer, made = accelerator.RecordBuffer(), RecordColumns()
    for name, arguments in steps:
        before = bytes(encode_records(buffer)), parts(buffer)
        after = outcome(step, made.take(range(len(made))), name, arguments)
        encoded = outcome(encode_batch, after) if isinstance(after, RecordColumns) and len(after) else None
        if isinstance(after, type) or encoded in (ValueError, OverflowError, StructError):
            with pytest.raises((ValueError, OverflowError)):
                step(buffer, name, arguments)
            assert (bytes(encode_records(buffer)), parts(buffer)) == before
            continue
        buffer, made = step(buffer, name, arguments), after
        assert parts(buffer) == parts(made)
        if len(made):
            assert encode_batch(buffer, 16, None, 7, 2, 5) == encode_batch(made, 16, None, 7, 2, 5)
            assert encode_batch(buffer, 1, bytes) == encode_batch(made, 1, bytes)
        assert sum(buffer.sizes()) == buffer.size - 61 == len(encode_records(made))
        assert buffer.held >= buffer.size


@given(STEPS, st.integers(-5, 20_000), st.integers(-5, 20_000))
@example([("append", SEVEN)] * 6, 20_000, 20_000)
def test_put_appends_as_append_or_changes_nothing(steps: list[tuple[str, Any]], room: int, free: int) -> None:
    put, appended = accelerator.RecordBuffer(), accelerator.RecordBuffer()
    for name, arguments in steps:
        if name != "append":
            continue
        value, key, headers, timestamp_ms = arguments
        before, size, held = bytes(encode_records(put)), put.size, put.held
        forms = [headers, list(headers), *([dict(headers)] if len(dict(headers)) == len(headers) else [])]
        if timestamp_ms < 2**63 and put.put(
            value, key, forms[len(put) % len(forms)], timestamp_ms, room, free
        ):
            appended.append(*arguments)
            assert encode_records(put) == encode_records(appended)
            assert (put.values, put.keys, put.headers, put.span) == (
                appended.values, appended.keys, appended.headers, appended.span,
            )  # fmt: skip
            assert put.size - size <= room
            assert put.held - held <= max(free, 0)
            room, free = room - (put.size - size), free - (put.held - held)
        else:
            assert (encode_records(put), put.size, put.held) == (before, size, held)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=300), st.integers(1_000, 60_000))
def test_growth_uses_scarce_memory_to_the_last_byte(lengths: list[int], free: int) -> None:
    buffer, held = accelerator.RecordBuffer(), 61
    total, refused = free, False
    for length in lengths:
        refused = not buffer.put(bytes(length), None, None, 0, 2**30, free)
        if refused:
            assert buffer.size + length + 12 > buffer.held + free  # at most 12 bytes besides its value
            break
        free -= buffer.held - held
        held = buffer.held
        assert 0 <= free == total - (held - 61)
        assert held - buffer.size <= max(buffer.size, total // 16)


@given(st.integers(0, SMALL_PAYLOAD + 2), st.integers(0, 70))
def test_header_columns_make_the_bytes_of_pairs(length: int, count: int) -> None:
    values: list[bytes | None] = [bytes(length) if index % 3 else None for index in range(count)]
    headers = HeaderColumns([HeaderColumn("a", b"1"), HeaderColumn("é", None, values)], count)
    by_column, by_record = accelerator.RecordBuffer(), accelerator.RecordBuffer()
    by_column.extend(values, None, headers, 5)
    by_record.extend(values, None, list(headers), [5] * count)
    assert encode_records(by_column) == encode_records(by_record)
    assert by_column.headers == (list(headers) or None)
