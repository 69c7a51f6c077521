from __future__ import annotations

import pytest

from aioproducer import errors
from aioproducer.errors import ConnectionFailed, ProducerError, SendManyError
from aioproducer.errors.send_many import SendManyResult

CLASSES = [getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)]


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_every_error_is_a_producer_error_and_tells_both_facts(error: type[ProducerError]) -> None:
    assert issubclass(error, ProducerError)
    assert isinstance(error.retriable, bool)
    assert error.__doc__


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.ConfigError, ValueError),
        (errors.WrongLoop, RuntimeError),
        (errors.BufferTimeout, TimeoutError),
        (errors.MetadataTimeout, TimeoutError),
        (errors.DeliveryTimeout, TimeoutError),
    ],
)
def test_some_are_builtin_errors_too(error: type[ProducerError], builtin: type[Exception]) -> None:
    assert issubclass(error, builtin)


def test_unless_told_otherwise_nothing_is_in_the_log() -> None:
    assert not ProducerError("no").possibly_persisted
    assert ProducerError("who knows", possibly_persisted=True).possibly_persisted


def test_a_failed_connection_tells_if_the_request_was_written() -> None:
    assert ConnectionFailed("lost").written
    assert not ConnectionFailed("refused", written=False).written


def test_send_many_error_carries_the_result() -> None:
    result = SendManyResult("orders", 1)
    assert SendManyError("one failed", result=result).result is result
