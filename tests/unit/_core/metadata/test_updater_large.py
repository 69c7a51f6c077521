from __future__ import annotations

import threading
from typing import Any

import pytest

from aioproducer._core.metadata import updater
from aioproducer._core.metadata.snapshot import LeaderHint, MetadataSnapshot
from aioproducer._core.worker_threads import WORK_THREADS
from aioproducer.errors import ConnectionFailed
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.metadata.answers import topic
from tests.unit._core.metadata.updater_rig import started


@in_virtual_time
async def test_large_answer_is_merged_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updater, "MERGE_OFF_LOOP_PARTITIONS", 3)
    threads: list[int] = []
    merge = MetadataSnapshot.with_answer

    def noted(self: MetadataSnapshot, *args: Any, **options: Any) -> MetadataSnapshot:
        threads.append(threading.get_ident())
        return merge(self, *args, **options)

    async with started() as setup:
        monkeypatch.setattr(MetadataSnapshot, "with_answer", noted)
        setup.cluster.has(topic("small", 1, 2), topic("large", 1, 2, 3))
        assert len((await setup.topic("small")).partitions) == 2
        assert threads == [threading.get_ident()]
        assert len((await setup.topic("large")).partitions) == 3
        assert threads[1] != threading.get_ident()


@in_virtual_time
async def test_leader_hint_during_a_merge_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updater, "MERGE_OFF_LOOP_PARTITIONS", 3)
    async with started() as setup:
        setup.cluster.has(topic("orders", 1, 1))
        await setup.knowing("orders")
        setup.cluster.has(topic("orders", 1, 1), topic("large", 1, 2, 3))
        run = WORK_THREADS.run_anyway
        merges: list[object] = []

        async def hinted(function: Any) -> Any:
            merges.append(function)
            merged = await run(function)
            if len(merges) == 1:
                setup.updater.take_leader_hints([LeaderHint("orders", 0, 2, 9)])
            return merged

        monkeypatch.setattr(WORK_THREADS, "run_anyway", hinted)
        await setup.topic("large")
        assert len(merges) == 2
        assert setup.snapshot.topics["orders"].leaders == (2, 1)


@in_virtual_time
async def test_merge_fails_when_another_cluster_answers_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updater, "MERGE_OFF_LOOP_PARTITIONS", 3)
    async with started() as setup:
        setup.cluster.has(topic("large", 1, 2, 3))
        run = WORK_THREADS.run_anyway
        opened = len(setup.cluster.connections)
        merges: list[object] = []

        async def interrupted(function: Any) -> Any:
            merges.append(function)
            if len(merges) == 1:
                setup.updater._source.start_over(ConnectionFailed("another cluster"))
            return await run(function)

        monkeypatch.setattr(WORK_THREADS, "run_anyway", interrupted)
        await setup.topic("large")
        assert len(merges) == 2
        assert len(setup.cluster.connections) == opened + 1, "the bootstrap address has answered"
