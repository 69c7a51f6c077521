from __future__ import annotations

import pytest

from aioproducer.errors import (
    AuthenticationFailed,
    BrokerError,
    MessageTooLarge,
    NotLeaderOrFollower,
    RecordTooLarge,
    SaslAuthenticationFailed,
    UnsupportedVersion,
    broker_error,
)

SURELY_NOT_IN_THE_LOG = {2, 10, 17, 18, 19, 29, 31, 32, 35, 43, 45, 47, 59, 76, 87}


def test_a_code_leads_to_its_class() -> None:
    assert broker_error(6) is NotLeaderOrFollower
    assert NotLeaderOrFollower.code == 6
    assert NotLeaderOrFollower.retriable
    assert NotLeaderOrFollower.stale_metadata


def test_only_codes_decided_before_the_append_say_surely_not() -> None:
    assert {
        code for code, error in BrokerError.by_code.items() if error.definitely_refused
    } == SURELY_NOT_IN_THE_LOG


def test_stale_metadata_is_worth_another_try() -> None:
    assert all(error.retriable for error in BrokerError.by_code.values() if error.stale_metadata)


def test_codes_with_a_class_of_their_own_are_both() -> None:
    assert issubclass(MessageTooLarge, RecordTooLarge)
    assert issubclass(SaslAuthenticationFailed, AuthenticationFailed)
    assert broker_error(35) is UnsupportedVersion


def test_an_unknown_code_gets_a_class_that_assumes_nothing() -> None:
    unknown = broker_error(32_000)
    assert unknown is broker_error(32_000)
    assert unknown.__name__ == "ErrorCode32000"
    assert unknown.code == 32_000
    assert [unknown.retriable, unknown.stale_metadata, unknown.definitely_refused] == [False] * 3


def test_no_error_is_no_error() -> None:
    with pytest.raises(ValueError, match="success"):
        broker_error(0)


def test_a_code_has_one_class() -> None:
    with pytest.raises(TypeError, match="6 is NotLeaderOrFollower already"):
        type("Again", (BrokerError,), {}, code=6)
