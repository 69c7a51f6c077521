"""Join windows: open batches accept records for a limited time."""

from __future__ import annotations

from math import inf

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.batching.schedule import JOINS_FOR_S, JoinWindows
from tests.unit._core.batching.partition_queue_rig import Rig


def open_batch(joins_until: float) -> tuple[PartitionQueue, Batch]:
    rig = Rig()
    batch = rig.add(ready=False)
    batch.join_by(joins_until)
    return rig.queue, batch


@pytest.mark.parametrize(("linger_s", "lasts_s"), [(0.005, JOINS_FOR_S), (3.0, 3.0)])
def test_window_lasts_at_least_as_long_as_the_linger(linger_s: float, lasts_s: float) -> None:
    windows = JoinWindows(linger_s)
    assert (windows.lasts_s, windows.check_at) == (lasts_s, inf)


def test_next_check_is_the_earliest() -> None:
    windows = JoinWindows(0.0)
    later, earlier = open_batch(7.0)[0], open_batch(5.0)[0]
    windows.watch(later, 7.0)
    assert (windows.check_at, later.is_watched) == (7.0, True)
    windows.watch(earlier, 5.0)
    assert windows.check_at == 5.0


def test_batch_is_sealed_at_the_end_of_its_window() -> None:
    windows = JoinWindows(0.0)
    queue, batch = open_batch(5.0)
    other, younger = open_batch(7.0)
    windows.watch(queue, 5.0)
    windows.watch(other, 5.0)
    assert windows.seal_old(4.9) == 5.0
    assert (batch.state, younger.state) == (BatchState.OPEN, BatchState.OPEN)
    assert windows.seal_old(5.0) == windows.check_at == 7.0
    assert (batch.state, younger.state) == (BatchState.SEALED, BatchState.OPEN)
    assert (queue.is_watched, other.is_watched) == (False, True)
    assert windows.seal_old(8.0) == windows.check_at == inf
    assert younger.state is BatchState.SEALED


def test_queue_without_an_open_batch_is_watched_no_longer() -> None:
    windows = JoinWindows(0.0)
    queue, batch = open_batch(5.0)
    other, open_ = open_batch(5.0)
    queue.seal(batch)
    windows.watch(queue, 5.0)
    windows.watch(other, 5.0)
    assert (windows.seal_old(4.0), queue.is_watched) == (5.0, True)
    assert windows.seal_old(5.0) == inf
    assert not queue.is_watched
    assert open_.state is BatchState.SEALED
