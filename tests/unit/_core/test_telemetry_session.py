"""Cases outside tests/scenarios/test_telemetry.py: the choice of the broker, and metrics that were never sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from aioproducer._core import telemetry_session
from aioproducer._core.protocol.client import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from aioproducer._core.protocol.schema import ApiVersionTable
from aioproducer._core.records.compression import Codec, Compress, compressor
from aioproducer._core.telemetry_session import TelemetryContext, TelemetrySession
from aioproducer.errors import ConfigError, ConnectionFailed, ProducerError
from aioproducer.testing.telemetry_receiver import decode_metrics
from aioproducer.testing.virtual_time import in_virtual_time
from tests.cases import for_each
from tests.fakes import FakePool

INTERVAL_S = 60.0
QUESTIONS, PUSHES = GetTelemetrySubscriptionsRequest.API_KEY, PushTelemetryRequest.API_KEY


class Cluster(FakePool):
    """Brokers that want all metrics, as deltas."""

    def __init__(self, *connected: int, codecs: Sequence[int] = ()) -> None:
        super().__init__(*connected)
        self.pushes: list[tuple[int, PushTelemetryRequest]] = []
        self.pushed = asyncio.Event()
        self.failures: list[ProducerError] = []
        """What the next pushes raise."""
        self.total = 0
        for node_id in connected:
            self.offers(node_id, QUESTIONS, PUSHES)
        self._codecs = codecs

    def offers(self, node_id: int, *apis: int) -> None:
        connection: Any = self.connections[node_id]
        connection.versions = ApiVersionTable(dict.fromkeys(apis, (0, 0)))
        connection.is_throttled = False

        async def request(message: Any) -> Any:
            await asyncio.sleep(0)
            if isinstance(message, GetTelemetrySubscriptionsRequest):
                return GetTelemetrySubscriptionsResponse(
                    client_instance_id=b"i" * 16,
                    accepted_compression_types=self._codecs,
                    push_interval_ms=int(INTERVAL_S * 1000),
                    telemetry_max_bytes=1_000_000,
                    delta_temporality=True,
                    requested_metrics=["*"],
                )
            self.pushes.append((node_id, message))
            self.pushed.set()
            if self.failures:
                raise self.failures.pop(0)
            return PushTelemetryResponse()

        connection.request = request

    def session(self) -> TelemetrySession:
        return TelemetrySession(
            TelemetryContext(
                self.real,
                brokers=lambda: tuple(self.connections),
                report=lambda: {"producer": {"record_send_total": self.total}, "nodes": {}, "topics": {}},
                topics={},
                resource={},
            )
        )

    async def run_for(self, intervals: float) -> None:
        """Have a session for a while, with the total one higher in each interval."""
        running = asyncio.get_running_loop().create_task(self.session().run())
        for _ in range(round(intervals)):
            self.total += 1
            await asyncio.sleep(INTERVAL_S)
        running.cancel()
        await asyncio.wait([running])

    def told(self) -> list[float]:
        return [metric.value for _, push in self.pushes for metric in decode_metrics(push.metrics)[0]]


@pytest.fixture(autouse=True)
def first_after_half_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_session, "FIRST_PUSH", (0.5, 0.5))


@pytest.mark.parametrize(("written", "told"), [(False, [1, 2, 1]), (True, [1, 1, 1])])
def test_unsent_delta_is_pushed_again(*, written: bool, told: list[float]) -> None:
    @in_virtual_time
    async def play() -> None:
        cluster = Cluster(1)
        cluster.failures = [ConnectionFailed(written=written)]
        await cluster.run_for(3)
        assert cluster.told() == told

    play()


@in_virtual_time
async def test_broker_without_subscription_is_left_alone() -> None:
    cluster = Cluster(1)
    connection: Any = cluster.connections[1]
    connection.is_throttled = True
    await cluster.run_for(20)
    assert cluster.pushes == []
    connection.is_throttled = False
    await cluster.run_for(2)
    assert cluster.told() == [21, 1]


@in_virtual_time
async def test_push_goes_to_the_least_loaded_supporting_broker() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.offers(1)
    cluster.connections[2].calls = [None, None]  # type: ignore[list-item]
    await cluster.run_for(2)
    assert [node_id for node_id, _ in cluster.pushes] == [3, 3]


@for_each(
    ("codecs", "used"),
    [
        ((), Codec.NONE),
        ((99, Codec.GZIP), Codec.GZIP),
        ((99,), Codec.NONE),
        ((Codec.NONE, Codec.GZIP), Codec.NONE),
    ],
)
def test_unknown_codec_is_skipped(codecs: Sequence[int], used: Codec) -> None:
    @in_virtual_time
    async def play() -> None:
        cluster = Cluster(1, codecs=codecs)
        await cluster.run_for(1)
        [(_, push)] = cluster.pushes
        assert push.compression_type == used

    play()


@in_virtual_time
async def test_codec_without_its_package_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_snappy(codec: Codec, level: None) -> Compress:
        if codec is Codec.SNAPPY:
            raise ConfigError("snappy needs a package")
        return compressor(codec, level)

    monkeypatch.setattr(telemetry_session, "compressor", without_snappy)
    cluster = Cluster(1, codecs=(Codec.SNAPPY, Codec.GZIP))
    await cluster.run_for(1)
    [(_, push)] = cluster.pushes
    assert push.compression_type == Codec.GZIP


@in_virtual_time
async def test_first_push_has_a_random_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    first = []
    for _ in range(20):
        cluster, loop = Cluster(1), asyncio.get_running_loop()
        running, began = loop.create_task(cluster.session().run()), loop.time()
        await cluster.pushed.wait()
        first.append(loop.time() - began)
        running.cancel()
        await asyncio.wait([running])
    assert 0.5 * INTERVAL_S <= min(first) < max(first) <= 1.5 * INTERVAL_S
    assert max(first) - min(first) > INTERVAL_S / 4
