from __future__ import annotations

from aioproducer.errors import (
    AuthenticationFailed,
    BrokerError,
    MessageTooLarge,
    RecordTooLarge,
    SaslAuthenticationFailed,
)

SURELY_NOT_IN_THE_LOG = {2, 10, 17, 18, 19, 29, 31, 32, 35, 43, 45, 47, 59, 76, 87, 100}


def test_only_codes_decided_before_the_append_say_surely_not() -> None:
    assert {
        code for code, error in BrokerError.by_code.items() if error.definitely_refused
    } == SURELY_NOT_IN_THE_LOG


def test_stale_metadata_is_worth_another_try() -> None:
    assert all(error.retriable for error in BrokerError.by_code.values() if error.stale_metadata)


def test_codes_with_a_class_of_their_own_are_both() -> None:
    assert issubclass(MessageTooLarge, RecordTooLarge)
    assert issubclass(SaslAuthenticationFailed, AuthenticationFailed)
