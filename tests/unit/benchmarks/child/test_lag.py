from __future__ import annotations

import asyncio
import time

import pytest

from aioproducer.testing import ThreadedCluster
from benchmarks.child.__main__ import play
from benchmarks.child.lag import heartbeat
from benchmarks.clients import adapter
from benchmarks.parent.topics import check_count, stored
from benchmarks.settings import Settings, Work


class Noticed(list[float]):
    """A list that somebody can wait for to grow."""

    def __init__(self) -> None:
        self._grown = asyncio.Event()

    def append(self, item: float) -> None:
        super().append(item)
        self._grown.set()

    async def more(self) -> None:
        self._grown.clear()
        await self._grown.wait()


async def test_a_loop_that_is_held_up_is_late() -> None:
    late = Noticed()
    beating = asyncio.create_task(heartbeat(late))
    await late.more()
    time.sleep(0.05)  # noqa: ASYNC251 - the point
    await late.more()
    beating.cancel()
    assert max(late) > 0.045


@pytest.mark.slow
async def test_lag_is_told_next_to_a_control(kafka_cluster: ThreadedCluster) -> None:
    kafka_cluster.create_topic("lag", 1)
    settings = Settings(work=Work.LAG, seconds=0.2, value_bytes=1024)
    run = await play(adapter("aioproducer")(kafka_cluster.bootstrap_servers, "lag", settings), settings)
    check_count(run.sent, stored(kafka_cluster.bootstrap_servers, [("lag", 0)]))
    assert run.figures["lag_ms"] >= 0
    assert run.figures["control_ms"] >= 0
