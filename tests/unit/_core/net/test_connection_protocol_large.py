"""Large responses, which a worker thread decodes before later responses are read."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer._core.net.connection_protocol import ConnectionProtocol
from aioproducer._core.net.in_flight import (
    DECODE_OFF_LOOP_BYTES,
    LENGTH,
    LargeAnswer,
    Undecoded,
    decode_unless_large,
)
from tests.unit._core.net.connection_protocol_rig import NOW, answer, answers, call, ready
from tests.unit._core.net.scripted import ASK


def large_answer(correlation_id: int) -> bytes:
    """Return an answer to `ASK` with surplus bytes that make it large."""
    payload = answer(correlation_id)[LENGTH.size :] + bytes(DECODE_OFF_LOOP_BYTES)
    return LENGTH.pack(len(payload)) + payload


def test_large_response_is_decoded_before_later_responses() -> None:
    connection = ready()
    call(connection, 3)
    received = answers(connection, [answer(2) + large_answer(3) + answer(4)])
    assert next(received) == 2
    with pytest.raises(Undecoded) as large:
        next(received)
    assert (large.value.call.correlation_id, connection.in_flight) == (3, 2)
    message, surplus = large.value.decode()
    connection.decoded(large.value.call, lambda: (message, surplus))
    rest = list(connection.receive_data(b"", NOW))
    assert [(each.correlation_id, count) for each, _, count in rest] == [(3, surplus), (4, 0)]
    assert rest[0][1] is message


def responses(connection: ConnectionProtocol, data: bytes) -> list[Any]:
    return [message for _, message, _ in connection.receive_data(data, NOW)]


def test_large_response_may_be_decoded_by_its_receiver() -> None:
    connection = ready()
    connection.send(ASK, NOW, lambda _: None, decode=decode_unless_large)
    (message,) = responses(connection, large_answer(2))
    assert isinstance(message, LargeAnswer)


def test_large_response_that_no_call_awaits_is_skipped() -> None:
    connection = ready()
    connection.send(ASK, NOW)
    call(connection)
    assert [each.producer_id for each in responses(connection, large_answer(2) + answer(3))] == [3]
