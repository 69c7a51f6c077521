"""How long the first records of a transaction are held back."""

from __future__ import annotations

import pytest

from aioproducer.transactions.markers_pause import FADING, HELD_S, LONGEST_S, STEP_S, MarkersPause


def transaction(pause: MarkersPause, produce_s: float, end_s: float = 0.001) -> float:
    """Return the pause behind one whose first Produce was answered within *produce_s*, and EndTxn within *end_s*."""
    pause.ended(end_s)
    pause.answered(produce_s)
    return pause.seconds


def test_who_has_never_been_held_makes_no_pause() -> None:
    pause = MarkersPause()
    assert [transaction(pause, HELD_S - 0.001) for _ in range(3)] == [0, 0, 0]


def test_it_grows_by_a_step_when_a_transaction_was_held() -> None:
    pause = MarkersPause()
    assert transaction(pause, HELD_S) == pytest.approx(STEP_S)
    assert transaction(pause, HELD_S) == pytest.approx(2 * STEP_S)


def test_it_fades_while_none_is_held() -> None:
    pause = MarkersPause()
    transaction(pause, HELD_S)
    assert transaction(pause, 0.001) == pytest.approx(STEP_S * FADING)
    pauses = [transaction(pause, 0.001) for _ in range(300)]
    assert pauses[100] > 0
    assert pauses == sorted(pauses, reverse=True)
    assert pauses[-1] == 0


def test_the_first_answer_of_a_transaction_alone_tells() -> None:
    pause = MarkersPause()
    pause.answered(HELD_S)  # nothing has ended before
    transaction(pause, 0.001)
    pause.answered(HELD_S)
    assert pause.seconds == 0


def test_where_everything_takes_long_the_markers_are_not_why() -> None:
    pause = MarkersPause()
    assert transaction(pause, 0.05, end_s=0.03) == 0
    assert transaction(pause, 0.05, end_s=0.025) == pytest.approx(STEP_S)


def test_a_pause_that_does_not_help_is_given_up() -> None:
    pause = MarkersPause()
    pauses = [transaction(pause, HELD_S) for _ in range(2 + round(LONGEST_S / STEP_S))]
    assert 0 in pauses
    assert LONGEST_S - STEP_S < max(pauses) <= LONGEST_S + STEP_S
