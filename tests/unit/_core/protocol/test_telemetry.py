from __future__ import annotations

from aioproducer._core.protocol.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from tests.unit._core.protocol.golden import check

INSTANCE = bytes(range(16))
INSTANCE_HEX = "000102030405060708090a0b0c0d0e0f"


def test_the_question_for_subscriptions() -> None:
    check(GetTelemetrySubscriptionsRequest(), 0, "00" * 16 + "00")
    check(GetTelemetrySubscriptionsRequest(client_instance_id=INSTANCE), 0, INSTANCE_HEX + "00")


def test_what_to_push() -> None:
    answer = GetTelemetrySubscriptionsResponse(
        throttle_time_ms=1,
        client_instance_id=INSTANCE,
        subscription_id=7,
        accepted_compression_types=(4, 1),
        push_interval_ms=60_000,
        telemetry_max_bytes=1_048_576,
        delta_temporality=True,
        requested_metrics=["a.", "b"],
    )
    wire = f"00000001 0000 {INSTANCE_HEX} 00000007 03 04 01 0000ea60 00100000 01 03 03612e 0262 00"
    check(answer, 0, wire)


def test_a_push() -> None:
    request = PushTelemetryRequest(
        client_instance_id=INSTANCE, subscription_id=7, terminating=True, compression_type=4, metrics=b"otlp"
    )
    check(request, 0, f"{INSTANCE_HEX} 00000007 01 04 05 6f746c70 00")
    check(PushTelemetryResponse(error_code=117), 0, "00000000 0075 00")
