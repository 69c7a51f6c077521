from __future__ import annotations

import pytest

from aioproducer._core.batching.waiters import Failure
from aioproducer.errors import ConnectionFailed, DeliveryTimeout


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
