from __future__ import annotations

import pytest

from aioproducer._core.protocol.client import GetTelemetrySubscriptionsResponse
from aioproducer._core.telemetry_session import Subscription
from tests.cases import for_each

INSTANCE = bytes(range(16))


def test_subscription_has_the_fields_of_the_response() -> None:
    answer = GetTelemetrySubscriptionsResponse(
        client_instance_id=INSTANCE,
        subscription_id=7,
        accepted_compression_types=[4, 1],
        push_interval_ms=1_500,
        telemetry_max_bytes=1_000,
        delta_temporality=True,
        requested_metrics=["a.", "b."],
    )
    assert Subscription.of(answer) == Subscription(INSTANCE, 7, (4, 1), 1.5, 1_000, True, ("a.", "b."))


@for_each(("asked", "prefixes"), [([], ()), (["*"], ("",)), ([""], ("",)), (["*", "a"], ("*", "a"))])
def test_subscription_star_selects_all_and_empty_none(asked: list[str], prefixes: tuple[str, ...]) -> None:
    assert Subscription.of(GetTelemetrySubscriptionsResponse(requested_metrics=asked)).prefixes == prefixes


@pytest.mark.parametrize("interval_ms", [0, -1])
def test_invalid_push_interval_is_five_minutes(interval_ms: int) -> None:
    answer = GetTelemetrySubscriptionsResponse(push_interval_ms=interval_ms)
    assert Subscription.of(answer).interval_s == 300.0
