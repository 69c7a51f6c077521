"""The pause before the first records of a transaction."""

from __future__ import annotations

import pytest

from aioproducer._core.transactions.transaction_records import (
    HELD_S,
    LONGEST_S,
    PAUSE_DECAY,
    SHORTEST_S,
    STEP_S,
    MarkersPause,
)

NATURAL_S = 0.001
"""How long a producer takes from EndTxn's answer to its next Produce."""


def transaction(
    pause: MarkersPause, produce_s: float, end_s: float = 0.001, natural_s: float = NATURAL_S
) -> float:
    """Return the pause after a transaction whose Produce took *produce_s* and whose EndTxn took *end_s*."""
    pause.ended(100.0, end_s)
    pause.wrote(100.0 + max(natural_s, pause.seconds))
    pause.answered(produce_s)
    return pause.seconds


def test_transaction_that_was_never_held_makes_no_pause() -> None:
    pause = MarkersPause()
    assert [transaction(pause, HELD_S - 0.001) for _ in range(3)] == [0, 0, 0]


def test_held_transaction_makes_the_next_pause_a_step_longer() -> None:
    pause = MarkersPause()
    assert transaction(pause, HELD_S) == pytest.approx(NATURAL_S + STEP_S)
    assert transaction(pause, HELD_S) == pytest.approx(NATURAL_S + 2 * STEP_S)


def test_pause_decays_while_no_transaction_is_held() -> None:
    pause = MarkersPause()
    transaction(pause, HELD_S)
    assert transaction(pause, 0.001) == pytest.approx((NATURAL_S + STEP_S) * PAUSE_DECAY)
    pauses = [transaction(pause, 0.001) for _ in range(2_000)]
    assert pauses[100] > NATURAL_S * 0.9
    assert pauses == sorted(pauses, reverse=True)
    assert pauses[-1] == 0


def test_pause_decays_once_more_from_the_shortest() -> None:
    pause = MarkersPause()
    pause.seconds = SHORTEST_S
    assert [transaction(pause, 0.001) for _ in range(2)] == [SHORTEST_S * PAUSE_DECAY, 0]


def test_only_the_first_produce_of_a_transaction_counts() -> None:
    pause = MarkersPause()
    pause.wrote(1.0)
    pause.answered(HELD_S)  # nothing has ended before
    pause.ended(2.0, 0.001)
    pause.wrote(2.001)
    pause.wrote(2.004)
    pause.answered(0.001)
    pause.answered(HELD_S)
    assert pause.seconds == 0


def test_pause_counts_from_the_first_produce() -> None:
    pause = MarkersPause()
    pause.ended(2.0, 0.001)
    pause.wrote(2.001)
    pause.wrote(2.004)
    pause.answered(HELD_S)
    assert pause.seconds == pytest.approx(0.001 + STEP_S)


def test_answer_after_the_end_does_not_count_for_the_next() -> None:
    pause = MarkersPause()
    pause.ended(2.0, 0.001)
    pause.wrote(2.001)
    pause.ended(3.0, 0.001)
    pause.answered(HELD_S)
    assert pause.seconds == 0


def test_slow_cluster_makes_no_pause() -> None:
    pause = MarkersPause()
    assert transaction(pause, 0.05, end_s=0.03) == 0
    assert transaction(pause, 0.05, end_s=0.025) == pytest.approx(NATURAL_S + STEP_S)


def test_pause_without_effect_is_given_up() -> None:
    pause = MarkersPause()
    pauses = [transaction(pause, HELD_S) for _ in range(2 + round(LONGEST_S / STEP_S))]
    assert 0 in pauses
    assert LONGEST_S - STEP_S < max(pauses) <= LONGEST_S + STEP_S


def test_gap_of_the_longest_pause_makes_no_pause() -> None:
    pause = MarkersPause()
    pause.ended(0.0, 0.001)
    pause.wrote(LONGEST_S)
    pause.answered(HELD_S)
    assert pause.seconds == 0


def test_naturally_long_gap_makes_no_pause() -> None:
    pause = MarkersPause()
    assert transaction(pause, HELD_S, natural_s=LONGEST_S * 1.01) == 0
