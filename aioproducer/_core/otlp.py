"""Client metrics as OTLP: points under the names of KIP-714, their deltas, and their encoding as protobuf MetricsData.

The JVM client derives the names from the groups and names of its metrics: `producer-node-metrics` and
`request-latency-avg` become `org.apache.kafka.producer.node.request.latency.avg`. Metrics without a Kafka name are
left out. Source of the messages: opentelemetry/proto/metrics/v1/metrics.proto
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from aioproducer._core.wire import append_unsigned_varint
from aioproducer.errors import TimeoutReason
from aioproducer.version import __version__

SCOPE: Final = "aioproducer"

_VARINT: Final = 0
_LENGTH: Final = 2
_NUMBERS: Final = struct.Struct("<BQBQBd")
_START_TIME: Final = 2 << 3 | 1
_TIME: Final = 3 << 3 | 1
_AS_DOUBLE: Final = 4 << 3 | 1


class Kind(Enum):
    """Kind of a point. The number of a sum is OTLP's AggregationTemporality."""

    GAUGE = 0
    """Current value."""
    DELTA = 1
    """Growth of a counter since the start of the point."""
    CUMULATIVE = 2
    """Value of a counter."""


class Point(NamedTuple):
    """One value of a metric. The points of a metric differ in their attributes."""

    name: str
    kind: Kind
    value: float
    attributes: Mapping[str, str]
    start_ns: int = 0
    """Start of counting, in ns of the wall clock; 0 for a gauge."""


def encode(points: Iterable[Point], resource: Mapping[str, str], *, now_ns: int) -> bytes:
    """Return *points*, measured at *now_ns* of the wall clock, as MetricsData."""
    metrics: dict[tuple[str, Kind], bytearray] = {}
    for name, kind, value, attributes, start_ns in points:
        encoded = _attributes(7, attributes)
        encoded += _NUMBERS.pack(_START_TIME, start_ns, _TIME, now_ns, _AS_DOUBLE, value)
        _append_field(metrics.setdefault((name, kind), bytearray()), 1, encoded)
    version = bytearray()
    _append_field(version, 1, SCOPE.encode())
    _append_field(version, 2, __version__.encode())
    scope = bytearray()
    _append_field(scope, 1, version)
    for (name, kind), data_points in metrics.items():
        _append_field(scope, 2, _metric(name, kind, data_points))
    of_resource = bytearray()
    _append_field(of_resource, 1, _attributes(1, resource))
    _append_field(of_resource, 2, scope)
    data = bytearray()
    _append_field(data, 1, of_resource)
    return bytes(data)


def _metric(name: str, kind: Kind, data_points: bytearray) -> bytearray:
    metric = bytearray()
    _append_field(metric, 1, name.encode())
    if kind is Kind.GAUGE:
        _append_field(metric, 5, data_points)
    else:
        is_monotonic = (3 << 3 | _VARINT, 1)
        _append_field(metric, 7, data_points + bytes((2 << 3 | _VARINT, kind.value, *is_monotonic)))
    return metric


def _attributes(number: int, attributes: Mapping[str, str]) -> bytearray:
    buf = bytearray()
    for key, text in attributes.items():
        value, pair = bytearray(), bytearray()
        _append_field(value, 1, text.encode())
        _append_field(pair, 1, key.encode())
        _append_field(pair, 2, value)
        _append_field(buf, number, pair)
    return buf


def _append_field(buf: bytearray, number: int, content: bytes | bytearray) -> None:
    """Append *content*, a message, a string or bytes, as field *number*."""
    buf.append(number << 3 | _LENGTH)
    append_unsigned_varint(buf, len(content))
    buf += content


PREFIX: Final = "org.apache.kafka.producer."
Report: TypeAlias = Mapping[str, Mapping[Any, Any]]
"""Result of `Producer.metrics()`."""
Key: TypeAlias = tuple[str, ...]
"""A counter: its name, and its topic or node."""
Pushed: TypeAlias = tuple[int, float]
"""Time of the last push of a counter, in ns of the wall clock, and its value then."""

WITHOUT_KAFKA_NAME: Final = frozenset(
    {
        "producer.batches_unfinished",
        "producer.byte_rate",
        "producer.byte_total",
        "producer.record_latency_avg",
        "producer.record_latency_max",
        "nodes.requests_in_flight",
    }
    | {f"producer.record_timeout_{reason}_total" for reason in TimeoutReason}
    | {
        f"{part}.{outcome}"
        for part in ("producer", "topics")
        for outcome in (
            "records_delivered",
            "batches_delivered",
            "bytes_delivered",
            "bytes_before_compression",
        )
    }
)
"""Metrics without a Kafka name."""
KAFKA_NAMES: Final = {"calls_waiting": "waiting.threads"}
"""Kafka names that are not derived from the name in the report."""


class Selection(NamedTuple):
    """The metrics to push."""

    prefixes: tuple[str, ...]
    """Prefixes of their names."""
    topics: bool = True
    """True to include metrics of topics, possibly thousands."""


class DeltaTracker(NamedTuple):
    """Values of the counters at the last push, for deltas since then (OTLP's delta temporality)."""

    start_ns: int
    """Start of all counters, in ns of the wall clock."""
    pushed: Mapping[Key, Pushed] = MappingProxyType({})

    def points(
        self, report: Report, selection: Selection, *, is_delta: bool, now_ns: int
    ) -> tuple[list[Point], DeltaTracker]:
        """Return the points of *report* in *selection*, and the tracker to use after their push."""
        points: list[Point] = []
        pushed, seen = dict(self.pushed), set[Key]()
        for point in _points(report, selection):
            if point.kind is Kind.GAUGE:
                points.append(point)
            elif not is_delta:
                points.append(point._replace(start_ns=self.start_ns))
            else:
                key = point.name, *point.attributes.values()
                seen.add(key)
                since_ns, before = pushed.get(key, (self.start_ns, 0.0))
                if point.value < before:  # the topic was dropped and used again
                    before = 0.0
                pushed[key] = now_ns, point.value
                points.append(point._replace(kind=Kind.DELTA, value=point.value - before, start_ns=since_ns))
        if selection.topics:  # else the topic counters wait for a push with enough space
            pushed = {key: each for key, each in pushed.items() if key in seen}
        return points, DeltaTracker(self.start_ns, pushed)


def _points(report: Report, selection: Selection) -> Iterator[Point]:
    """Yield each metric of *report* in *selection*; counters are cumulative."""
    yield from _part("producer", "", report["producer"], {}, selection)
    for node_id, values in report["nodes"].items():
        yield from _part("nodes", "node.", values, {"node_id": f"node-{node_id}"}, selection)
    if selection.topics:
        for topic, values in report["topics"].items():
            yield from _part("topics", "topic.", values, {"topic": topic}, selection)


def _part(
    part: str, group: str, values: Mapping[str, Any], attributes: Mapping[str, str], selection: Selection
) -> Iterator[Point]:
    for key, value in values.items():
        if (
            type(value) not in {int, float} or f"{part}.{key}" in WITHOUT_KAFKA_NAME
        ):  # skips addresses and averages that are None
            continue
        name = f"{PREFIX}{group}{KAFKA_NAMES.get(key) or key.replace('_', '.')}"
        if name.startswith(selection.prefixes):
            kind = Kind.CUMULATIVE if key.endswith("_total") else Kind.GAUGE
            yield Point(name, kind, float(value), attributes)
