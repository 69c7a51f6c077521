from __future__ import annotations

import pytest

from aioproducer._core.protocol.client import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from aioproducer._core.protocol.schema import Message, decode
from aioproducer.errors import ProtocolError
from tests.cases import for_each
from tests.unit._core.protocol.golden import check

MECHANISM = SaslHandshakeRequest(mechanism="PLAIN")
OFFERED = SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN"])
LOGIN = SaslAuthenticateRequest(auth_bytes=b"\0u\0p")
WELCOME = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=9)
REFUSED = SaslAuthenticateResponse(error_code=58, error_message="no", auth_bytes=b"")


@for_each(
    ("message", "version", "wire"),
    [
        (MECHANISM, 0, "0005 504c41494e"),
        (MECHANISM, 1, "0005 504c41494e"),
        (OFFERED, 1, "0021 00000001 0005 504c41494e"),
        (LOGIN, 0, "00000004 00750070"),
        (LOGIN, 1, "00000004 00750070"),
        (LOGIN, 2, "05 00750070 00"),
        (WELCOME, 1, "0000 ffff 00000000 0000000000000009"),
        (WELCOME, 2, "0000 00 01 0000000000000009 00"),
        (REFUSED, 0, "003a 0002 6e6f 00000000"),
    ],
)
def test_sasl_messages_match_golden_bytes(message: Message, version: int, wire: str) -> None:
    check(message, version, wire)


@pytest.mark.parametrize(("version", "wire"), [(1, "0000 ffff ffffffff"), (2, "0000 00 00")])
def test_sasl_response_without_bytes_is_a_protocol_error(version: int, wire: str) -> None:
    with pytest.raises(ProtocolError, match="SaslAuthenticateResponse"):
        decode(SaslAuthenticateResponse, version, bytes.fromhex(wire))


INSTANCE = bytes(range(16))
INSTANCE_HEX = "000102030405060708090a0b0c0d0e0f"


def test_telemetry_subscriptions_request_matches_golden_bytes() -> None:
    check(GetTelemetrySubscriptionsRequest(), 0, "00" * 16 + "00")
    check(GetTelemetrySubscriptionsRequest(client_instance_id=INSTANCE), 0, INSTANCE_HEX + "00")


def test_telemetry_subscriptions_response_matches_golden_bytes() -> None:
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


def test_push_telemetry_messages_match_golden_bytes() -> None:
    request = PushTelemetryRequest(
        client_instance_id=INSTANCE, subscription_id=7, terminating=True, compression_type=4, metrics=b"otlp"
    )
    check(request, 0, f"{INSTANCE_HEX} 00000007 01 04 05 6f746c70 00")
    check(PushTelemetryResponse(error_code=117), 0, "00000000 0075 00")
