"""A telemetry session: requests the cluster's metrics subscription, and pushes until the producer closes (KIP-714).

The session sends one request at a time, on a connection that is open anyway. A failed request is retried at the next
interval, so that telemetry never delays records. Metrics are encoded as OTLP's MetricsData under the names of KIP-714: the
JVM client's `producer-node-metrics` and `request-latency-avg` become
`org.apache.kafka.producer.node.request.latency.avg`. Metrics without a Kafka name are left out.
Source of the messages: opentelemetry/proto/metrics/v1/metrics.proto
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self, TypeAlias

from aioproducer._core.metrics import OUTCOMES
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.pool import Pool
from aioproducer._core.protocol.client import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from aioproducer._core.records.compression import Codec, Compress, compressor
from aioproducer._core.steps import Log
from aioproducer._core.wire import append_unsigned_varint
from aioproducer._core.worker_threads import WORK_THREADS
from aioproducer.errors import ConfigError, ConnectionFailed, ProducerError, TimeoutReason
from aioproducer.version import __version__

SCOPE: Final = "aioproducer"

_VARINT: Final = 0
_LENGTH: Final = 2
_NUMBERS: Final = struct.Struct("<BQBQBd")
_START_TIME: Final = 2 << 3 | 1
_TIME: Final = 3 << 3 | 1
_AS_DOUBLE: Final = 4 << 3 | 1


class Kind(Enum):
    """Kind of a point. The values of DELTA and CUMULATIVE are OTLP's AggregationTemporality."""

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
    metrics: defaultdict[tuple[str, Kind], bytearray] = defaultdict(bytearray)
    for name, kind, value, attributes, start_ns in points:
        numbers = _NUMBERS.pack(_START_TIME, start_ns, _TIME, now_ns, _AS_DOUBLE, value)
        metrics[name, kind] += _field(1, _attributes(7, attributes) + numbers)
    scope = _field(1, _field(1, SCOPE.encode()) + _field(2, __version__.encode()))
    for (name, kind), data_points in metrics.items():
        scope += _field(2, _metric(name, kind, data_points))
    return bytes(_field(1, _field(1, _attributes(1, resource)) + _field(2, scope)))


def _metric(name: str, kind: Kind, data_points: bytearray) -> bytearray:
    metric = _field(1, name.encode())
    if kind is Kind.GAUGE:
        return metric + _field(5, data_points)
    is_monotonic = (3 << 3 | _VARINT, 1)
    return metric + _field(7, data_points + bytes((2 << 3 | _VARINT, kind.value, *is_monotonic)))


def _attributes(number: int, attributes: Mapping[str, str]) -> bytearray:
    buf = bytearray()
    for key, text in attributes.items():
        buf += _field(number, _field(1, key.encode()) + _field(2, _field(1, text.encode())))
    return buf


def _field(number: int, content: bytes | bytearray) -> bytearray:
    """Return *content*, a message, a string or bytes, as field *number*."""
    buf = bytearray((number << 3 | _LENGTH,))
    append_unsigned_varint(buf, len(content))
    buf += content
    return buf


PREFIX: Final = "org.apache.kafka.producer."
Report: TypeAlias = Mapping[str, Mapping[Any, Any]]
"""Result of `Producer.metrics()`."""
Key: TypeAlias = tuple[str, ...]
"""Key of a counter: its name, and its topic or node."""
Pushed: TypeAlias = tuple[int, float]
"""Time of the last push of a counter, in ns of the wall clock, and the value of the counter at this time."""

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
    | {f"{part}.{outcome}" for part in ("producer", "topics") for outcome in OUTCOMES}
)
"""Metrics without a Kafka name."""
KAFKA_NAMES: Final = {"calls_waiting": "waiting.threads"}
"""Kafka names that are not derived from the name in the report."""


