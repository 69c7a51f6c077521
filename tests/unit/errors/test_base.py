from __future__ import annotations

import pickle

import pytest

from aioproducer import errors
from aioproducer.errors import AuthenticationFailed, ConnectionFailed, ProducerError, SendManyError
from aioproducer.errors.send_many import SendManyResult

CLASSES = [getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)]


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_every_error_is_a_producer_error_and_tells_its_facts(error: type[ProducerError]) -> None:
    assert issubclass(error, ProducerError)
    assert isinstance(error.retriable, bool)
    assert isinstance(error.abortable, bool)
    assert error.fatal is False
    assert error.__doc__


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.ConfigError, ValueError),
        (errors.WrongLoop, RuntimeError),
        (errors.BufferTimeout, TimeoutError),
        (errors.MetadataTimeout, TimeoutError),
        (errors.DeliveryTimeout, TimeoutError),
        (errors.TransactionTimeout, TimeoutError),
        (errors.TransactionOutcomeUnknown, TimeoutError),
        (errors.TransactionStateError, RuntimeError),
    ],
)
def test_some_are_builtin_errors_too(error: type[ProducerError], builtin: type[Exception]) -> None:
    assert issubclass(error, builtin)


def test_unless_told_otherwise_nothing_is_in_the_log() -> None:
    assert not ProducerError("no").possibly_persisted
    assert ProducerError("who knows", possibly_persisted=True).possibly_persisted


def test_whether_a_transaction_is_to_be_aborted_or_the_producer_is_at_its_end_depends_on_what_was_asked() -> (
    None
):
    error = errors.ProducerFenced("no")
    error.fatal = True
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.fatal, copy.abortable, errors.ProducerFenced.fatal) == (True, False, False)
    late = errors.TransactionTimeout("late")
    late.abortable = False
    assert (pickle.loads(pickle.dumps(late)).abortable, errors.TransactionTimeout.abortable) == (False, True)


def test_a_failed_connection_tells_if_the_request_was_written() -> None:
    assert ConnectionFailed("lost").written
    assert not ConnectionFailed("refused", written=False).written


def test_a_failed_login_tells_where_and_how_and_is_not_the_end() -> None:
    failed = AuthenticationFailed("no", broker="b:9093", mechanism="PLAIN")
    assert (failed.broker, failed.mechanism, str(failed)) == ("b:9093", "PLAIN", "no")
    assert not failed.fatal
    assert not failed.retriable
    assert AuthenticationFailed("no").broker == AuthenticationFailed("no").mechanism == ""
    assert vars(pickle.loads(pickle.dumps(failed))) == vars(failed)


def test_what_a_broker_says_of_a_login_keeps_where_and_how() -> None:
    failed = errors.SaslAuthenticationFailed("no", broker="b:9093", mechanism="PLAIN")
    again = pickle.loads(pickle.dumps(failed))
    assert (again.code, again.broker, again.mechanism, again.fatal) == (58, "b:9093", "PLAIN", False)


def test_send_many_error_carries_the_result() -> None:
    result = SendManyResult("orders", 1)
    assert SendManyError("one failed", result=result).result is result
