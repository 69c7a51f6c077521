"""A closed accumulator, and one that is reopened after a transaction was aborted."""

from __future__ import annotations

import pytest

from aioproducer._core.batching.waiters import Failure
from aioproducer.errors import ProducerClosed, TransactionAborted
from tests.unit.floor_rig import TOPIC, FloorRig

ABORTED = Failure(TransactionAborted, "aborted")
CLOSED = Failure(ProducerClosed, "closed")


async def test_close_returns_the_number_of_pending_calls() -> None:
    rig = FloorRig()
    rig.accumulator.enter("one", rig.accumulator.topics[TOPIC], 3)
    assert rig.accumulator.close(CLOSED) == 1
    assert rig.accumulator.closed_for is CLOSED
    rig.accumulator.leave("one", rig.accumulator.topics[TOPIC])


async def test_reopen_accepts_the_failure_that_closed() -> None:
    rig = FloorRig()
    rig.accumulator.close(ABORTED)
    rig.accumulator.reopen(ABORTED)
    assert rig.accumulator.closed_for is None


async def test_reopen_ignores_the_failure_of_an_earlier_close() -> None:
    rig = FloorRig()
    rig.accumulator.close(ABORTED)
    rig.accumulator.close(CLOSED)
    rig.accumulator.reopen(ABORTED)
    assert rig.accumulator.closed_for is CLOSED


async def test_close_ends_the_waits_for_serializers() -> None:
    rig = FloorRig()
    ended: list[Failure] = []
    rig.accumulator.interrupts["one"] = ended.append
    rig.accumulator.close(CLOSED)
    assert ended == [CLOSED]


async def test_closed_accumulator_opens_no_batch() -> None:
    rig = FloorRig()
    rig.accumulator.close(CLOSED)
    with pytest.raises(ProducerClosed, match="closed"):
        _ = rig.append()
    assert not rig.accumulator.unresolved
