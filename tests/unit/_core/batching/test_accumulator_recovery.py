"""Appends that an exception, for example of a signal handler, interrupts."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.bulk import Rows, SendManyCall
from aioproducer.testing.virtual_time import in_virtual_time
from tests.unit._core.batching.accumulator_rig import RECORD, VALUE, counts, put, room_for, unresolved
from tests.unit.floor_rig import TOPIC, FloorRig


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def extend(rig: FloorRig) -> object:
    rows = Rows(TOPIC, range(1), [VALUE], None, None, 5, None, [RECORD])
    call = SendManyCall(TOPIC, 1, rig.loop)
    return rig.accumulator.extend(rig.accumulator.topics[TOPIC], rig.queue(), rows, call)


def join(rig: FloorRig) -> object:
    return rig.accumulator.append_to_open(rig.accumulator.topics[TOPIC], VALUE, rig.receipts)


HOLD, BEGIN, ADD = (Accumulator, "hold"), (Batch, "begin_stretch"), (Batch, "add_waiters")


@pytest.mark.parametrize(
    ("append", "place"),
    [(put, HOLD), (put, BEGIN), (join, HOLD), (join, BEGIN), (extend, HOLD), (extend, ADD)],
)
@in_virtual_time
async def test_interrupted_first_append_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, append: Callable[[FloorRig], object], place: tuple[Any, str]
) -> None:
    rig = FloorRig()
    with monkeypatch.context() as patch:
        patch.setattr(*place, interrupt)
        with pytest.raises(KeyboardInterrupt):
            append(rig)
    accumulator = rig.accumulator
    assert unresolved(rig) == []
    assert (accumulator.memory.used, accumulator.deadlines.next_due()) == (0, inf)
    assert accumulator.schedule.next_due() == inf
    assert append(rig)
    assert counts(unresolved(rig)) == [1]


class Interrupting(list[Any]):
    """List that interrupts an append."""

    def append(self, _: object, /) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("append", [put, extend, join])
@in_virtual_time
async def test_interrupted_append_seals_the_batch_of_earlier_records(
    monkeypatch: pytest.MonkeyPatch, append: Callable[[FloorRig], object]
) -> None:
    rig = FloorRig()
    for _ in range(2):
        assert join(rig)
    [batch] = unresolved(rig)
    if append is extend:
        monkeypatch.setattr(Batch, "add_waiters", interrupt)
    else:
        batch.last = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        append(rig)
    assert unresolved(rig) == [batch]
    assert (len(batch), batch.state) == (2, BatchState.SEALED)
    assert rig.accumulator.memory.used == batch.size == room_for(1, 2)
    assert rig.accumulator.deadlines.next_due() < inf
    assert rig.accumulator.schedule.next_due() == inf
    assert rig.drain() == [batch]
