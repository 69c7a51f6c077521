from __future__ import annotations

import pytest

from aioproducer._core.batching.waiters import Failure
from aioproducer.errors import ConnectionFailed, DeliveryTimeout, ProducerError, RecordTooLarge, TimeoutReason


def test_records_get_an_exception_each_with_a_shared_cause() -> None:
    cause = ConnectionFailed("lost")
    failure = Failure(DeliveryTimeout, "too late", possibly_persisted=True, cause=cause)
    one, other = failure.error(), failure.error()
    assert one is not other
    for error in (one, other):
        assert type(error) is DeliveryTimeout
        assert str(error) == "too late"
        assert error.possibly_persisted
        assert error.__cause__ is cause


def test_failure_is_unpersisted_without_cause_by_default() -> None:
    error = Failure(DeliveryTimeout, "too late").error()
    assert not error.possibly_persisted
    assert error.__cause__ is None


@pytest.mark.parametrize(("abortable", "fatal"), [(True, False), (False, True), (False, False)])
def test_error_carries_abortable_and_fatal(abortable: bool, fatal: bool) -> None:
    error = Failure(DeliveryTimeout, "too late", abortable=abortable, fatal=fatal).error()
    assert (error.abortable, error.fatal) == (abortable, fatal)


@pytest.mark.parametrize("of_record", [True, False])
def test_error_is_of_its_record_if_the_failure_is(of_record: bool) -> None:
    assert Failure(RecordTooLarge, "too large", of_record=of_record).error()._is_of_record is of_record


def test_error_without_a_reason_keeps_the_default() -> None:
    error = Failure(DeliveryTimeout, "too late").error()
    assert isinstance(error, DeliveryTimeout)
    assert error.reason is TimeoutReason.NO_ANSWER


def test_failure_of_copies_an_error_for_unpersisted_records() -> None:
    error = ProducerError("why not", possibly_persisted=True)
    error.abortable, error.fatal, error.__cause__ = True, False, ValueError("why")
    assert Failure.of(error) == Failure(ProducerError, "why not", False, error.__cause__, True, False, None)
    error.abortable, error.fatal = False, True
    assert Failure.of(error) == Failure(ProducerError, "why not", False, error.__cause__, False, True, None)


def test_failure_of_a_timeout_keeps_its_reason() -> None:
    failure = Failure.of(DeliveryTimeout("too late", reason=TimeoutReason.THROTTLED))
    assert failure == Failure(DeliveryTimeout, "too late", reason=TimeoutReason.THROTTLED)
    error = failure.error()
    assert isinstance(error, DeliveryTimeout)
    assert error.reason is TimeoutReason.THROTTLED
