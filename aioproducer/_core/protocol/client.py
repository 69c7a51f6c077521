"""Requests and responses for authentication (SASL) and telemetry, imported only by producers with SASL or telemetry.

SaslHandshake: KIP-43, KIP-152 (v1: SaslAuthenticate requests follow); never flexible. SaslAuthenticate: KIP-152, KIP-368
(v1: lifetime of the session), KIP-482 (v2: flexible). GetTelemetrySubscriptions and PushTelemetry: KIP-714.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aioproducer._core.protocol.fields import field
from aioproducer._core.protocol.schema import NEVER, Message, Request, message
from aioproducer._core.protocol.types import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_TEXT,
    STRING,
    UUID,
    array_of,
)

MOST_MECHANISMS: Final = 100
"""Maximum number of mechanisms in a response, which arrives before authentication."""


@message(api_key=17, versions=(0, 1), flexible_from=NEVER)
class SaslHandshakeResponse(Message):
    """Outcome for the mechanism, and the mechanisms of the listener."""

    error_code: int = field(INT16)
    mechanisms: list[str] = field(array_of(STRING, most=MOST_MECHANISMS))


@message(api_key=17, versions=(0, 1), flexible_from=NEVER)
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """Select a mechanism by its registered name."""

    mechanism: str = field(STRING)


@message(api_key=36, versions=(0, 2), flexible_from=2)
class SaslAuthenticateResponse(Message):
    """Message of the broker to the mechanism. *error_message* is text for users; a lifetime of 0 is unlimited."""

    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_TEXT)
    auth_bytes: bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, since=1, ignorable=True, default=0)


@message(api_key=36, versions=(0, 2), flexible_from=2)
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    """Message of the mechanism to the broker."""

    auth_bytes: bytes = field(BYTES)


@message(api_key=71, versions=(0, 0), flexible_from=0, client_pauses_from=0)
class GetTelemetrySubscriptionsResponse(Message):
    """Subscription: metrics, interval and format. *requested_metrics* are name prefixes; `*` or "" requests all metrics."""

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
