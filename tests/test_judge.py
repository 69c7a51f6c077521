"""The judge itself: what was promised is accepted, and what was broken is named."""

from __future__ import annotations

import pytest

from aioproducer import DeliveryTimeout, ProducerError, RecordMetadata
from tests.judge import Called, Logs, Verdict, judge, judge_order, log_of

SURELY_NOT = DeliveryTimeout(possibly_persisted=False)
MAYBE = DeliveryTimeout(possibly_persisted=True)
ONE, TWO, THREE = b"1", b"2", b"3"


def logs(*lives: list[bytes]) -> Logs:
    return {("orders", 0): [log_of(life) for life in lives]}


def told(value: bytes, outcome: int | ProducerError | None) -> Called:
    at = RecordMetadata("orders", 0, outcome, 0, False) if isinstance(outcome, int) else outcome
    return Called(value, at)


def broken(verdict: Verdict) -> list[str]:
    return list(verdict.broken)


@pytest.mark.parametrize(
    ("outcome", "log"),
    [(0, [ONE]), (-1, [ONE]), (1, [TWO, ONE]), (MAYBE, []), (MAYBE, [ONE]), (SURELY_NOT, []), (None, [ONE])],
)
def test_checker_accepts_kept_promises(outcome: int | ProducerError | None, log: list[bytes]) -> None:
    called = [told(ONE, outcome), told(TWO, None)]
    judge(called, logs(log), idempotent=True).check()


@pytest.mark.parametrize(
    ("outcome", "log", "promise"),
    [
        (0, [], "acknowledged is in the log"),
        (-1, [TWO], "acknowledged is in the log"),
        (1, [ONE, TWO], "at the offset that was told"),
        (SURELY_NOT, [ONE], "failed and not possibly_persisted is not in the log"),
        (0, [ONE, ONE], "never twice in the log"),
        (0, [ONE, THREE], "nothing is in the log that nobody sent"),
    ],
)
def test_checker_names_a_broken_promise(outcome: int | ProducerError, log: list[bytes], promise: str) -> None:
    verdict = judge([told(ONE, outcome), told(TWO, None)], logs(log), idempotent=True)
    assert broken(verdict) == [promise]
    with pytest.raises(AssertionError, match=f"{promise}: 1, e.g. "):
        verdict.check()


def test_checker_reports_a_record_in_another_partition() -> None:
    elsewhere = {("orders", 1): [log_of([ONE])]}
    assert broken(judge([told(ONE, 0)], elsewhere, idempotent=True)) == ["acknowledged is in the log"]


def test_checker_accepts_copies_without_idempotence() -> None:
    called = [told(ONE, 0)]
    judge(called, logs([ONE, ONE]), idempotent=False).check()
    judge(called, logs([ONE], [ONE]), idempotent=True).check()


def test_checker_requires_no_offset_with_acks_0() -> None:
    judge([told(ONE, -1)], logs([]), idempotent=False, acknowledged=False).check()


@pytest.mark.parametrize(
    ("lives", "in_order"),
    [
        ([[ONE, TWO, THREE]], True),
        ([[ONE, THREE]], True),
        ([[ONE, THREE, TWO]], False),
        ([[ONE, TWO, ONE, THREE]], True),  # a copy is no record that is late
        ([[TWO], [ONE]], True),  # nobody can tell about two logs
        ([[ONE, TWO], [TWO, ONE, THREE]], True),
        ([[ONE], [THREE, TWO]], False),
    ],
)
def test_checker_requires_the_order_of_the_calls(lives: list[list[bytes]], in_order: bool) -> None:
    verdict = Verdict()
    judge_order([ONE, TWO, THREE], logs(*lives), verdict)
    assert (broken(verdict) == []) is in_order


def test_checker_ignores_the_place_of_excused_records() -> None:
    verdict = Verdict()
    judge_order([ONE, TWO, THREE], logs([TWO, ONE, THREE]), verdict, excused={ONE})
    verdict.check()
