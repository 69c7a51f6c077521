"""Times that a topic keeps: limits from its settings, and the rows outside of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import compute as pc, types

BEFORE: Final = "message.timestamp.before.max.ms"
AFTER: Final = "message.timestamp.after.max.ms"
DIFFERENCE: Final = "message.timestamp.difference.max.ms"
RETENTION: Final = "retention.ms"
SETTINGS: Final = ("cleanup.policy", "message.timestamp.type", BEFORE, AFTER, DIFFERENCE, RETENTION)
"""Topic settings that limit the time of a record. DIFFERENCE is the older name of BEFORE and AFTER (KIP-937)."""

_UNLIMITED: Final = 2**63 - 1
_PER_MS: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}


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
"""Returns the window of a topic; may block."""


def time_window(settings: Mapping[str, str]) -> TimeWindow:
    """Return the window of a topic with *settings*.

    A broker that sets the time itself (LogAppendTime) takes every time. Retention deletes records by time only if the
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

    *codes* has the index in *topics* for each position, or None.
    """
    windows = {code: window_of(topic) for code, topic in enumerate(topics)}
    narrowest = TimeWindow(
        _least([each.past for each in windows.values()]), _least([each.future for each in windows.values()])
    )
    if narrowest == TimeWindow() or times.null_count == len(times):
        return {}
    least, most = (bound.as_py() for bound in pc.min_max(_ms(times)).values())
    if not _reason(name, "", narrowest, least, now_ms) and not _reason(name, "", narrowest, most, now_ms):
        return {}
    return dict(_outside(name, _ms(times).to_pylist(), topics, codes, windows, now_ms))


def _outside(
    name: str,
    times_ms: Sequence[int | None],
    topics: Sequence[str],
    codes: Sequence[int | None],
    windows: Mapping[int, TimeWindow],
    now_ms: int,
) -> Iterator[tuple[int, str]]:
    for position, (at_ms, code) in enumerate(zip(times_ms, codes, strict=True)):
        if at_ms is None or code is None:
            continue
        if reason := _reason(name, topics[code], windows[code], at_ms, now_ms):
            yield position, reason


def _reason(name: str, topic: str, window: TimeWindow, at_ms: int, now_ms: int) -> str:
    """Return the reason why *at_ms* is outside of *window*, or nothing."""
    if window.past is not None and now_ms - at_ms > window.past.ms:
        limit, side = window.past, "older"
    elif window.future is not None and at_ms - now_ms > window.future.ms:
        limit, side = window.future, "further in the future"
    else:
        return ""
    return (
        f"column {name!r}: {_text(at_ms)} is {side} than topic {topic!r} allows ({limit.setting}={limit.ms})"
    )


def _text(at_ms: int) -> str:
    try:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
    except OverflowError:
        return f"{at_ms} ms after 1970"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ms(times: pa.Array) -> pa.Array:
    """Return *times* in whole milliseconds."""
    unit = times.type.unit if types.is_timestamp(times.type) else "ms"
    numbers = times.cast(pa.int64())
    return pc.multiply(numbers, 1_000) if unit == "s" else pc.divide(numbers, _PER_MS[unit])


def _limit(settings: Mapping[str, str], name: str) -> Limit | None:
    text = settings.get(name, "")
    ms = int(text) if text.isdecimal() else _UNLIMITED  # -1 is unlimited retention
    return None if ms == _UNLIMITED else Limit(ms, name)


def _least(limits: Sequence[Limit | None]) -> Limit | None:
    return min((each for each in limits if each is not None), default=None)
