"""Batches after an internal error or an exception of a signal handler: their waiters fail in any case."""

from __future__ import annotations

from typing import NoReturn

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.waiters import Failure
from aioproducer.errors import ProducerClosed
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.batching.completion_rig import LATE, errors, nothing_is_left
from tests.unit.floor_rig import FloorRig, Witness, lose

CLOSED = Failure(ProducerClosed, "over")


def fail(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("bug")


@pytest.mark.parametrize("state", ["open", "in flight", "backing off"])
@in_virtual_time
async def test_abandoned_batch_fails_and_returns_its_memory(state: str) -> None:
    rig = FloorRig()
    if state == "open":
        future = rig.append()
        [batch] = rig.accumulator.unresolved
    else:
        batch, [future] = rig.sent()
        if state == "backing off":
            rig.completion.reenqueue(batch, 60.0)
    wakes = rig.wakes
    rig.completion.abandon(batch, CLOSED)
    assert rig.wakes == wakes + 1, "a finishing sender may wait for this batch alone"
    assert errors([future]) == [ProducerClosed]
    assert (batch.state, batch.stretches) == (BatchState.FAILED, [])
    assert rig.witness.failures == [(batch, 1, CLOSED)]
    assert nothing_is_left(rig)


@in_virtual_time
async def test_partition_of_an_abandoned_batch_is_offered_again() -> None:
    rig = FloorRig()
    batch, _ = rig.sent()
    behind = rig.fill()
    rig.accumulator.seal(behind, rig.loop.time())
    rig.completion.abandon(batch, CLOSED)
    assert rig.drain() == [behind]


@pytest.mark.parametrize("owner", ["waiters", "observer"])
@in_virtual_time
async def test_bugs_during_the_abandonment_are_ignored(owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = FloorRig()
    batch, [future] = rig.sent()
    if owner == "waiters":
        monkeypatch.setattr(type(batch.stretches[0]), "fail", fail)
    else:
        monkeypatch.setattr(Witness, "failed", fail)
    rig.completion.abandon(batch, CLOSED)
    assert future.done() == (owner == "observer")
    assert nothing_is_left(rig)


@in_virtual_time
async def test_fail_everything_survives_a_bug(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = FloorRig(partitions=2)
    sent, [written] = rig.sent()
    queued = rig.append(partition=1)
    monkeypatch.setattr(Batch, "expire", fail)
    assert rig.completion.fail_everything(CLOSED) == 2
    assert errors([written, queued]) == [ProducerClosed] * 2
    assert [each.possibly_persisted for _, _, each in rig.witness.failures] == [True, False]
    assert sent.state is BatchState.FAILED
    assert nothing_is_left(rig)
    [record] = [each for each in caplog.records if each.msg.startswith("batch.bug")]
    assert (record.levelname, record.getMessage()) == ("ERROR", "batch.bug partition=orders-0")
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], RuntimeError)


@in_virtual_time
async def test_failed_partition_is_failing_until_no_batch_is_retried() -> None:
    rig = FloorRig()
    rig.recognise(1)
    first, _ = rig.sent()
    second, _ = rig.sent()
    rig.completion.failing_partitions.add(first.topic_partition)
    lose(first)
    rig.completion.reenqueue(first, 60.0)
    rig.completion.fail(second, LATE)
    assert rig.completion.failing_partitions == {first.topic_partition}
    rig.completion.fail(first, LATE)
    assert rig.completion.failing_partitions == set()


@in_virtual_time
async def test_expired_partition_is_no_longer_failing() -> None:
    rig = FloorRig()
    batch, _ = rig.sent()
    rig.completion.failing_partitions.add(batch.topic_partition)
    rig.completion.expire_in_flight(batch, LATE)
    assert rig.completion.failing_partitions == set()
