from __future__ import annotations

import asyncio
from asyncio import Future
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.testing import ThreadedCluster
from benchmarks.clients.futures import FuturesClient, HandOver
from benchmarks.clients.ours import Aioproducer
from benchmarks.payload import Window
from benchmarks.settings import Settings, Work

SETTINGS = Settings(work=Work.GATHER)


class Resolving(FuturesClient):
    """Client that resolves each Future in the next loop iteration; one Future fails."""

    def __init__(self, failing: int = -1) -> None:
        super().__init__("here:1", "t", SETTINGS)
        self.failing = failing
        self.sent: list[tuple[Any, ...]] = []

    async def start(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    @property
    def hand_over(self) -> HandOver:
        return self.append

    async def append(self, topic: str, *record: Any, headers: Any = ()) -> Future[Any]:
        loop = asyncio.get_running_loop()
        future: Future[Any] = loop.create_future()
        if len(self.sent) == self.failing:
            loop.call_soon(future.set_exception, OSError("lost"))
        else:
            loop.call_soon(future.set_result, SimpleNamespace(partition=0, offset=len(self.sent)))
        self.sent.append((*record, headers))
        return future


WINDOWS = [
    Window([b"1", b"2", b"3"]),
    Window([b"1", b"2", b"3"], [b"a", b"b", b"c"], [[("h", b"1")], [("h", b"2")], [("h", b"3")]]),
]


@pytest.mark.parametrize("window", WINDOWS, ids=["values", "headers"])
async def test_futures_client_sends_a_window_by_each_program(window: Window) -> None:
    client = Resolving()
    assert await client.outcomes(window) == [(0, 0), (0, 1), (0, 2)]
    await client.fire(window)
    await client.callbacks(window)
    once = client.sent[:3]
    assert client.sent == once * 3
    await client.gather(window, 7)
    assert client.sent[9:] == [*once, *once, once[0]]


@pytest.mark.parametrize("window", WINDOWS, ids=["values", "headers"])
async def test_futures_client_raises_a_records_failure(window: Window) -> None:
    with pytest.raises(OSError, match="lost"):
        await Resolving(failing=1).fire(window)
    with pytest.raises(OSError, match="lost"):
        await Resolving(failing=1).callbacks(window)
    with pytest.raises(OSError, match="lost"):
        await Resolving(failing=1).gather(window, 3)
    with pytest.raises(OSError, match="lost"):
        await Resolving(failing=1).outcomes(window)


@pytest.mark.parametrize("window", WINDOWS, ids=["values", "headers"])
async def test_gather_enqueues_when_the_memory_is_full(
    window: Window, kafka_cluster: ThreadedCluster
) -> None:
    kafka_cluster.create_topic("t", 1)
    settings = Settings(work=Work.GATHER, options={"buffer_memory": 20_000, "batch_size": 10_000})
    client = Aioproducer(kafka_cluster.bootstrap_servers, "t", settings)
    await client.start()
    assert len(set(await client.outcomes(window) or ())) == 3
    await client.gather(window, 3_000)
    await client.close()
    values = [record.value or b"" for record in kafka_cluster.records("t", 0)]
    assert sorted(values) == sorted([*window.values] * 1_001)
