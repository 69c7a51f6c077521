"""A telemetry session: asks the cluster for its metrics subscription and pushes until the producer closes (KIP-714).

The session sends one request at a time, on a connection that is open anyway. A failed request is retried at the next
interval, so that telemetry never delays records.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, Self

from aioproducer._core.net.connection import Connection
from aioproducer._core.net.pool import Pool
from aioproducer._core.otlp import DeltaTracker, Report, Selection, encode
from aioproducer._core.protocol.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from aioproducer._core.records.compression import Codec, Compress, compressor
from aioproducer._core.steps import Log
from aioproducer._core.worker_threads import WORK_THREADS
from aioproducer.errors import ConfigError, ConnectionFailed, ProducerError

DEFAULT_INTERVAL_S: Final = 300.0
"""Interval between attempts until a broker sends a positive interval, as in the JVM client."""

UNSUPPORTED_COMPRESSION_TYPE: Final = 76
THROTTLING_QUOTA_EXCEEDED: Final = 89
UNKNOWN_SUBSCRIPTION_ID: Final = 117
TELEMETRY_TOO_LARGE: Final = 118

ASK_AT_ONCE: Final = frozenset({UNSUPPORTED_COMPRESSION_TYPE, UNKNOWN_SUBSCRIPTION_ID})
"""Refusals of a push after which the subscription is fetched again immediately: the subscription has changed."""
ASK_LATER: Final = frozenset({THROTTLING_QUOTA_EXCEEDED, TELEMETRY_TOO_LARGE})
"""Refusals after which the subscription is fetched after an interval. All others end the session, as in the JVM client."""


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
    """Returns the ids of the known brokers."""
    report: Callable[[], Report]
    """Returns all metrics; callable from any thread."""
    topics: Mapping[str, object]
    """Topics with metrics."""
    resource: Mapping[str, str]
    """OTLP resource attributes: labels of the whole producer."""


class _Payload(NamedTuple):
    codec: Codec
    metrics: bytes
    tracker: DeltaTracker
    """State of the counters after this push."""


class TelemetrySession:
    """Telemetry of one producer: its subscription, and the loop that pushes."""

    def __init__(self, context: TelemetryContext) -> None:
        self._context: Final = context
        self.client_instance_id: bytes = bytes(16)
        """Id that the cluster assigned to this producer; zeros before that."""
        self._tracker = DeltaTracker(time.time_ns())
        self._interval_s = DEFAULT_INTERVAL_S
        self._subscription: Subscription | None = None  # while there is something to push
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
            if refusal in ASK_LATER:
                await asyncio.sleep(wait_s)
            elif refusal not in ASK_AT_ONCE:
                return

    async def say_goodbye(self) -> None:
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
                    if answer.error_code not in ASK_AT_ONCE | ASK_LATER | {0}:
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
        payload = await self._payload(subscription)
        if payload is None:
            log.debug("telemetry.too_large limit=%d", subscription.max_bytes)
            return 0
        request = PushTelemetryRequest(
            client_instance_id=subscription.client_instance_id,
            subscription_id=subscription.subscription_id,
            terminating=terminating,
            compression_type=payload.codec,
            metrics=payload.metrics,
        )
        # A push without a response counts as received, because a delta that is counted twice is worse than a lost one.
        before, self._tracker = self._tracker, payload.tracker
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
        return None if connection is None or connection.muted else connection

    async def _payload(self, subscription: Subscription) -> _Payload | None:
        """Return the payload; None if its size exceeds the broker's limit."""
        if len(self._context.topics) < OFF_LOOP_TOPICS:
            return self._make_payload(subscription)
        return await WORK_THREADS.run_anyway(self._make_payload, subscription)

    def _make_payload(self, subscription: Subscription) -> _Payload | None:
        report, now_ns = self._context.report(), time.time_ns()
        codec, compress = _compression(subscription)
        for topics in (True, False):
            if topics and not self._topics_fit:
                continue
            selection = Selection(subscription.prefixes, topics)
            points, tracker = self._tracker.points(
                report, selection, is_delta=subscription.is_delta, now_ns=now_ns
            )
            metrics = compress(encode(points, self._context.resource, now_ns=now_ns))
            if len(metrics) <= subscription.max_bytes:
                return _Payload(codec, metrics, tracker)
        return None


def _compression(subscription: Subscription) -> tuple[Codec, Compress]:
    """Return the first codec of the broker's list that is installed, else no compression."""
    for each in subscription.compression_types:
        with suppress(ValueError, ConfigError):  # an unknown codec, or its package is not installed
            return Codec(each), compressor(Codec(each), None)
    return Codec.NONE, bytes
