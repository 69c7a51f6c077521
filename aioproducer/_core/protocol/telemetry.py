"""GetTelemetrySubscriptions and PushTelemetry: client metrics for the cluster (KIP-714)."""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer._core.protocol.fields import field
from aioproducer._core.protocol.schema import Message, Request, message
from aioproducer._core.protocol.types import BOOL, BYTES, INT8, INT16, INT32, STRING, UUID, array_of


@message(api_key=71, versions=(0, 0), flexible_from=0, client_pauses_from=0)
class GetTelemetrySubscriptionsResponse(Message):
    """Subscription: metrics, interval and format. *requested_metrics* are name prefixes; `*` or "" requests all."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    client_instance_id: bytes = field(UUID, default=bytes(16))
    subscription_id: int = field(INT32, default=0)
    accepted_compression_types: Sequence[int] = field(array_of(INT8), factory=list)
    push_interval_ms: int = field(INT32, default=0)
    telemetry_max_bytes: int = field(INT32, default=0)
    delta_temporality: bool = field(BOOL, default=False)
    requested_metrics: list[str] = field(array_of(STRING), factory=list)


@message(api_key=71, versions=(0, 0), flexible_from=0)
class GetTelemetrySubscriptionsRequest(Request[GetTelemetrySubscriptionsResponse]):
    """Request the subscription; a *client_instance_id* of zeros requests a new id."""

    client_instance_id: bytes = field(UUID, default=bytes(16))


@message(api_key=72, versions=(0, 0), flexible_from=0, client_pauses_from=0)
class PushTelemetryResponse(Message):
    """Outcome of a push."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)


@message(api_key=72, versions=(0, 0), flexible_from=0)
class PushTelemetryRequest(Request[PushTelemetryResponse]):
    """Push metrics in OTLP format, compressed with a codec that the cluster accepts."""

    client_instance_id: bytes = field(UUID)
    subscription_id: int = field(INT32)
    terminating: bool = field(BOOL)
    compression_type: int = field(INT8)
    metrics: bytes = field(BYTES)
