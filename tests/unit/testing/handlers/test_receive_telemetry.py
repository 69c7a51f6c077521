from __future__ import annotations

from typing import Any

import pytest

from aioproducer._core.protocol.schema import Request
from aioproducer._core.protocol.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from aioproducer.testing import Cluster
from tests.unit.testing.client import Client

PUSH = PushTelemetryRequest(
    client_instance_id=bytes(16), subscription_id=1, terminating=False, compression_type=0, metrics=b""
)


@pytest.mark.parametrize("kind", ["get_telemetry_subscriptions", "push_telemetry"])
async def test_the_script_and_the_receiver_may_refuse(cluster: Cluster, client: Client, kind: str) -> None:
    cluster.subscribe_metrics("*")
    request: Request[Any] = GetTelemetrySubscriptionsRequest() if kind.startswith("get") else PUSH
    rule = cluster.on(kind).answer(89)
    assert (await client.ask(request)).error_code == 89
    assert rule.hits == 1
    assert cluster.request_count(kind) == 1
    of_its_own = 0 if kind.startswith("get") else 42
    assert (await client.ask(request)).error_code == of_its_own
