from __future__ import annotations

import pytest

from aioproducer.testing.transaction import LAST_EPOCH, Identity, Transaction, TransactionState as State


def test_the_states_have_kafkas_names() -> None:
    assert [state.value for state in State] == [
        *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
    ]
    assert [state for state in State if state.is_prepared] == [State.PREPARE_COMMIT, State.PREPARE_ABORT]
    assert [state for state in State if state.is_complete] == [State.COMPLETE_COMMIT, State.COMPLETE_ABORT]


@pytest.mark.parametrize(
    ("known", "identity", "behind"),
    [
        (Transaction("t", 5, epoch=3, last_epoch=2), Identity(5, 2), True),
        (Transaction("t", 5, epoch=3, last_epoch=2), Identity(5, 3), False),
        (Transaction("t", 5, epoch=3, last_epoch=2), Identity(6, 2), False),
        (Transaction("t", 5, epoch=3, last_epoch=-1), Identity(5, 2), False),
        (Transaction("t", 6, epoch=0, previous_producer_id=5), Identity(5, LAST_EPOCH), True),
        (Transaction("t", 6, epoch=0, previous_producer_id=5), Identity(5, 0), False),
        (Transaction("t", 6, epoch=1, previous_producer_id=5), Identity(5, LAST_EPOCH), False),
    ],
)
def test_one_epoch_behind_is_who_was_bumped(known: Transaction, identity: Identity, behind: bool) -> None:
    assert known.is_behind(identity) == behind


def test_while_it_ends_it_is_already_the_next_ones() -> None:
    known = Transaction("t", 5, epoch=LAST_EPOCH + 1)
    assert known.identity == (5, LAST_EPOCH + 1)
    known.next_producer_id = 6
    assert known.identity == (6, 0)
