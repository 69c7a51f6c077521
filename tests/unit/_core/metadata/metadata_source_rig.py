"""A metadata source on top of fakes, and a request for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from aioproducer._core.metadata.metadata_source import MetadataSource
from aioproducer._core.metadata.refresh_schedule import MetadataSettings
from aioproducer._core.metadata.snapshot import Broker
from aioproducer._core.net.pool import Pool
from aioproducer._core.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.unit._core.metadata.answers import port_of
from tests.unit._core.metadata.fakes import LATENCY_S, FakeCluster, FakePool, settings

QUESTION = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
NODES = {each: Broker(each, f"b{each}", port_of(each)) for each in (1, 2, 3)}
QUICKLY_S = 10 * LATENCY_S


class Setup:
    def __init__(self, *bootstrap: int, config: MetadataSettings | None = None, **pool: Any) -> None:
        self.cluster = FakeCluster()
        self.pool = FakePool(self.cluster, **pool)
        pool_of_nodes = cast("Pool", self.pool)
        self.source = MetadataSource(config or settings(*bootstrap), pool_of_nodes, self.cluster.open)
        self.pool.on_connected = lambda _: self.source.connected()
        self.pool.on_disconnected = lambda *_: self.source.disconnected()

    async def bootstrap(self, deadline: float = 60.0) -> MetadataResponse:
        return await self.source.bootstrap(QUESTION, deadline)

    async def ask(self, nodes: Mapping[int, Broker] = NODES) -> MetadataResponse:
        return await self.source.ask(QUESTION, nodes)

    @property
    def answered_by(self) -> int:
        """Node id of the broker that was asked last."""
        return self.cluster.asked[-1][1]

    async def close(self) -> None:
        await self.source.close()
        await self.pool.close()
