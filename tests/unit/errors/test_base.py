from __future__ import annotations

import pickle

from aioproducer import errors
from aioproducer.errors import AuthenticationFailed, ConnectionFailed, ProducerError, SendManyError
from aioproducer.errors.send_many import SendManyResult
from tests.cases import for_each

CLASSES = [getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)]


def test_errors_are_producer_errors_with_facts() -> None:
    for error in CLASSES:
        assert issubclass(error, ProducerError), error
        facts = error.retriable, error.abortable, error.fatal
        assert all(isinstance(fact, bool) for fact in facts), error
        assert not error.fatal, error
        assert error.__doc__, error


@for_each(
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
def test_errors_subclass_builtin_errors(error: type[ProducerError], builtin: type[Exception]) -> None:
    assert issubclass(error, builtin)


def test_possibly_persisted_is_false_by_default() -> None:
    assert not ProducerError("no").possibly_persisted
    assert ProducerError("unknown", possibly_persisted=True).possibly_persisted


def test_abortable_and_fatal_can_be_set_per_error() -> None:
    error = errors.ProducerFenced("no")
    error.fatal = True
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.fatal, copy.abortable, errors.ProducerFenced.fatal) == (True, False, False)
    late = errors.TransactionTimeout("late")
    late.abortable = False
    assert (pickle.loads(pickle.dumps(late)).abortable, errors.TransactionTimeout.abortable) == (False, True)


def test_connection_failed_is_written_by_default() -> None:
    assert ConnectionFailed("lost").written
    assert not ConnectionFailed("refused", written=False).written


def test_authentication_failed_has_broker_and_mechanism() -> None:
    failed = AuthenticationFailed("no", broker="b:9093", mechanism="PLAIN")
    assert (failed.broker, failed.mechanism, str(failed)) == ("b:9093", "PLAIN", "no")
    assert not failed.fatal
    assert not failed.retriable
    assert AuthenticationFailed("no").broker == AuthenticationFailed("no").mechanism == ""
    assert vars(pickle.loads(pickle.dumps(failed))) == vars(failed)


def test_sasl_authentication_failed_pickles_its_attributes() -> None:
    failed = errors.SaslAuthenticationFailed("no", broker="b:9093", mechanism="PLAIN")
    again = pickle.loads(pickle.dumps(failed))
    assert (again.code, again.broker, again.mechanism, again.fatal) == (58, "b:9093", "PLAIN", False)


def test_send_many_error_carries_the_result() -> None:
    result = SendManyResult("orders", 1)
    assert SendManyError("one failed", result=result).result is result


def test_transaction_errors_are_abortable_before_the_end() -> None:
    abortable = {each for each in CLASSES if each.abortable}
    assert abortable == {errors.CommitFailed, errors.TransactionTimeout}
