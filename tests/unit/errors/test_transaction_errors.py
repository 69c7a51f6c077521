from __future__ import annotations

from aioproducer.errors import (
    CommitFailed,
    TransactionAborted,
    TransactionLost,
    TransactionOutcomeUnknown,
    TransactionStateError,
    TransactionTimeout,
)

ALL = (
    CommitFailed,
    TransactionAborted,
    TransactionLost,
    TransactionOutcomeUnknown,
    TransactionStateError,
    TransactionTimeout,
)


def test_two_of_them_want_an_abort() -> None:
    assert [error for error in ALL if error.abortable] == [CommitFailed, TransactionTimeout]


def test_none_is_worth_sending_the_same_record_again() -> None:
    assert not any(error.retriable for error in ALL)
