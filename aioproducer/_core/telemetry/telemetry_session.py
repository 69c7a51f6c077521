"""A telemetry session: asks the cluster which metrics it wants, and pushes them until the producer ends (KIP-714).

One request at a time, on a connection that is there anyway: nothing is dialled for it. It lags behind rather than
disturb: a request that fails, for whatever reason, is left to the next interval.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from aioproducer._core.net.connection import Connection
from aioproducer._core.net.pool import Pool
from aioproducer._core.protocol.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from aioproducer._core.records.compression import Codec, Compress, compressor
from aioproducer._core.steps import Log
from aioproducer._core.telemetry.otlp import encode
from aioproducer._core.telemetry.points import Ledger, Report, Wanted
from aioproducer._core.telemetry.subscription import (
    ASK_AT_ONCE,
    ASK_LATER,
    DEFAULT_INTERVAL_S,
    TELEMETRY_TOO_LARGE,
    Subscription,
)
from aioproducer._core.worker_threads import WORK_THREADS
from aioproducer.errors import ConfigError, ConnectionFailed, ProducerError

log: Final = Log(__name__)

FIRST_PUSH: Final = (0.5, 1.5)
"""After how many intervals the first push comes: clients that were told at once do not push at once."""
OFF_LOOP_TOPICS: Final = 100
"""From so many topics on, the payload is made in a thread: some milliseconds."""


class Surroundings(NamedTuple):
    """What a session uses of its producer."""

    pool: Pool
    brokers: Callable[[], Iterable[int]]
    """The ids of the brokers that are known."""
    report: Callable[[], Report]
    """All metrics; it may be called from any thread."""
    topics: Mapping[str, object]
    """The topics that there are metrics of."""
    resource: Mapping[str, str]
    """What OTLP calls so: labels of the whole producer."""


class _Payload(NamedTuple):
    codec: Codec
    metrics: bytes
    ledger: Ledger
    """The ledger once these are told."""


class TelemetrySession:
    """What one producer and its cluster know of each other's telemetry."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._of: Final = surroundings
        self.client_instance_id: bytes = bytes(16)
        """The id that the cluster gave this producer; zeros: none yet."""
        self._ledger = Ledger(time.time_ns())
        self._interval_s = DEFAULT_INTERVAL_S
        self._subscription: Subscription | None = None  # while there is something to push
        self._topics_fit = True

    async def run(self) -> None:
        """Push, and go on until the cluster wants no more of it for good."""
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
        """Push once more, the last time: only where the cluster has asked for something."""
        if self._subscription is not None:
            await self._push(self._subscription, terminating=True)

    async def _subscribe(self) -> Subscription | None:
        """Return a subscription that wants something, as soon as there is one; None: there will never be one."""
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
        """Push what has come since the last time; return the code of the refusal, 0: there was none."""
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
        # Told from here on, even if nobody hears the answer: what is told twice is worse than what is not.
        before, self._ledger = self._ledger, payload.ledger
        try:
            answer = await connection.request(request)
        except ProducerError as error:
            log.debug("telemetry.failed error=%s", error)
            if isinstance(error, ConnectionFailed) and not error.written:
                self._ledger = before
            return 0
        if answer.error_code:
            self._ledger = before
        return answer.error_code

    def _connection(self) -> Connection | None:
        """Return a connection to a broker that takes telemetry, and requests now."""
        pool = self._of.pool
        taking = [
            each
            for each in self._of.brokers()
            if (connection := pool.get(each)) is not None
            and PushTelemetryRequest.API_KEY in connection.versions.offered
        ]
        connection = pool.least_loaded(taking)
        return None if connection is None or connection.muted else connection

    async def _payload(self, subscription: Subscription) -> _Payload | None:
        """Return what to push; None if it is too large."""
        if len(self._of.topics) < OFF_LOOP_TOPICS:
            return self._make_payload(subscription)
        return await WORK_THREADS.run_anyway(self._make_payload, subscription)

    def _make_payload(self, subscription: Subscription) -> _Payload | None:
        report, now_ns = self._of.report(), time.time_ns()
        codec, compress = _compression(subscription)
        for topics in (True, False):
            if topics and not self._topics_fit:
                continue
            wanted = Wanted(subscription.prefixes, topics)
            points, ledger = self._ledger.tell(report, wanted, is_delta=subscription.is_delta, now_ns=now_ns)
            metrics = compress(encode(points, self._of.resource, now_ns=now_ns))
            if len(metrics) <= subscription.max_bytes:
                return _Payload(codec, metrics, ledger)
        return None


def _compression(subscription: Subscription) -> tuple[Codec, Compress]:
    """Return the first codec of the broker's list that we have; without one nothing is compressed."""
    for each in subscription.compression_types:
        with suppress(ValueError, ConfigError):  # it is a newer one, or its package is not installed
            return Codec(each), compressor(Codec(each), None)
    return Codec.NONE, bytes
