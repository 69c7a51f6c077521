"""Invalid rows, and rows outside of their topic's time limits: found before the send, and converted to dead letters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import compute as pc

from aioproducer._core.clock import wall_ms
from aioproducer._core.intake.checks import check_topic
from aioproducer._core.records.columns import LARGE_RECORD_OVERHEAD, sizes
from aioproducer._core.settings import BatchingSettings
from aioproducer.arrow.arrow_columns import (
    BadValue,
    Columns,
    as_bytes,
    as_headers,
    as_texts,
    as_timestamps_ms,
    in_ms,
    integers,
)
from aioproducer.errors import ConfigError, RecordTooLarge

BEFORE: Final = "message.timestamp.before.max.ms"
AFTER: Final = "message.timestamp.after.max.ms"
DIFFERENCE: Final = "message.timestamp.difference.max.ms"
RETENTION: Final = "retention.ms"
SETTINGS: Final = ("cleanup.policy", "message.timestamp.type", BEFORE, AFTER, DIFFERENCE, RETENTION)
"""Topic settings that limit the time of a record. DIFFERENCE is the older name of BEFORE and AFTER (KIP-937)."""

_UNLIMITED: Final = 2**63 - 1


class Limit(NamedTuple):
    """Largest distance between now and the time of a record."""

    ms: int
    setting: str
    """Name of the topic's setting."""


class TimeWindow(NamedTuple):
    """Times that a topic keeps, relative to now; None is unlimited."""

    past: Limit | None = None
    future: Limit | None = None
    unchecked: tuple[str, ...] = ()
    """Reason if the settings of the topic could not be read."""


WindowOf = Callable[[str], TimeWindow]
"""Function that returns the window of a topic; may block."""


def time_window(settings: Mapping[str, str]) -> TimeWindow:
    """Return the window of a topic with *settings*.

    A broker that sets the time itself (LogAppendTime) accepts every time. Retention deletes records by time only if the
    cleanup policy contains delete.
    """
    if settings.get("message.timestamp.type") == "LogAppendTime":
        return TimeWindow()
    either = _limit(settings, DIFFERENCE)
    past = [_limit(settings, BEFORE) or either]
    if "delete" in settings.get("cleanup.policy", "").split(","):
        past.append(_limit(settings, RETENTION))
    return TimeWindow(_least(past), _limit(settings, AFTER) or either)


def outside(
    name: str,
    times: pa.Array,
    topics: Sequence[str],
    codes: Sequence[int | None],
    window_of: WindowOf,
    now_ms: int,
) -> dict[int, str]:
    """Return the positions in *times*, the column *name*, outside of the windows of their topics, with reasons.

    *codes* has the index in *topics* for each position; None for a row without a topic.
    """
    windows = list(map(window_of, topics))
    narrowest = TimeWindow(_least([each.past for each in windows]), _least([each.future for each in windows]))
    if narrowest == TimeWindow() or times.null_count == len(times):
        return {}
    least, most = (bound.as_py() for bound in pc.min_max(in_ms(times)).values())
    if not _reason(name, "", narrowest, least, now_ms) and not _reason(name, "", narrowest, most, now_ms):
        return {}
    return {
        position: reason
        for position, (at_ms, code) in enumerate(zip(in_ms(times).to_pylist(), codes, strict=True))
        if at_ms is not None and code is not None
        if (reason := _reason(name, topics[code], windows[code], at_ms, now_ms))
    }


def _reason(name: str, topic: str, window: TimeWindow, at_ms: int, now_ms: int) -> str:
    """Return the reason why *at_ms* is outside of *window*; empty if *at_ms* is inside."""
    if window.past is not None and now_ms - at_ms > window.past.ms:
        limit, side = window.past, "older"
    elif window.future is not None and at_ms - now_ms > window.future.ms:
        limit, side = window.future, "further in the future"
    else:
        return ""
    return f"column {name!r}: {_iso_time(at_ms)} is {side} than topic {topic!r} allows ({limit.setting}={limit.ms})"


def _iso_time(at_ms: int) -> str:
    try:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
    except OverflowError:
        return f"{at_ms} ms after 1970"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _limit(settings: Mapping[str, str], name: str) -> Limit | None:
    text = settings.get(name, "")
    ms = int(text) if text.isdecimal() else _UNLIMITED  # -1 is unlimited retention
    return None if ms == _UNLIMITED else Limit(ms, name)


def _least(limits: Sequence[Limit | None]) -> Limit | None:
    return min((each for each in limits if each is not None), default=None)


ON_BAD_ROW: Final = "onBadRow"
FAIL: Final = "fail"
TO_TOPIC: Final = "topic:"

REASON: Final = "dead-letter.reason"
TOPIC: Final = "dead-letter.topic"
PARTITION: Final = "dead-letter.partition"
BYTES: Final = "dead-letter.bytes"

