from __future__ import annotations

import heapq
from math import inf

import pytest

from aioproducer._core.batching.schedule import TICK_S, Deadlines
from tests.cases import for_each


def test_empty_deadlines_are_never_due() -> None:
    deadlines: Deadlines[str] = Deadlines()
    assert deadlines.next_due() == inf
    assert deadlines.take_due(1e9) == []


@for_each("deadline", [0.0, 0.3, 0.31, 0.7, 12.34, 86_400.05, 1e9 + 0.01])
def test_item_is_due_within_a_tick_of_its_deadline(deadline: float) -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("late", deadline)
    due_at = deadlines.next_due()
    assert due_at is not None
    assert due_at == pytest.approx(deadline, abs=TICK_S * 1.001)
    assert due_at >= deadline or due_at == pytest.approx(deadline, rel=1e-12)
    assert deadlines.take_due(due_at - TICK_S / 2) == []
    assert deadlines.take_due(due_at) == ["late"]
    assert deadlines.next_due() == inf


def test_due_items_come_by_tick_and_then_in_order_of_addition() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for item, deadline in (("later", 5.0), ("b", 2.01), ("a", 2.05), ("first", 1.0), ("not yet", 9.0)):
        deadlines.add(item, deadline)
    assert deadlines.take_due(5.0) == ["first", "b", "a", "later"]
    assert deadlines.next_due() == pytest.approx(9.0)


def test_discarded_item_is_never_due() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("delivered", 1.0)
    deadlines.add("late", 2.0)
    deadlines.discard("delivered", 1.0)
    assert deadlines.next_due() == pytest.approx(2.0)
    assert deadlines.take_due(3.0) == ["late"]


def test_discard_ignores_an_unknown_item() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.discard("never added", 1.0)
    deadlines.add("late", 1.0)
    deadlines.discard("never added", 1.0)
    assert deadlines.take_due(1.0) == ["late"]
    deadlines.discard("late", 1.0)
    assert deadlines.next_due() == inf


def test_emptied_tick_can_be_used_again() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("one", 1.0)
    deadlines.discard("one", 1.0)
    deadlines.add("other", 1.0)
    assert deadlines.take_due(1.0) == ["other"]


def test_passed_ticks_are_removed() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for number in range(100):
        deadlines.add(number, number * TICK_S)
        deadlines.discard(number, number * TICK_S)
    assert deadlines.take_due(100.0) == []
    assert not deadlines._ticks
    assert not deadlines._by_tick


@for_each("before", [1.98, 2.0])
@for_each("deadline", [1.91, 1.97, 1.0, 0.3])
def test_moved_item_is_due_once_at_the_earlier_deadline(before: float, deadline: float) -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("moved", before)
    deadlines.add("moved", deadline)
    deadlines.discard_before_move("moved", before, deadline)
    assert deadlines.next_due() == pytest.approx(deadline, abs=TICK_S)
    assert deadlines.take_due(9.0) == ["moved"]
    assert deadlines.next_due() == inf


def test_tick_without_items_is_passed_over() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("late", 2.0)
    heapq.heappush(deadlines._ticks, 1)  # as an exception leaves it between the two writes of `add`
    assert deadlines.take_due(1.0) == []
    assert deadlines.take_due(2.0) == ["late"]