class Selection(NamedTuple):
    """The metrics to push."""

    prefixes: tuple[str, ...]
    """Prefixes of the names of the metrics to push."""
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
        if selection.topics:  # topic counters that were left out wait for a push with enough space
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
        # Addresses, and averages that are None, are skipped.
        if type(value) not in {int, float} or f"{part}.{key}" in WITHOUT_KAFKA_NAME:
            continue
        name = f"{PREFIX}{group}{KAFKA_NAMES.get(key) or key.replace('_', '.')}"
        if name.startswith(selection.prefixes):
            kind = Kind.CUMULATIVE if key.endswith("_total") else Kind.GAUGE
            yield Point(name, kind, float(value), attributes)


DEFAULT_INTERVAL_S: Final = 300.0
"""Interval between attempts until a broker sends a positive interval, as in the JVM client."""

UNSUPPORTED_COMPRESSION_TYPE: Final = 76
THROTTLING_QUOTA_EXCEEDED: Final = 89
UNKNOWN_SUBSCRIPTION_ID: Final = 117
TELEMETRY_TOO_LARGE: Final = 118

RESUBSCRIBE_NOW: Final = frozenset({UNSUPPORTED_COMPRESSION_TYPE, UNKNOWN_SUBSCRIPTION_ID})
"""Refusals of a push after which the subscription is fetched again immediately: the subscription has changed."""
RESUBSCRIBE_LATER: Final = frozenset({THROTTLING_QUOTA_EXCEEDED, TELEMETRY_TOO_LARGE})
"""Refusals after which the subscription is fetched after an interval. All other refusals end the session, as in Java."""


class Subscription(NamedTuple):
    """Metrics subscription of this client, as sent by a broker."""

    client_instance_id: bytes
    subscription_id: int
    compression_types: tuple[int, ...]
    interval_s: float
    max_bytes: int
    is_delta: bool
    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, answer: GetTelemetrySubscriptionsResponse) -> Self:
        """Return the subscription in *answer*; an interval of 0 or less becomes the default."""
        milliseconds = answer.push_interval_ms
        return cls(
            answer.client_instance_id,
            answer.subscription_id,
            tuple(answer.accepted_compression_types),
            milliseconds / 1000 if milliseconds > 0 else DEFAULT_INTERVAL_S,
            answer.telemetry_max_bytes,
            answer.delta_temporality,
            ("",) if tuple(answer.requested_metrics) == ("*",) else tuple(answer.requested_metrics),
        )


log: Final = Log(__name__)

FIRST_PUSH: Final = (0.5, 1.5)
"""Range of the random delay before the first push, in intervals, so that clients do not push in unison."""
OFF_LOOP_TOPICS: Final = 100
"""Number of topics from which the payload is encoded in a thread, because encoding takes some milliseconds."""


class TelemetryContext(NamedTuple):
    """The parts of a producer that its telemetry session uses."""

    pool: Pool
    brokers: Callable[[], Iterable[int]]
    """Function that returns the ids of the known brokers."""
    report: Callable[[], Report]
    """Function that returns all metrics; any thread may call the function."""
    topics: Mapping[str, object]
    """Topics with metrics."""
    resource: Mapping[str, str]
    """OTLP resource attributes: labels of the whole producer."""


