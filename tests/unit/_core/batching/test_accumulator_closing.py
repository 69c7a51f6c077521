"""An accumulator that takes nothing more, and one that takes records again after a transaction was aborted."""

from __future__ import annotations

from aioproducer._core.batching.waiters import Failure
from aioproducer.errors import ProducerClosed, TransactionAborted
from tests.unit.floor_rig import TOPIC, FloorRig

ABORTED = Failure(TransactionAborted, "aborted")
CLOSED = Failure(ProducerClosed, "closed")


async def test_it_says_how_many_calls_are_on_their_way() -> None:
    rig = FloorRig()
    rig.accumulator.enter("one", rig.accumulator.topics[TOPIC], 3)
    assert rig.accumulator.close(CLOSED) == 1
    assert rig.accumulator.closed_for is CLOSED
    rig.accumulator.leave("one", rig.accumulator.topics[TOPIC])


async def test_it_is_opened_again_by_whoever_closed_it() -> None:
    rig = FloorRig()
    rig.accumulator.close(ABORTED)
    rig.accumulator.reopen(ABORTED)
    assert rig.accumulator.closed_for is None


async def test_but_not_if_it_was_closed_for_something_else_since() -> None:
    rig = FloorRig()
    rig.accumulator.close(ABORTED)
    rig.accumulator.close(CLOSED)
    rig.accumulator.reopen(ABORTED)
    assert rig.accumulator.closed_for is CLOSED