KEPT_BYTES: Final = 1024
"""Bytes of a key and of a value, and characters of each added header, that the dead letter of a large row keeps."""

LETTERS: Final = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)
LETTER_COLUMNS: Final = Columns(value="value", key="key", headers="headers", topic="dead-letters")
"""Columns of dead letters; the name of the topic is not used."""
PartitionsOf = Callable[[str], int]
"""Function that returns the number of partitions of a topic; may block."""


def dead_letter_topic(given: str, topic: str | None) -> str | None:
    """Return the topic of dead letters for rows that cannot be sent to *topic*; None: these rows fail the task.

    Raises: ConfigError.
    """
    if given == FAIL:
        return None
    if not given.startswith(TO_TOPIC):
        raise ConfigError(
            f"{ON_BAD_ROW} = {given!r}: expected {FAIL}, or {TO_TOPIC} and the name of a topic, such as"
            f" {TO_TOPIC}orders.dead"
        )
    name = given.removeprefix(TO_TOPIC)
    if reason := _illegal(name):
        raise ConfigError(f"{ON_BAD_ROW}: {reason}")
    if name == topic:
        raise ConfigError(
            f"{ON_BAD_ROW} = {given!r}: this is the topic of the valid rows; name another topic"
        )
    return name


class SplitRows(NamedTuple):
    """Valid and invalid rows of a piece of a DataFrame."""

    good: pa.RecordBatch
    numbers: Sequence[int]
    """Numbers of the valid rows."""
    letters: pa.RecordBatch | None
    """Dead letters, one per invalid row; None without invalid rows."""
    bad: Sequence[int]
    """Numbers of the invalid rows."""
    reason: str
    """Reason for the first invalid row."""


def split_rows(
    piece: pa.RecordBatch,
    columns: Columns,
    numbers: range,
    *,
    partitions_of: PartitionsOf,
    window_of: WindowOf,
    settings: BatchingSettings,
) -> SplitRows:
    """Return the valid rows of *piece*, whose rows have *numbers*, and dead letters of the other rows.

    Raises: the errors of *partitions_of* and *window_of*.
    """
    bad = _with_bad_values(piece, columns) | _rows_without_partition(piece, columns, partitions_of)
    bad = rows_outside_limits(piece, columns, window_of) | bad
    rest: Sequence[int] = range(piece.num_rows)
    if bad:
        rest = [position for position in rest if position not in bad]
    found = _too_large(_taken(piece, rest) if bad else piece, columns, settings)
    large = {rest[position]: reason for position, reason in found.items()}
    ordered = dict(sorted((bad | large).items()))
    if not ordered:
        return SplitRows(piece, numbers, None, (), "")
    good = [position for position in rest if position not in large]
    return SplitRows(
        _taken(piece, good),
        [numbers[position] for position in good],
        dead_letters_of(piece, columns, ordered, large, settings),
        [numbers[position] for position in ordered],
        next(iter(ordered.values())),
    )


def dead_letters_of(
    piece: pa.RecordBatch,
    columns: Columns,
    reasons: Mapping[int, str],
    large: Collection[int],
    settings: BatchingSettings,
) -> pa.RecordBatch:
    """Return dead letters of the rows of *piece* at the positions in *reasons*.

    Letters of *large* rows are cut. Letters that are too large because of their headers are cut as well.
    """
    letters = [_letter(piece, columns, *each, cut=each[0] in large) for each in reasons.items()]
    made = pa.RecordBatch.from_pylist(letters, LETTERS)
    positions = list(reasons)
    grown = {positions[place] for place in _too_large(made, LETTER_COLUMNS, settings)}.difference(large)
    return dead_letters_of(piece, columns, reasons, grown.union(large), settings) if grown else made


def rows_outside_limits(piece: pa.RecordBatch, columns: Columns, window_of: WindowOf) -> dict[int, str]:
    """Return the rows with a time that their topic does not keep, with reasons. Raises: the errors of *window_of*."""
    if columns.timestamp is None:
        return {}
    topics, codes = _topics(piece, columns)

    def legal(topic: str) -> TimeWindow:
        return TimeWindow() if _illegal(topic) else window_of(topic)

    return outside(columns.timestamp, piece.column(columns.timestamp), topics, codes, legal, wall_ms())


def _topics(piece: pa.RecordBatch, columns: Columns) -> tuple[list[str], list[Any]]:
    """Return the topics of *piece*, and for each row the index of its topic; None for a null."""
    if columns.topic_column is not None:
        return as_texts(piece.column(columns.topic_column))
    return [columns.topic or ""], [0] * piece.num_rows


