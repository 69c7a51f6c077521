from __future__ import annotations

import asyncio
import itertools

import pytest

from aioproducer.errors import ConcurrentTransactions
from aioproducer.testing import in_virtual_time
from aioproducer.testing.faults import Target
from aioproducer.testing.refusal import Refused
from aioproducer.testing.transaction import Identity, Transaction, TransactionState as State
from aioproducer.testing.transaction_timers import PATIENCE_S, TransactionTimers

ID = "t"


class Rig:
    """Timers over markers that can be written, or not."""

    def __init__(self, *, marker_delay_s: float = 0.0) -> None:
        self.can_write = True
        self.written: list[tuple[float, State]] = []
        self.timers = TransactionTimers(itertools.count(100).__next__, self._write)
        self.timers.marker_delay_s = marker_delay_s

    def _write(self, known: Transaction) -> bool:
        if self.can_write:
            self.written.append((asyncio.get_running_loop().time(), known.state))
        return self.can_write

    @property
    def state(self) -> State:
        return self.timers.coordinator.transactions[ID].state

    def begin(self, timeout_ms: int = 1_000) -> Identity:
        identity = self.timers.coordinator.init(ID, timeout_ms, None)
        self.timers.coordinator.add(ID, identity, partitions=[Target("orders", 0)])
        return identity

    def commit(self, identity: Identity) -> Identity:
        return self.timers.coordinator.end(ID, identity, committed=True, bumps_epoch=True)


@in_virtual_time
async def test_markers_are_written_at_once() -> None:
    rig = Rig()
    rig.commit(rig.begin())
    assert (rig.written, rig.state) == ([(0.0, State.PREPARE_COMMIT)], State.COMPLETE_COMMIT)


@in_virtual_time
async def test_or_after_a_while() -> None:
    rig = Rig(marker_delay_s=3)
    rig.commit(rig.begin())
    assert (rig.written, rig.state) == ([], State.PREPARE_COMMIT)
    await asyncio.sleep(3.1)
    assert (rig.written, rig.state) == ([(3.0, State.PREPARE_COMMIT)], State.COMPLETE_COMMIT)


@in_virtual_time
async def test_what_is_open_for_too_long_is_aborted() -> None:
    rig = Rig()
    rig.begin(timeout_ms=2_500)
    await asyncio.sleep(2.4)
    assert rig.state is State.ONGOING
    await asyncio.sleep(0.2)
    assert (rig.written, rig.state) == ([(2.5, State.PREPARE_ABORT)], State.COMPLETE_ABORT)


@in_virtual_time
async def test_what_has_ended_does_not_time_out_and_the_next_has_its_own_time() -> None:
    rig = Rig()
    following = rig.commit(rig.begin())
    await asyncio.sleep(0.9)
    rig.timers.coordinator.add(ID, following)
    await asyncio.sleep(0.9)
    assert rig.written == [(0.0, State.PREPARE_COMMIT)]
    await asyncio.sleep(0.2)
    assert rig.written[1:] == [(1.9, State.PREPARE_ABORT)]


@in_virtual_time
async def test_markers_that_cannot_be_written_are_written_later() -> None:
    rig = Rig()
    rig.can_write = False
    rig.commit(rig.begin())
    rig.timers.retry()
    assert rig.state is State.PREPARE_COMMIT
    rig.can_write = True
    rig.timers.retry()
    rig.timers.retry()
    assert (len(rig.written), rig.state) == (1, State.COMPLETE_COMMIT)


@in_virtual_time
async def test_who_waits_for_the_end_waits_no_longer_than_that() -> None:
    rig = Rig(marker_delay_s=PATIENCE_S / 2)
    await rig.timers.settled("nobody")
    identity = rig.begin()
    await rig.timers.settled(ID)
    assert asyncio.get_running_loop().time() == 0
    rig.commit(identity)
    await rig.timers.settled(ID)
    assert rig.state is State.COMPLETE_COMMIT
    assert asyncio.get_running_loop().time() == PATIENCE_S / 2


@in_virtual_time
async def test_nor_for_ever() -> None:
    rig = Rig(marker_delay_s=60)
    following = rig.commit(rig.begin())
    await rig.timers.settled(ID)
    assert asyncio.get_running_loop().time() == PATIENCE_S
    with pytest.raises(Refused) as refused:
        rig.timers.coordinator.add(ID, following)
    assert refused.value.code == ConcurrentTransactions.code
    rig.timers.stop()


@in_virtual_time
async def test_at_the_end_nothing_happens_any_more() -> None:
    rig = Rig(marker_delay_s=1)
    rig.commit(rig.begin())
    rig.timers.stop()
    await asyncio.sleep(2)
    assert rig.written == []
