from __future__ import annotations

import random

import pytest

from aioproducer._core.backoff import Backoff

MIDDLE, LOWEST, HIGHEST = 0.5, 0.0, 1.0


def test_delays_double_from_the_first_to_the_longest() -> None:
    backoff = Backoff(0.1, 1.0)
    delays = [backoff.delay_s(attempt, MIDDLE) for attempt in range(6)]
    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_multiplier_is_configurable() -> None:
    assert Backoff(1.0, 100.0, multiplier=3.0).delay_s(2, MIDDLE) == pytest.approx(9.0)


def test_jitter_spreads_a_delay_to_both_sides() -> None:
    backoff = Backoff(0.1, 1.0, jitter=0.2)
    assert backoff.delay_s(0, LOWEST) == pytest.approx(0.08)
    assert backoff.delay_s(0, HIGHEST) == pytest.approx(0.12)


def test_jitter_does_not_exceed_the_longest_delay() -> None:
    assert Backoff(0.1, 1.0).delay_s(10, HIGHEST) == 1.0


def test_maximum_delay_below_the_initial_one_wins() -> None:
    assert Backoff(10.0, 1.0).delay_s(0, MIDDLE) == 1.0


def test_initial_delay_of_zero_gives_no_delay() -> None:
    assert Backoff(0.0, 1.0).delay_s(50, MIDDLE) == 0.0


def test_delay_of_a_long_outage_does_not_overflow() -> None:
    assert Backoff(0.1, 1.0).delay_s(10**9, MIDDLE) == 1.0


def test_jitter_spreads_clients_that_fail_together() -> None:
    backoff = Backoff(0.1, 1.0)
    assert len({backoff.delay_s(0, random.Random(seed).random()) for seed in range(20)}) == 20


def test_random_module_is_the_default_source_of_jitter() -> None:
    assert 0.08 <= Backoff(0.1, 1.0).delay_s(0) <= 0.12