def _rows_without_partition(
    piece: pa.RecordBatch, columns: Columns, partitions_of: PartitionsOf
) -> dict[int, str]:
    """Return the rows without a valid topic, or without an existing partition, with reasons."""
    topics, codes = _topics(piece, columns)
    reasons: dict[int | None, str] = {
        code: reason for code, topic in enumerate(topics) if (reason := _illegal(topic))
    }
    if None in codes:
        reasons[None] = f"column {columns.topic_column!r}: there is no topic (null)"
    bad = (
        {position: reasons[code] for position, code in enumerate(codes) if code in reasons} if reasons else {}
    )
    if columns.partition is None:
        return bad
    requested = integers(piece.column(columns.partition).cast(pa.int64()))
    counts: dict[int, int] = {}
    for position, (code, partition) in enumerate(zip(codes, requested, strict=True)):
        if partition is None or position in bad:
            continue
        if code not in counts:
            counts[code] = partitions_of(topics[code])
        if not 0 <= partition < counts[code]:
            bad[position] = f"there is no partition {partition}: {topics[code]!r} has {counts[code]}, from 0"
    return bad


def _illegal(topic: str) -> str:
    try:
        check_topic(topic)
    except ValueError as error:
        return str(error)
    return ""


def _with_bad_values(piece: pa.RecordBatch, columns: Columns) -> dict[int, str]:
    """Return the rows with invalid time or headers."""
    bad: dict[int, str] = {}
    if columns.timestamp is not None:
        bad.update(_refused(columns.timestamp, piece.column(columns.timestamp), as_timestamps_ms))
    if columns.headers is not None and _lacks_keys(piece.column(columns.headers)):
        bad.update(_refused(columns.headers, piece.column(columns.headers), as_headers))
    return bad


def _lacks_keys(headers: pa.Array) -> bool:
    entries = headers.flatten()  # flatten() keeps this slice alone, without values under nulls
    return bool(len(entries) and pc.struct_field(entries, "key").null_count)


def _refused(
    name: str, column: pa.Array, check: Callable[[str, pa.Array], object]
) -> Iterator[tuple[int, str]]:
    """Yield all positions in *column* that *check* refuses; *check* reports only the first position."""
    try:
        check(name, column)
    except BadValue:
        for position in range(len(column)):
            try:
                check(name, column.slice(position, 1))
            except BadValue as error:
                yield position, str(error)


def _too_large(piece: pa.RecordBatch, columns: Columns, settings: BatchingSettings) -> dict[int, str]:
    """Return the rows that are too large for a request, with reasons."""
    texts = [piece.column(name) for name in (columns.value, columns.key) if name is not None]
    headers = None if columns.headers is None else piece.column(columns.headers)
    # `most` is an upper bound for all rows, without a check of each row
    most = LARGE_RECORD_OVERHEAD + sum(pc.max(pc.binary_length(each)).as_py() or 0 for each in texts)
    if headers is not None:
        most += headers.nbytes
    if most <= settings.largest_record:
        return {}
    taken = sizes(
        as_bytes(texts[0]),
        as_bytes(texts[1]) if len(texts) > 1 else None,
        None if headers is None or columns.headers is None else as_headers(columns.headers, headers),
    )
    bad = {}
    for position, size in enumerate(taken):
        try:
            settings.check_size(columns.topic or _text(piece, columns.topic_column, position), size)
        except RecordTooLarge as error:
            bad[position] = f"{type(error).__name__}: {error}"
    return bad


def _letter(
    piece: pa.RecordBatch, columns: Columns, position: int, reason: str, *, cut: bool
) -> Mapping[str, object]:
    """Return the row at *position* as a dead letter; *cut* shortens the letter."""
    key, value = (
        None if name is None else as_bytes(piece.column(name).slice(position, 1))[0]
        for name in (columns.key, columns.value)
    )
    own = None if columns.headers is None else piece.column(columns.headers)[position].as_py()
    headers = [each for each in own or () if each["key"] is not None]
    fields = {REASON: reason, TOPIC: columns.topic or _text(piece, columns.topic_column, position)}
    if columns.partition is not None:
        requested = piece.column(columns.partition)[position].as_py()
        fields[PARTITION] = "" if requested is None else str(requested)
    if cut:
        fields[BYTES] = str(len(key or b"") + len(value or b""))
        key, value, headers = key and key[:KEPT_BYTES], value and value[:KEPT_BYTES], []
        fields = {name: text[:KEPT_BYTES] for name, text in fields.items()}
    headers += [{"key": name, "value": text.encode()} for name, text in fields.items() if text]
    return {"key": key, "value": value, "headers": headers}


def _taken(piece: pa.RecordBatch, positions: Sequence[int]) -> pa.RecordBatch:
    return piece.take(pa.array(positions, pa.int64()))


def _text(piece: pa.RecordBatch, name: str | None, position: int) -> str:
    return "" if name is None else piece.column(name)[position].as_py() or ""
