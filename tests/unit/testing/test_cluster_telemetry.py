from __future__ import annotations

import pytest

from aioproducer._core.protocol.metadata import ApiVersionsRequest
from aioproducer._core.protocol.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from aioproducer._core.telemetry.otlp import Kind, Point, encode
from aioproducer.testing import Cluster, MetricsPushed, ThreadedCluster
from tests.unit.testing.client import Client

TELEMETRY = {71, 72}


async def offered(client: Client) -> set[int]:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return {each.api_key for each in (await client.ask(request)).api_keys}


async def test_telemetry_is_offered_once_somebody_wants_metrics(cluster: Cluster, client: Client) -> None:
    assert not await offered(client) & TELEMETRY
    assert (await client.ask(GetTelemetrySubscriptionsRequest())).error_code == 35
    cluster.subscribe_metrics()
    assert await offered(client) >= TELEMETRY


async def test_what_a_client_pushes_can_be_looked_at(cluster: Cluster, client: Client) -> None:
    cluster.subscribe_metrics("a", push_interval_s=1.5, delta_temporality=False, max_bytes=1_000)
    told = await client.ask(GetTelemetrySubscriptionsRequest())
    assert (told.push_interval_ms, told.delta_temporality, told.telemetry_max_bytes) == (1_500, False, 1_000)
    assert tuple(told.accepted_compression_types) == (4, 3, 1, 2)
    push = PushTelemetryRequest(
        client_instance_id=told.client_instance_id,
        subscription_id=told.subscription_id,
        terminating=False,
        compression_type=0,
        metrics=encode([Point("a", Kind.GAUGE, 1.0, {})], {"x": "y"}, now_ns=1),
    )
    assert (await client.ask(push)).error_code == 0
    [pushed] = cluster.pushed_metrics()
    assert isinstance(pushed, MetricsPushed)
    assert (pushed.metrics[0].name, pushed.resource) == ("a", {"x": "y"})
    cluster.on("push_telemetry").answer(118)
    assert (await client.ask(push)).error_code == 118


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(ValueError, match="compression types are"):
        Cluster().subscribe_metrics("*", compression_types=["brotli"])


def test_it_works_across_threads() -> None:
    with ThreadedCluster() as cluster:
        cluster.subscribe_metrics("*", compression_types=["gzip"])
        assert cluster.pushed_metrics() == []
