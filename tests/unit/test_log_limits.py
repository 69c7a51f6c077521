from __future__ import annotations

import logging

from aioproducer.log_limits import BURST, REMINDER_S, Burst, Outage, Trouble


def test_news_of_it_is_a_warning_and_that_it_goes_on_is_not() -> None:
    outage = Outage()
    assert [outage.level(now) for now in (5.0, 5.1, 5.0 + REMINDER_S - 0.1)] == [
        logging.WARNING,
        logging.DEBUG,
        logging.DEBUG,
    ]


def test_once_in_a_while_it_is_called_to_mind() -> None:
    outage = Outage()
    levels = [outage.level(float(now)) for now in range(int(3 * REMINDER_S))]
    assert levels.count(logging.WARNING) == 3


def test_after_it_was_over_it_is_news_again() -> None:
    outage = Outage()
    _ = outage.level(5.0)
    assert outage.is_over()
    assert outage.level(5.1) == logging.WARNING


def test_that_it_is_over_is_news_once() -> None:
    outage = Outage()
    assert not outage.is_over()
    _ = outage.level(0.0)
    assert [outage.is_over(), outage.is_over()] == [True, False]


def test_trouble_of_many_is_one_outage_and_over_with_the_last() -> None:
    trouble = Trouble()
    assert not trouble.ill
    assert [trouble.level(what, 5.0) for what in "aab"] == [logging.WARNING, logging.DEBUG, logging.DEBUG]
    assert len(trouble.ill) == 2
    assert not trouble.is_over("a")
    assert not trouble.is_over("c")
    assert trouble.level("b", 5.0 + REMINDER_S) == logging.WARNING
    assert [trouble.is_over("b"), trouble.is_over("b")] == [True, False]


def test_of_many_failures_in_a_second_the_first_are_told() -> None:
    burst = Burst()
    told = [burst.level(7.0 + number / 1_000) for number in range(2 * BURST)]
    assert told == [logging.WARNING] * BURST + [logging.DEBUG] * BURST
    assert burst.level(8.0) == logging.WARNING
