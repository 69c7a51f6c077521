"""OTLP's MetricsData: the few of its messages that metrics of a producer take, as protobuf.

Source: opentelemetry/proto/metrics/v1/metrics.proto
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from aioproducer._core.wire.primitives import append_unsigned_varint
from aioproducer.version import __version__

SCOPE: Final = "aioproducer"

_VARINT: Final = 0
_LENGTH: Final = 2
_NUMBERS: Final = struct.Struct("<BQBQBd")
_START_TIME: Final = 2 << 3 | 1
_TIME: Final = 3 << 3 | 1
_AS_DOUBLE: Final = 4 << 3 | 1


class Kind(Enum):
    """What the value of a point is; of sums, the number is OTLP's AggregationTemporality."""

    GAUGE = 0
    """The value of now."""
    DELTA = 1
    """By how much a counter has grown since its start."""
    CUMULATIVE = 2
    """A counter."""


class Point(NamedTuple):
    """One value of a metric; those of a metric differ in their attributes."""

    name: str
    kind: Kind
    value: float
    attributes: Mapping[str, str]
    start_ns: int = 0
    """From when on it was counted, by the wall clock; of a gauge nothing is said."""


def encode(points: Iterable[Point], resource: Mapping[str, str], *, now_ns: int) -> bytes:
    """Return *points*, which are those of *now_ns* by the wall clock, as MetricsData."""
    metrics: dict[tuple[str, Kind], bytearray] = {}
    for name, kind, value, attributes, start_ns in points:
        encoded = _attributes(7, attributes)
        encoded += _NUMBERS.pack(_START_TIME, start_ns, _TIME, now_ns, _AS_DOUBLE, value)
        _append(metrics.setdefault((name, kind), bytearray()), 1, encoded)
    version = bytearray()
    _append(version, 1, SCOPE.encode())
    _append(version, 2, __version__.encode())
    scope = bytearray()
    _append(scope, 1, version)
    for (name, kind), data_points in metrics.items():
        _append(scope, 2, _metric(name, kind, data_points))
    of_resource = bytearray()
    _append(of_resource, 1, _attributes(1, resource))
    _append(of_resource, 2, scope)
    data = bytearray()
    _append(data, 1, of_resource)
    return bytes(data)


def _metric(name: str, kind: Kind, data_points: bytearray) -> bytearray:
    metric = bytearray()
    _append(metric, 1, name.encode())
    if kind is Kind.GAUGE:
        _append(metric, 5, data_points)
    else:
        is_monotonic = (3 << 3 | _VARINT, 1)
        _append(metric, 7, data_points + bytes((2 << 3 | _VARINT, kind.value, *is_monotonic)))
    return metric


def _attributes(number: int, attributes: Mapping[str, str]) -> bytearray:
    buf = bytearray()
    for key, text in attributes.items():
        value, pair = bytearray(), bytearray()
        _append(value, 1, text.encode())
        _append(pair, 1, key.encode())
        _append(pair, 2, value)
        _append(buf, number, pair)
    return buf


def _append(buf: bytearray, number: int, content: bytes | bytearray) -> None:
    """Append field *number*, of a message, a string or bytes."""
    buf.append(number << 3 | _LENGTH)
    append_unsigned_varint(buf, len(content))
    buf += content
