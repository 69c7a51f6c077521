"""The checker: it accepts correct histories and names broken promises."""

from __future__ import annotations

import pytest

from aioproducer import DeliveryTimeout, ProducerError, RecordMetadata
from tests.checker import Called, Findings, Logs, check_order, check_records, log_of

SURELY_NOT = DeliveryTimeout(possibly_persisted=False)
MAYBE = DeliveryTimeout(possibly_persisted=True)
ONE, TWO, THREE = b"1", b"2", b"3"


def logs(*lives: list[bytes]) -> Logs:
    return {("orders", 0): [log_of(life) for life in lives]}


def told(value: bytes, outcome: int | ProducerError | None) -> Called:
    at = RecordMetadata("orders", 0, outcome, 0, False) if isinstance(outcome, int) else outcome
    return Called(value, at)


def broken(findings: Findings) -> list[str]:
    return list(findings.broken)


@pytest.mark.parametrize(
    ("outcome", "log"),
    [(0, [ONE]), (-1, [ONE]), (1, [TWO, ONE]), (MAYBE, []), (MAYBE, [ONE]), (SURELY_NOT, []), (None, [ONE])],
)
def test_checker_accepts_kept_promises(outcome: int | ProducerError | None, log: list[bytes]) -> None:
    called = [told(ONE, outcome), told(TWO, None)]
    check_records(called, logs(log), idempotent=True).check()


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
    findings = check_records([told(ONE, outcome), told(TWO, None)], logs(log), idempotent=True)
    assert broken(findings) == [promise]
    with pytest.raises(AssertionError, match=f"{promise}: 1, e.g. "):
        findings.check()


def test_checker_reports_a_record_in_another_partition() -> None:
    elsewhere = {("orders", 1): [log_of([ONE])]}
    assert broken(check_records([told(ONE, 0)], elsewhere, idempotent=True)) == ["acknowledged is in the log"]


def test_checker_accepts_copies_without_idempotence() -> None:
    called = [told(ONE, 0)]
    check_records(called, logs([ONE, ONE]), idempotent=False).check()
    check_records(called, logs([ONE], [ONE]), idempotent=True).check()


def test_checker_requires_no_offset_with_acks_0() -> None:
    check_records([told(ONE, -1)], logs([]), idempotent=False, acknowledged=False).check()


@pytest.mark.parametrize(
    ("lives", "in_order"),
    [
        ([[ONE, TWO, THREE]], True),
        ([[ONE, THREE]], True),
        ([[ONE, THREE, TWO]], False),
        ([[ONE, TWO, ONE, THREE]], True),  # a copy is not a late record
        ([[TWO], [ONE]], True),  # the order across two logs is unknown
        ([[ONE, TWO], [TWO, ONE, THREE]], True),
        ([[ONE], [THREE, TWO]], False),
    ],
)
def test_checker_requires_the_order_of_the_calls(lives: list[list[bytes]], in_order: bool) -> None:
    findings = Findings()
    check_order([ONE, TWO, THREE], logs(*lives), findings)
    assert (broken(findings) == []) is in_order


def test_checker_ignores_the_place_of_excused_records() -> None:
    findings = Findings()
    check_order([ONE, TWO, THREE], logs([TWO, ONE, THREE]), findings, excused={ONE})
    findings.check()
