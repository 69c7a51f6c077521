from __future__ import annotations

from typing import Any

import pytest

from aioproducer.errors import ProtocolError
from aioproducer.net.in_flight import Call, InFlight
from aioproducer.protocol.frames import decode_response, encode_response
from aioproducer.protocol.init_producer_id import InitProducerIdResponse

VERSION = 4


def ignore(outcome: Any) -> None:
    pass


def call(correlation_id: int) -> Call:
    return Call(correlation_id, InitProducerIdResponse, VERSION, decode_response, ignore, 0.0, 0)


def answer(correlation_id: int, producer_id: int = 7) -> bytes:
    response = InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    return bytes(encode_response(response, VERSION, correlation_id)[4:])


def test_answers_are_matched_in_the_order_of_the_calls() -> None:
    in_flight = InFlight()
    calls = [call(1), call(2)]
    for each in calls:
        in_flight.add(each)
    assert in_flight.oldest is calls[0]
    for each, producer_id in zip(calls, [70, 71], strict=True):
        matched, decoded = in_flight.match(answer(each.correlation_id, producer_id))
        assert matched is each
        assert isinstance(decoded, InitProducerIdResponse)
        assert decoded.producer_id == producer_id
    assert len(in_flight) == 0


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (answer(2), r"correlation id 2, while 1 \(InitProducerId v4\) was next"),
        (answer(1)[:-1], "InitProducerIdResponse v4"),
        (answer(1) + b"!", "left over"),
        (b"\x00\x00", "bytes"),
    ],
)
def test_what_is_no_answer_to_the_oldest_call_takes_out_none(payload: bytes, complaint: str) -> None:
    in_flight = InFlight()
    in_flight.add(call(1))
    in_flight.add(call(2))
    with pytest.raises(ProtocolError, match=complaint):
        in_flight.match(payload)
    assert [each.correlation_id for each in in_flight.take_all()] == [1, 2]
    assert len(in_flight) == 0


def test_whose_answer_it_is_can_be_told_from_its_first_bytes() -> None:
    in_flight = InFlight()
    in_flight.add(call(1))
    assert in_flight.expect(answer(1)[:4]).correlation_id == 1
    with pytest.raises(ProtocolError, match="correlation id 2, while 1"):
        in_flight.expect(answer(2)[:4])
    assert len(in_flight) == 1


def test_an_answer_without_a_call_is_refused() -> None:
    with pytest.raises(ProtocolError, match="no request was waiting for, with correlation id 5"):
        InFlight().match(answer(5))
