"""GetTelemetrySubscriptions and PushTelemetry: the metrics of clients (KIP-714)."""

from __future__ import annotations

from aioproducer._core.protocol.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from aioproducer.testing.handlers.call import Call
from aioproducer.testing.refusal import Refused


async def get_telemetry_subscriptions(
    call: Call, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Say what is to be pushed."""
    try:
        with call.strike.around():
            return call.state.telemetry.describe(request.client_instance_id)
    except Refused as refused:
        return GetTelemetrySubscriptionsResponse(error_code=refused.code)


async def push_telemetry(call: Call, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Take what is pushed."""
    try:
        with call.strike.around():
            call.state.telemetry.take(request)
    except Refused as refused:
        return PushTelemetryResponse(error_code=refused.code)
    return PushTelemetryResponse()
