from __future__ import annotations

import pickle

import pytest

from aioproducer.errors import (
    BrokerError,
    NotLeaderOrFollower,
    ProducerFenced,
    UnsupportedVersion,
    broker_error,
)


def test_a_code_leads_to_its_class() -> None:
    assert broker_error(6) is NotLeaderOrFollower
    assert NotLeaderOrFollower.code == 6
    assert NotLeaderOrFollower.retriable
    assert NotLeaderOrFollower.stale_metadata
    assert broker_error(35) is UnsupportedVersion
    assert broker_error(90) is ProducerFenced


def test_an_unknown_code_gets_a_class_that_assumes_nothing() -> None:
    unknown = broker_error(32_000)
    assert unknown is broker_error(32_000)
    assert unknown.__name__ == "ErrorCode32000"
    assert unknown.code == 32_000
    assert [unknown.retriable, unknown.stale_metadata, unknown.definitely_refused] == [False] * 3


def test_one_of_an_unknown_code_can_be_pickled() -> None:
    error = broker_error(32_000)("no", possibly_persisted=True)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.args, copy.possibly_persisted) == (type(error), ("no",), True)


def test_no_error_is_no_error() -> None:
    with pytest.raises(ValueError, match="success"):
        broker_error(0)


def test_a_code_has_one_class() -> None:
    with pytest.raises(TypeError, match="6 is NotLeaderOrFollower already"):
        type("Again", (BrokerError,), {}, code=6)
