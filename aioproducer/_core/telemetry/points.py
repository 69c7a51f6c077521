"""Points of telemetry from the report of a producer's metrics, under the names of KIP-714.

The JVM client derives these from the groups and names of its metrics, `producer-node-metrics` and `request-latency-avg`
becoming `org.apache.kafka.producer.node.request.latency.avg`. What Kafka has no name for stays here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from aioproducer._core.telemetry.otlp import Kind, Point
from aioproducer.errors import TimeoutReason

PREFIX: Final = "org.apache.kafka.producer."
Report: TypeAlias = Mapping[str, Mapping[Any, Any]]
"""What `Producer.metrics()` returns."""
Key: TypeAlias = tuple[str, ...]
"""A counter: its name, and the topic or node that it is of."""
Told: TypeAlias = tuple[int, float]
"""When a counter was told last, by the wall clock, and what it was at."""

OURS: Final = frozenset(
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
"""Metrics that Kafka has no names for."""
KAFKA_NAMES: Final = {"calls_waiting": "waiting.threads"}
"""… and those whose names there are no spelling of ours."""


class Wanted(NamedTuple):
    """The metrics to push."""

    prefixes: tuple[str, ...]
    """What their names begin with."""
    topics: bool = True
    """Whether those of topics, too, which may be thousands."""


class Ledger(NamedTuple):
    """What was told of counters, so that the next push tells what has come since (delta temporality)."""

    born_ns: int
    """When all of them began at 0, by the wall clock."""
    told: Mapping[Key, Told] = MappingProxyType({})

    def tell(
        self, report: Report, wanted: Wanted, *, is_delta: bool, now_ns: int
    ) -> tuple[list[Point], Ledger]:
        """Return the points of *report* that are *wanted*, and the ledger once they are told."""
        points: list[Point] = []
        told, seen = dict(self.told), set[Key]()
        for point in _points(report, wanted):
            if point.kind is Kind.GAUGE:
                points.append(point)
            elif not is_delta:
                points.append(point._replace(start_ns=self.born_ns))
            else:
                key = point.name, *point.attributes.values()
                seen.add(key)
                since_ns, before = told.get(key, (self.born_ns, 0.0))
                if point.value < before:  # the topic was dropped and is used again
                    before = 0.0
                told[key] = now_ns, point.value
                points.append(point._replace(kind=Kind.DELTA, value=point.value - before, start_ns=since_ns))
        if wanted.topics:  # else the topic counters wait for a push with enough room
            told = {key: each for key, each in told.items() if key in seen}
        return points, Ledger(self.born_ns, told)


def _points(report: Report, wanted: Wanted) -> Iterator[Point]:
    """Yield each metric of *report* that is *wanted*, counters as cumulative ones."""
    yield from _part("producer", "", report["producer"], {}, wanted)
    for node_id, values in report["nodes"].items():
        yield from _part("nodes", "node.", values, {"node_id": f"node-{node_id}"}, wanted)
    if wanted.topics:
        for topic, values in report["topics"].items():
            yield from _part("topics", "topic.", values, {"topic": topic}, wanted)


def _part(
    part: str, group: str, values: Mapping[str, Any], attributes: Mapping[str, str], wanted: Wanted
) -> Iterator[Point]:
    for key, value in values.items():
        if type(value) not in {int, float} or f"{part}.{key}" in OURS:  # addresses, and averages of nothing
            continue
        name = f"{PREFIX}{group}{KAFKA_NAMES.get(key) or key.replace('_', '.')}"
        if name.startswith(wanted.prefixes):
            kind = Kind.CUMULATIVE if key.endswith("_total") else Kind.GAUGE
            yield Point(name, kind, float(value), attributes)
