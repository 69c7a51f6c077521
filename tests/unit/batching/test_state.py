from __future__ import annotations

from aioproducer.batching.state import LEGAL, RESOLVED, BatchState


def reachable(state: BatchState) -> set[BatchState]:
    found: set[BatchState] = set()
    todo = [state]
    while todo:
        for after in LEGAL[todo.pop()] - found:
            found.add(after)
            todo.append(after)
    return found


def test_every_state_has_its_row() -> None:
    assert set(LEGAL) == set(BatchState)


def test_a_batch_can_get_everywhere_but_back_to_taking_records() -> None:
    assert reachable(BatchState.OPEN) == set(BatchState) - {BatchState.OPEN}


def test_nobody_waits_again_for_a_batch_that_nobody_waits_for() -> None:
    for state in RESOLVED:
        assert reachable(state) <= RESOLVED


def test_every_life_has_an_end() -> None:
    ends = {state for state, after in LEGAL.items() if not after}
    assert ends == {BatchState.DELIVERED, BatchState.SPLIT, BatchState.FAILED}
    for state in set(BatchState) - ends:
        assert reachable(state) & ends
