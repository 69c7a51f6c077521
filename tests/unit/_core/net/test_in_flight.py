from __future__ import annotations

from math import inf
from typing import Any

import pytest

from aioproducer._core.net.in_flight import IDS, Call, InFlight
from aioproducer._core.protocol.produce import InitProducerIdResponse
from aioproducer._core.protocol.schema import decode_response, encode_response
from aioproducer.errors import ProtocolError

VERSION = 4


def ignore(outcome: Any) -> None:
    pass


def after(last_id: int, *requests: Call | None) -> InFlight:
    """The calls of a connection on which *last_id* was answered last; None is a request that expects no answer."""
    in_flight = InFlight()
    in_flight.last_id = in_flight._last_answered = last_id
    for each in requests:
        new_id = in_flight.last_id = (in_flight.last_id + 1) % IDS
        if each is not None:
            assert each.correlation_id == new_id
            in_flight.add(each)
    return in_flight


def call(correlation_id: int, deadline: float = 0.0) -> Call:
    return Call(correlation_id, InitProducerIdResponse, VERSION, decode_response, ignore, deadline, 0)


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
        response = InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        assert in_flight.match(answer(each.correlation_id, producer_id)) == (each, response, 0)
    assert len(in_flight) == 0


def test_what_is_left_over_behind_an_answer_is_counted_and_does_no_harm() -> None:
    in_flight = after(0, expected := call(1))
    response = InitProducerIdResponse(producer_id=70, producer_epoch=0)
    assert in_flight.match(answer(1, 70) + b"!!") == (expected, response, 2)
    assert len(in_flight) == 0


def test_the_next_deadline_is_that_of_the_oldest_call() -> None:
    in_flight = after(0, None, call(2, deadline=7.0), call(3, deadline=9.0))
    assert in_flight.next_deadline == 7.0
    in_flight.match(answer(2))
    assert in_flight.next_deadline == 9.0
    in_flight.take_all()
    assert in_flight.next_deadline == inf


def test_a_call_is_named_by_its_api_and_version() -> None:
    assert (call(1).api, str(call(1))) == ("InitProducerId", "InitProducerId v4")


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (answer(2), r"correlation id 2, while 1 \(InitProducerId v4\) was next"),
        (answer(1)[:-1], "InitProducerIdResponse v4"),
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
    assert in_flight.expect(answer(1)[:4]) is in_flight.oldest
    with pytest.raises(ProtocolError, match="correlation id 2, while 1"):
        in_flight.expect(answer(2)[:4])
    assert len(in_flight) == 1


@pytest.mark.parametrize("last_id", [0, 0x7FFF_FFFC, 0x7FFF_FFFE])  # the ids begin again in between
def test_an_answer_to_a_request_that_expects_none_is_skipped(last_id: int) -> None:
    ids = [(last_id + each) & 0x7FFF_FFFF for each in range(1, 6)]
    in_flight = after(last_id, None, None, expected := call(ids[2]), None, None)
    assert in_flight.may_be_answered
    assert in_flight.expect(answer(ids[0])[:4]) is None
    assert in_flight.match(answer(ids[0])) is None
    assert in_flight.match(answer(ids[1])[:4] + b"whatever") is None
    matched = in_flight.match(answer(ids[2]))
    assert matched is not None
    assert matched[0] is expected
    assert in_flight.match(answer(ids[4])) is None
    assert not in_flight.may_be_answered


@pytest.mark.parametrize("wrong", [9, 10, 11, 14, 15, 99])
def test_only_a_request_that_was_written_since_the_last_answer_can_be_answered(wrong: int) -> None:
    in_flight = after(9, None, None, call(12), None)
    assert in_flight.match(answer(11)) is None
    with pytest.raises(ProtocolError, match=f"correlation id {wrong}, while 12"):
        in_flight.match(answer(wrong))
    in_flight.match(answer(12))
    with pytest.raises(ProtocolError, match=f"no request was waiting for, with correlation id {wrong}"):
        in_flight.match(answer(wrong))


def test_an_answer_without_a_call_is_refused() -> None:
    with pytest.raises(ProtocolError, match="no request was waiting for, with correlation id 5"):
        InFlight().match(answer(5))


def test_what_was_asked_after_the_oldest_call_cannot_be_answered_before_it() -> None:
    in_flight = after(9, None, call(11), None, call(13))
    with pytest.raises(ProtocolError, match="correlation id 12, while 11"):
        in_flight.match(answer(12))
