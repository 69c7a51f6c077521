"""Queues after an interrupted append or an internal error."""

from __future__ import annotations

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.bulk import CallWaiters
from tests.unit._core.batching.partition_queue_rig import Rig
from tests.unit.floor_rig import back_off


def with_waiters(batch: Batch) -> Batch:
    batch.add_waiters(CallWaiters(None, range(len(batch))))
    return batch


class TestRecover:
    @pytest.mark.parametrize("ready", [False, True])
    def test_open_batch_loses_records_without_waiters_and_is_sealed(self, ready: bool) -> None:
        rig = Rig()
        batch = with_waiters(rig.add(ready=ready))
        batch.columns.append(b"interrupted", None, (), 0)
        assert rig.queue.recover() == [batch]
        assert batch.columns.values == [b"value"]
        assert (batch.state, batch.ready, rig.queue.open) == (BatchState.SEALED, True, None)

    def test_batch_without_waiters_is_removed(self) -> None:
        rig = Rig()
        sealed, batch = with_waiters(rig.add()), rig.add()
        assert rig.queue.recover() == [batch]
        assert list(rig.queue.batches) == [sealed]
        assert rig.queue.open is None

    def test_interrupted_seal_is_completed(self) -> None:
        rig = Rig()
        batch = with_waiters(rig.add(ready=False))
        batch.state = BatchState.SEALED
        batch.columns.append(b"appended", None, (), 0)
        assert rig.queue.recover() == [batch]
        assert (len(batch), batch.ready, rig.queue.open) == (2, True, None)

    def test_batch_that_left_the_queue_is_no_longer_open(self) -> None:
        rig = Rig()
        rig.add()
        rig.queue.batches = ()
        assert rig.queue.recover() == []
        assert rig.queue.open is None


class TestDiscard:
    def test_open_batch_leaves_the_queue(self) -> None:
        rig = Rig()
        sealed, batch = rig.add(), rig.add()
        rig.queue.discard(batch)
        assert list(rig.queue.batches) == [sealed]
        assert rig.queue.open is None

    def test_sealed_batch_leaves_the_queue(self) -> None:
        rig = Rig()
        sealed, still_open = rig.add(), rig.add()
        rig.queue.discard(sealed)
        assert list(rig.queue.batches) == [still_open]
        assert rig.queue.open is still_open

    def test_batch_in_flight_leaves_the_queue(self) -> None:
        rig = Rig()
        discarded, kept = rig.add(), rig.add()
        rig.take()
        rig.take()
        rig.queue.discard(discarded)
        assert rig.queue.in_flight == (kept,)

    def test_batch_in_backoff_leaves_the_queue(self) -> None:
        rig = Rig()
        discarded, kept = rig.add(), rig.add()
        for batch in rig.take(), rig.take():
            back_off(rig.queue, batch, 1.0)
        rig.queue.discard(discarded)
        assert rig.queue.retrying == (kept,)

    def test_batch_of_no_list_is_ignored(self) -> None:
        rig = Rig()
        batch = rig.add()
        rig.take()
        rig.answered(batch)
        rig.queue.discard(batch)
        assert rig.queue.idle