class TelemetrySession:
    """Telemetry of one producer: its subscription, and the loop that pushes."""

    def __init__(self, context: TelemetryContext) -> None:
        self._context: Final = context
        self.client_instance_id: bytes = bytes(16)
        """Id that the cluster assigned to this producer; zeros before the assignment."""
        self._tracker = DeltaTracker(time.time_ns())
        self._interval_s = DEFAULT_INTERVAL_S
        self._subscription: Subscription | None = None  # None without metrics to push
        self._topics_fit = True

    async def run(self) -> None:
        """Subscribe and push until the cluster refuses for good."""
        while (subscription := await self._subscribe()) is not None:
            self._subscription = subscription
            wait_s = subscription.interval_s * random.uniform(*FIRST_PUSH)
            refusal = 0
            while not refusal:
                await asyncio.sleep(wait_s)
                refusal = await self._push(subscription, terminating=False)
                wait_s = subscription.interval_s
            self._subscription = None
            log.debug("telemetry.refused error_code=%d", refusal)
            if refusal == TELEMETRY_TOO_LARGE:
                self._topics_fit = False
            if refusal in RESUBSCRIBE_LATER:
                await asyncio.sleep(wait_s)
            elif refusal not in RESUBSCRIBE_NOW:
                return

    async def push_last(self) -> None:
        """Push a last time, if the cluster has a subscription."""
        if self._subscription is not None:
            await self._push(self._subscription, terminating=True)

    async def _subscribe(self) -> Subscription | None:
        """Wait for a subscription with metrics and return it; return None if the cluster refuses for good."""
        while True:
            connection = self._connection()
            if connection is not None:
                request = GetTelemetrySubscriptionsRequest(client_instance_id=self.client_instance_id)
                try:
                    answer = await connection.request(request)
                except ProducerError as error:
                    log.debug("telemetry.failed error=%s", error)
                else:
                    if answer.error_code not in RESUBSCRIBE_NOW | RESUBSCRIBE_LATER | {0}:
                        log.debug("telemetry.refused error_code=%d", answer.error_code)
                        return None
                    if not answer.error_code:
                        subscription = Subscription.of(answer)
                        self.client_instance_id = subscription.client_instance_id
                        self._interval_s = subscription.interval_s
                        if subscription.prefixes:
                            log.debug("telemetry.subscribed interval_s=%.1f", subscription.interval_s)
                            return subscription
            await asyncio.sleep(self._interval_s)

    async def _push(self, subscription: Subscription, *, terminating: bool) -> int:
        """Push the metrics since the last push; return the error code of the response, 0 if accepted or not sent."""
        connection = self._connection()
        if connection is None:
            return 0
        if len(self._context.topics) < OFF_LOOP_TOPICS:
            payload = self._payload(subscription)
        else:
            payload = await WORK_THREADS.run_anyway(self._payload, subscription)
        if payload is None:
            log.debug("telemetry.too_large limit=%d", subscription.max_bytes)
            return 0
        codec, metrics, tracker = payload
        request = PushTelemetryRequest(
            client_instance_id=subscription.client_instance_id,
            subscription_id=subscription.subscription_id,
            terminating=terminating,
            compression_type=codec,
            metrics=metrics,
        )
        # A push without a response counts as received, because a delta that is counted twice is worse than a lost delta.
        before, self._tracker = self._tracker, tracker
        try:
            answer = await connection.request(request)
        except ProducerError as error:
            log.debug("telemetry.failed error=%s", error)
            if isinstance(error, ConnectionFailed) and not error.written:
                self._tracker = before
            return 0
        if answer.error_code:
            self._tracker = before
        return answer.error_code

    def _connection(self) -> Connection | None:
        """Return a connection to a broker that offers the APIs and accepts requests now."""
        pool = self._context.pool
        taking = [
            each
            for each in self._context.brokers()
            if (connection := pool.get(each)) is not None
            and PushTelemetryRequest.API_KEY in connection.versions.offered
        ]
        connection = pool.least_loaded(taking)
        return None if connection is None or connection.is_throttled else connection

    def _payload(self, subscription: Subscription) -> tuple[Codec, bytes, DeltaTracker] | None:
        """Return the payload and the tracker to use after its push; None if its size exceeds the broker's limit."""
        report, now_ns = self._context.report(), time.time_ns()
        codec, compress = _compression(subscription)
        for topics in (True, False) if self._topics_fit else (False,):
            selection = Selection(subscription.prefixes, topics)
            points, tracker = self._tracker.points(
                report, selection, is_delta=subscription.is_delta, now_ns=now_ns
            )
            metrics = compress(encode(points, self._context.resource, now_ns=now_ns))
            if len(metrics) <= subscription.max_bytes:
                return codec, metrics, tracker
        return None


def _compression(subscription: Subscription) -> tuple[Codec, Compress]:
    """Return the first codec of the broker's list that is installed, else no compression."""
    for each in subscription.compression_types:
        with suppress(ValueError, ConfigError):  # the codec is unknown, or its package is not installed
            return Codec(each), compressor(Codec(each), None)
    return Codec.NONE, bytes
