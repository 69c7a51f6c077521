"""The receiver of client metrics: what the cluster asks of its clients, and what they have pushed (KIP-714)."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from aioproducer._core.protocol.telemetry import GetTelemetrySubscriptionsResponse, PushTelemetryRequest
from aioproducer._core.records.compression import Codec, decompress
from aioproducer.errors import (
    InvalidRecord,
    InvalidRequest,
    ProtocolError,
    ThrottlingQuotaExceeded,
    UnsupportedCompressionType,
    UnsupportedVersion,
    broker_error,
)
from aioproducer.testing.otlp_decoding import PushedMetric, decode_metrics
from aioproducer.testing.refusal import Refused

UnknownSubscriptionId: Final = broker_error(117)
TelemetryTooLarge: Final = broker_error(118)
MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024


class MetricsSubscription(NamedTuple):
    """What clients are asked for."""

    prefixes: tuple[str, ...]
    push_interval_s: float
    is_delta: bool
    codecs: tuple[Codec, ...]
    max_bytes: int


class MetricsPushed(NamedTuple):
    """What a client has pushed at once."""

    client_instance_id: uuid.UUID
    terminating: bool
    """Whether it is the last push of a client that is being closed."""
    codec: Codec
    metrics: list[PushedMetric]
    resource: dict[str, str]
    """What OTLP calls so: what is true of the whole client, such as its `transactional_id`."""


@dataclass(slots=True)
class _Instance:
    """A client, as the broker knows it."""

    subscription_id: int = 0
    pushed_at: float | None = None
    is_terminating: bool = False


@dataclass(slots=True)
class TelemetryReceiver:
    """One for all nodes. Without a subscription, brokers know nothing of telemetry, as without the plugin for it."""

    subscription: MetricsSubscription | None = None
    pushed: list[MetricsPushed] = field(default_factory=list)
    _subscription_id: int = 0
    _instances: dict[bytes, _Instance] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def subscribe(self, subscription: MetricsSubscription) -> None:
        """Ask for something else from now on: what was asked before is unknown."""
        self.subscription = subscription
        self._subscription_id = next(self._ids)

    def describe(self, client_instance_id: bytes) -> GetTelemetrySubscriptionsResponse:
        """Return what a client is to push; one that has no id gets one. Raises: Refused."""
        subscription = self._subscribed()
        if not any(client_instance_id):
            client_instance_id = uuid.uuid4().bytes
        self._instances.setdefault(client_instance_id, _Instance()).subscription_id = self._subscription_id
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=client_instance_id,
            subscription_id=self._subscription_id,
            accepted_compression_types=tuple(map(int, subscription.codecs)),
            push_interval_ms=round(subscription.push_interval_s * 1000),
            telemetry_max_bytes=subscription.max_bytes,
            delta_temporality=subscription.is_delta,
            requested_metrics=list(subscription.prefixes),
        )

    def take(self, push: PushTelemetryRequest) -> None:
        """Take what a client has pushed. Raises: Refused, in the order that Kafka looks at it."""
        subscription, now = self._subscribed(), asyncio.get_running_loop().time()
        instance = self._instances.get(push.client_instance_id)
        if instance is None or instance.is_terminating:
            raise Refused(InvalidRequest, "nobody has this client instance id, or not any more")
        too_early = instance.pushed_at is not None and now < instance.pushed_at + subscription.push_interval_s
        if too_early and not push.terminating:
            raise Refused(ThrottlingQuotaExceeded, "it is too early for another push")
        if push.subscription_id != self._subscription_id:
            raise Refused(UnknownSubscriptionId, "the subscription has changed")
        if push.compression_type and push.compression_type not in subscription.codecs:
            raise Refused(UnsupportedCompressionType, f"codec {push.compression_type} was not accepted")
        if len(push.metrics) > subscription.max_bytes:
            raise Refused(
                TelemetryTooLarge, f"{len(push.metrics)} bytes are more than {subscription.max_bytes}"
            )
        codec = Codec(push.compression_type)
        try:
            metrics, resource = decode_metrics(decompress(codec, push.metrics, limit=MAX_DECOMPRESSED_BYTES))
        except ProtocolError as error:
            raise Refused(InvalidRecord, str(error)) from error
        instance.pushed_at, instance.is_terminating = now, push.terminating
        whose = uuid.UUID(bytes=push.client_instance_id)
        self.pushed.append(MetricsPushed(whose, push.terminating, codec, metrics, resource))

    def _subscribed(self) -> MetricsSubscription:
        if self.subscription is None:
            raise Refused(UnsupportedVersion, "no receiver of client metrics is configured")
        return self.subscription


def codecs(names: Sequence[str]) -> tuple[Codec, ...]:
    """Return the codecs of these names. Raises: ValueError."""
    known = {str(each): each for each in Codec}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"compression types are {', '.join(known)}, not {', '.join(map(repr, unknown))}")
    return tuple(known[name] for name in names)
