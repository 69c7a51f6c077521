"""A running updater on top of fakes, with the updates that it published."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import cast

import pytest

from aioproducer._core.metadata.refresh_schedule import MetadataSettings
from aioproducer._core.metadata.snapshot import MetadataSnapshot, TopicInfo
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.net.pool import Pool
from tests.unit._core.metadata.fakes import FakeCluster, FakePool, now, settings


class Setup:
    """Updater past its bootstrap, connected to all nodes, with the updates that it published."""

    def __init__(self, config: MetadataSettings) -> None:
        self.cluster = FakeCluster()
        self.pool = FakePool(self.cluster)
        self.updates: list[tuple[MetadataSnapshot, Collection[str]]] = []
        self.answers: list[tuple[list[str], int]] = []
        self.leaderless: set[str] = set()
        """The topics with records that wait for a leader."""
        self.updater = MetadataUpdater(
            config,
            cast("Pool", self.pool),
            open_connection=self.cluster.open,
            on_update=lambda *update: self.updates.append(update),
            leaderless=lambda: self.leaderless,
            on_answer=lambda topics, node_id: self.answers.append((sorted(topics), node_id)),
        )
        self.pool.on_connected = self.updater.connected
        self.pool.on_disconnected = self.updater.disconnected

    async def start(self) -> None:
        await self.updater.bootstrap(now() + 60.0)
        await self.pool.connect(1, 2, 3)
        _ = self.updater.start()
        self.updater.connected(1)
        self.forget()

    def forget(self) -> None:
        self.cluster.asked.clear()
        self.updates.clear()

    async def topic(
        self, name: str, timeout_s: float = 60.0, *, refresh: bool = False, partition: int | None = None
    ) -> TopicInfo:
        return await self.updater.topic(name, now() + timeout_s, refresh=refresh, partition=partition)

    async def knowing(self, *names: str) -> None:
        """Have asked for topics, long ago."""
        for name in names:
            await self.topic(name)
        await asyncio.sleep(10.0)
        self.forget()

    @property
    def snapshot(self) -> MetadataSnapshot:
        return self.updater.snapshot

    @property
    def changes(self) -> list[set[str]]:
        return [set(changed) for _, changed in self.updates]


@asynccontextmanager
async def started(config: MetadataSettings | None = None) -> AsyncIterator[Setup]:
    setup = Setup(config or settings())
    await setup.start()
    try:
        yield setup
    finally:
        await setup.updater.close()
        await setup.pool.close()
        assert len(asyncio.all_tasks()) == 1


def waiting(setup: Setup, name: str, timeout_s: float = 60.0) -> asyncio.Task[TopicInfo]:
    return asyncio.create_task(setup.topic(name, timeout_s))


async def error_of(task: asyncio.Task[TopicInfo]) -> BaseException:
    with pytest.raises(BaseException) as raised:
        await task
    return raised.value
