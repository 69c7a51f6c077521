"""A subscription: which metrics a cluster wants, how often and in what form (KIP-714), and what its refusals mean."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from aioproducer._core.protocol.telemetry import GetTelemetrySubscriptionsResponse

DEFAULT_INTERVAL_S: Final = 300.0
"""As in the JVM client: between attempts, as long as no broker has said another interval that makes sense."""

UNSUPPORTED_COMPRESSION_TYPE: Final = 76
THROTTLING_QUOTA_EXCEEDED: Final = 89
UNKNOWN_SUBSCRIPTION_ID: Final = 117
TELEMETRY_TOO_LARGE: Final = 118

ASK_AT_ONCE: Final = frozenset({UNSUPPORTED_COMPRESSION_TYPE, UNKNOWN_SUBSCRIPTION_ID})
"""Refusals of a push for which the subscription is fetched again at once: it has changed."""
ASK_LATER: Final = frozenset({THROTTLING_QUOTA_EXCEEDED, TELEMETRY_TOO_LARGE})
"""… after an interval. All others are the end of it, as in the JVM client: to ask again would change nothing."""


class Subscription(NamedTuple):
    """What a broker wants of this client."""

    client_instance_id: bytes
    subscription_id: int
    compression_types: tuple[int, ...]
    interval_s: float
    max_bytes: int
    is_delta: bool
    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, answer: GetTelemetrySubscriptionsResponse) -> Self:
        """Return what *answer* says; an interval that makes none is the default."""
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
