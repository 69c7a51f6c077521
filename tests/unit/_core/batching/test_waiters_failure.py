from __future__ import annotations

import pytest

from aioproducer._core.batching.waiters import Failure
from aioproducer.errors import ConnectionFailed, DeliveryTimeout


def test_each_record_gets_an_exception_of_its_own_and_all_share_the_cause() -> None:
    cause = ConnectionFailed("lost")
    failure = Failure(DeliveryTimeout, "too late", possibly_persisted=True, cause=cause)
    one, other = failure.error(), failure.error()
    assert one is not other
    for error in (one, other):
        assert type(error) is DeliveryTimeout
        assert str(error) == "too late"
        assert error.possibly_persisted
        assert error.__cause__ is cause


def test_a_failure_is_not_persisted_and_has_no_cause_unless_somebody_says_so() -> None:
    error = Failure(DeliveryTimeout, "too late").error()
    assert not error.possibly_persisted
    assert error.__cause__ is None


@pytest.mark.parametrize(("abortable", "fatal"), [(True, False), (False, True), (False, False)])
def test_what_it_does_to_a_transaction_is_told(abortable: bool, fatal: bool) -> None:
    error = Failure(DeliveryTimeout, "too late", abortable=abortable, fatal=fatal).error()
    assert (error.abortable, error.fatal) == (abortable, fatal)
