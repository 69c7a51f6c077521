from __future__ import annotations

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
from aioproducer.results import DeliveredRun


@pytest.mark.parametrize(
    "kind",
    [BufferFull, BufferTimeout, MetadataUnavailable, DeliveryTimeout, NotEnoughReplicas, ProducerClosed],
)
def test_what_is_not_stored_and_may_succeed_later_is_to_be_sent_again(kind: type[ProducerError]) -> None:
    assert answer_to(kind("no"), retry_after_s=7) == (
        503,
        {"Retry-After": "7"},
        {"error": kind.__name__, "possibly_persisted": False},
    )


@pytest.mark.parametrize("kind", [DeliveryTimeout, ProducerClosed, MessageTooLarge, TopicAuthorizationFailed])
def test_what_may_be_stored_is_not_said_to_be_worth_sending_again(kind: type[ProducerError]) -> None:
    assert answer_to(kind("no", possibly_persisted=True)) == (
        504,
        {},
        {"error": kind.__name__, "possibly_persisted": True},
    )


@pytest.mark.parametrize("kind", [RecordTooLarge, MessageTooLarge])
def test_what_is_too_large_is_the_clients_fault(kind: type[ProducerError]) -> None:
    assert answer_to(kind("no")) == (413, {}, {"error": kind.__name__, "possibly_persisted": False})


@pytest.mark.parametrize("kind", [SerializationError, TopicAuthorizationFailed, ProducerError])
def test_the_rest_is_ours(kind: type[ProducerError]) -> None:
    assert answer_to(kind("no")) == (500, {}, {"error": kind.__name__, "possibly_persisted": False})


@pytest.mark.parametrize(
    ("delivered", "answer"),
    [
        ([0], (504, {}, {"error": "SendManyError", "possibly_persisted": True})),
        ([], (503, {"Retry-After": "1"}, {"error": "SendManyError", "possibly_persisted": False})),
    ],
)
def test_of_many_records_none_may_be_stored_for_all_to_be_sent_again(
    delivered: list[int], answer: object
) -> None:
    result = SendManyResult("orders", 2)
    result.add_delivered(DeliveredRun(delivered, 0, 5, delivered, log_append_time=False))
    assert answer_to(SendManyError("no", result=result, retriable=True)) == answer
