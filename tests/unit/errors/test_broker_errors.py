from __future__ import annotations

import pickle

import pytest

from aioproducer.errors import (
    AuthenticationFailed,
    BrokerError,
    MessageTooLarge,
    NotLeaderOrFollower,
    ProducerFenced,
    RecordTooLarge,
    SaslAuthenticationFailed,
    UnsupportedVersion,
    broker_error,
)

REFUSED_BEFORE_APPEND = {2, 10, 17, 18, 19, 29, 31, 32, 35, 43, 45, 47, 59, 76, 87, 100}
OF_COORDINATORS = {12, 14, 15, 16, 22, 25, 30, 47, 48, 49, 50, 51, 53, 59, 82, 88, 90, 105, 120, 128}
RETRIABLE_OF_COORDINATORS = {14, 15, 16, 51, 88}


def test_broker_errors_are_refusals_only_before_the_append() -> None:
    refused = {code for code, error in BrokerError.by_code.items() if error.definitely_refused}
    assert refused == REFUSED_BEFORE_APPEND


def test_broker_errors_with_stale_metadata_are_retriable() -> None:
    assert all(error.retriable for error in BrokerError.by_code.values() if error.stale_metadata)


def test_broker_errors_subclass_the_error_of_the_same_meaning() -> None:
    assert issubclass(MessageTooLarge, RecordTooLarge)
    assert issubclass(SaslAuthenticationFailed, AuthenticationFailed)


def test_coordinator_errors_are_retriable_while_it_loads() -> None:
    retriable = {code for code in OF_COORDINATORS if BrokerError.by_code[code].retriable}
    assert retriable == RETRIABLE_OF_COORDINATORS


def test_broker_errors_leave_the_transaction_to_the_producer() -> None:
    assert not any(error.abortable or error.fatal for error in BrokerError.by_code.values())


def test_broker_error_returns_the_class_of_a_code() -> None:
    assert broker_error(6) is NotLeaderOrFollower
    assert NotLeaderOrFollower.code == 6
    assert NotLeaderOrFollower.retriable
    assert NotLeaderOrFollower.stale_metadata
    assert broker_error(35) is UnsupportedVersion
    assert broker_error(90) is ProducerFenced


def test_broker_error_makes_a_class_for_an_unknown_code() -> None:
    unknown = broker_error(32_000)
    assert unknown is broker_error(32_000)
    assert unknown.__name__ == "ErrorCode32000"
    assert unknown.code == 32_000
    assert [unknown.retriable, unknown.stale_metadata, unknown.definitely_refused] == [False] * 3


def test_broker_error_of_an_unknown_code_can_be_pickled() -> None:
    error = broker_error(32_000)("no", possibly_persisted=True)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.args, copy.possibly_persisted) == (type(error), ("no",), True)


def test_broker_error_raises_for_code_0() -> None:
    with pytest.raises(ValueError, match="success"):
        broker_error(0)


def test_broker_error_class_cannot_reuse_a_code() -> None:
    with pytest.raises(TypeError, match="error code 6: already used by NotLeaderOrFollower"):
        type("Again", (BrokerError,), {}, code=6)
