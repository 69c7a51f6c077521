from __future__ import annotations

from typing import Any

import pytest

from aioproducer import (
    BufferFull,
    BufferTimeout,
    DeliveryTimeout,
    MessageTooLarge,
    MetadataUnavailable,
    NotEnoughReplicas,
    ProducerClosed,
    ProducerError,
    RecordTooLarge,
    SendManyError,
    SendManyResult,
    SerializationError,
    TopicAuthorizationFailed,
)
from aioproducer.contrib.web import answer_to
from aioproducer.errors.send_many import DeliveredRun
from tests.cases import for_each


@for_each(
    "kind",
    [BufferFull, BufferTimeout, MetadataUnavailable, DeliveryTimeout, NotEnoughReplicas, ProducerClosed],
)
def test_retriable_error_gives_503(kind: type[ProducerError]) -> None:
    assert answer_to(kind("no"), retry_after_s=7) == (
        503,
        {"Retry-After": "7"},
        {"error": kind.__name__, "possibly_persisted": False},
    )


@for_each("kind", [DeliveryTimeout, ProducerClosed, MessageTooLarge, TopicAuthorizationFailed])
def test_possibly_persisted_error_gives_504(kind: type[ProducerError]) -> None:
    assert answer_to(kind("no", possibly_persisted=True)) == (
        504,
        {},
        {"error": kind.__name__, "possibly_persisted": True},
    )


@pytest.mark.parametrize("kind", [RecordTooLarge, MessageTooLarge])
def test_too_large_record_gives_413(kind: type[ProducerError]) -> None:
    assert answer_to(kind("no")) == (413, {}, {"error": kind.__name__, "possibly_persisted": False})


@pytest.mark.parametrize("error", [ValueError("no"), ProducerError, None])
def test_answer_to_accepts_only_producer_errors(error: Any) -> None:
    with pytest.raises(TypeError, match="only a ProducerError"):
        answer_to(error)


@for_each("seconds", [-1, 0.5, "1", True, None])
def test_retry_after_is_a_whole_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(ValueError, match="whole number of seconds"):
        answer_to(BufferFull("no"), retry_after_s=seconds)
    assert answer_to(BufferFull("no"), retry_after_s=0).headers == {"Retry-After": "0"}


@pytest.mark.parametrize("kind", [SerializationError, TopicAuthorizationFailed, ProducerError])
def test_final_error_gives_500(kind: type[ProducerError]) -> None:
    assert answer_to(kind("no")) == (500, {}, {"error": kind.__name__, "possibly_persisted": False})


@pytest.mark.parametrize(
    ("delivered", "answer"),
    [
        ([0], (504, {}, {"error": "SendManyError", "possibly_persisted": True})),
        ([], (503, {"Retry-After": "1"}, {"error": "SendManyError", "possibly_persisted": False})),
    ],
)
def test_send_many_gives_503_if_no_record_is_stored(delivered: list[int], answer: object) -> None:
    result = SendManyResult("orders", 2)
    result.add_delivered(DeliveredRun(delivered, 0, 5, delivered, log_append_time=False))
    result.add_failed(1, BufferTimeout("no"))
    assert answer_to(SendManyError("no", result=result, retriable=True)) == answer


@for_each(
    ("kinds", "status"),
    [
        ([ProducerClosed, ProducerClosed], 503),
        ([RecordTooLarge, ProducerClosed], 503),
        ([RecordTooLarge, MessageTooLarge], 413),
        ([RecordTooLarge, SerializationError], 500),
    ],
)
def test_send_many_error_has_the_status_of_its_errors(kinds: list[type[ProducerError]], status: int) -> None:
    result = SendManyResult("orders", len(kinds))
    for position, kind in enumerate(kinds):
        result.add_failed(position, kind("no"))
    assert answer_to(SendManyError("no", result=result)).status == status
