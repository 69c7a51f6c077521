from __future__ import annotations

from aioproducer.errors import BrokerError, coordinator_errors

NAMED = [getattr(coordinator_errors, name) for name in coordinator_errors.__all__]
CODES = {12, 14, 15, 16, 22, 25, 30, 47, 48, 49, 50, 51, 53, 59, 82, 88, 90, 105, 120, 128}
WORTH_ANOTHER_TRY = {14, 15, 16, 51, 88}


def test_each_has_kafkas_code() -> None:
    assert {error.code for error in NAMED} == CODES
    assert all(BrokerError.by_code[error.code] is error for error in NAMED)


def test_only_a_coordinator_that_is_busy_or_elsewhere_is_worth_another_try() -> None:
    assert {error.code for error in NAMED if error.retriable} == WORTH_ANOTHER_TRY


def test_a_code_alone_does_not_say_what_becomes_of_the_transaction() -> None:
    assert not any(error.abortable or error.fatal for error in NAMED)
