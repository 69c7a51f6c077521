from __future__ import annotations

import threading
from math import inf
from typing import Any

import pytest

from aioproducer._core.net.connection import decoded
from aioproducer._core.net.in_flight import (
    DECODE_OFF_LOOP_BYTES,
    IDS,
    Call,
    InFlight,
    LargeAnswer,
    Undecoded,
    decode_unless_large,
)
from aioproducer._core.protocol.admin import ListTransactionsResponse, TransactionState
from aioproducer._core.protocol.metadata import ApiVersionsResponse, MetadataResponse, MetadataResponseTopic
from aioproducer._core.protocol.produce import InitProducerIdResponse
from aioproducer._core.protocol.schema import Message, decode_response, encode_response
from aioproducer.errors import ProtocolError
from tests.cases import for_each
from tests.unit._core.metadata.answers import answer as metadata_answer, partition

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


def test_surplus_bytes_of_a_response_are_counted() -> None:
    in_flight = after(0, expected := call(1))
    response = InitProducerIdResponse(producer_id=70, producer_epoch=0)
    assert in_flight.match(answer(1, 70) + b"!!") == (expected, response, 2)
    assert len(in_flight) == 0


def test_next_deadline_is_that_of_the_oldest_call() -> None:
    in_flight = after(0, None, call(2, deadline=7.0), call(3, deadline=9.0))
    assert in_flight.next_deadline == 7.0
    in_flight.match(answer(2))
    assert in_flight.next_deadline == 9.0
    in_flight.take_all()
    assert in_flight.next_deadline == inf


def test_call_is_named_by_its_api_and_version() -> None:
    assert (call(1).api, str(call(1))) == ("InitProducerId", "InitProducerId v4")


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (answer(2), r"correlation id 2; 1 \(InitProducerId v4\) is next"),
        (answer(1)[:-1], "InitProducerIdResponse v4"),
        (b"\x00\x00", "bytes"),
    ],
)
def test_mismatched_response_takes_out_no_call(payload: bytes, complaint: str) -> None:
    in_flight = InFlight()
    in_flight.add(call(1))
    in_flight.add(call(2))
    with pytest.raises(ProtocolError, match=complaint):
        in_flight.match(payload)
    assert [each.correlation_id for each in in_flight.take_all()] == [1, 2]
    assert len(in_flight) == 0


def test_call_of_a_response_is_known_from_its_first_bytes() -> None:
    in_flight = InFlight()
    in_flight.add(call(1))
    assert in_flight.expect(answer(1)[:4]) is in_flight.oldest
    with pytest.raises(ProtocolError, match="correlation id 2; 1"):
        in_flight.expect(answer(2)[:4])
    assert len(in_flight) == 1


@pytest.mark.parametrize("last_id", [0, 0x7FFF_FFFC, 0x7FFF_FFFE])  # the ids begin again in between
def test_response_to_an_acks_0_request_is_skipped(last_id: int) -> None:
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


@for_each("wrong", [9, 10, 11, 14, 15, 99])
def test_response_id_outside_the_written_requests_is_refused(wrong: int) -> None:
    in_flight = after(9, None, None, call(12), None)
    assert in_flight.match(answer(11)) is None
    with pytest.raises(ProtocolError, match=f"correlation id {wrong}; 12"):
        in_flight.match(answer(wrong))
    in_flight.match(answer(12))
    with pytest.raises(ProtocolError, match=f"correlation id {wrong}: no request is in flight"):
        in_flight.match(answer(wrong))


def test_response_without_a_call_is_refused() -> None:
    with pytest.raises(ProtocolError, match="correlation id 5: no request is in flight"):
        InFlight().match(answer(5))


def test_response_to_a_later_request_is_refused() -> None:
    in_flight = after(9, None, call(11), None, call(13))
    with pytest.raises(ProtocolError, match="correlation id 12; 11"):
        in_flight.match(answer(12))


def test_result_of_a_decoded_call_is_used_in_its_place() -> None:
    in_flight = after(0, first := call(1), second := call(2))
    in_flight.decoded(second, lambda: ("too early", 0))
    in_flight.decoded(first, lambda: ("decoded", 3))
    matched = in_flight.match(answer(1))
    assert matched is not None
    assert matched[1:] == ("decoded", 3)
    in_flight.decoded(first, lambda: ("too late", 0))
    assert in_flight.match(answer(2)) == (second, InitProducerIdResponse(producer_id=7, producer_epoch=0), 0)
    in_flight.decoded(second, lambda: ("too late", 0))
    assert len(in_flight) == 0


def test_undecoded_response_keeps_its_call_and_payload() -> None:
    undecoded = Undecoded(expected := call(1), payload := answer(1))
    assert (undecoded.call, undecoded.payload) == (expected, payload)
    assert undecoded.args == (expected, len(payload)), "the message does not contain the payload"
    assert undecoded.decode() == decode_response(InitProducerIdResponse, VERSION, payload)


NEWEST = MetadataResponse.VERSIONS[1]
MANY = 5_000


def about(partitions: int) -> MetadataResponse:
    made = metadata_answer(
        MetadataResponseTopic(name="orders", partitions=[partition(each, 1) for each in range(partitions)])
    )
    made.throttle_time_ms = 7
    return made


def large_payload(message: Message, version: int = NEWEST) -> bytes:
    return bytes(encode_response(message, version, 5)[4:])


def never(error: ProtocolError) -> None:
    raise AssertionError(error)


@for_each("version", range(MetadataResponse.VERSIONS[0], NEWEST + 1))
def test_small_answer_is_decoded_at_once_and_large_one_later(version: int) -> None:
    small, large = large_payload(about(2), version), large_payload(about(MANY), version)
    assert len(small) < DECODE_OFF_LOOP_BYTES <= len(large)
    assert decode_unless_large(MetadataResponse, version, small) == decode_response(
        MetadataResponse, version, small
    )
    kept, surplus = decode_unless_large(MetadataResponse, version, large)
    assert isinstance(kept, LargeAnswer)
    assert surplus == 0
    assert kept.throttle_time_ms == 7, "the connection pauses for it"
    assert kept.decode() == decode_response(MetadataResponse, version, large)


def test_answer_is_large_from_64_kib() -> None:
    small = answer(1).ljust(DECODE_OFF_LOOP_BYTES - 1, b"\0")
    assert decode_unless_large(InitProducerIdResponse, VERSION, small) == decode_response(
        InitProducerIdResponse, VERSION, small
    )
    kept, _ = decode_unless_large(InitProducerIdResponse, VERSION, small + b"\0")
    assert isinstance(kept, LargeAnswer)


def test_large_answer_that_begins_otherwise_has_no_throttle_time() -> None:
    versions = ApiVersionsResponse(error_code=35, api_keys=[], throttle_time_ms=7)
    payload = large_payload(versions, 4).ljust(DECODE_OFF_LOOP_BYTES, b"\0")
    kept, _ = decode_unless_large(ApiVersionsResponse, 4, payload)
    assert isinstance(kept, LargeAnswer)
    assert kept.throttle_time_ms == 0


async def test_large_answer_is_decoded_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    decode = LargeAnswer.decode

    def noted(self: LargeAnswer) -> tuple[MetadataResponse, int]:
        threads.append(threading.get_ident())
        return decode(self)

    monkeypatch.setattr(LargeAnswer, "decode", noted)
    for partitions in (2, MANY):
        told, _ = decode_unless_large(MetadataResponse, NEWEST, large_payload(about(partitions)))
        message = await decoded(told, never)
        assert len(message.topics[0].partitions) == partitions
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_large_answer_that_makes_no_sense_is_refused_and_raised() -> None:
    told, _ = decode_unless_large(MetadataResponse, NEWEST, large_payload(about(MANY))[:-9])
    refused: list[ProtocolError] = []
    with pytest.raises(ProtocolError) as raised:
        await decoded(told, refused.append)
    assert refused == [raised.value]


async def test_large_list_of_transactions_is_decoded_later() -> None:
    states = [
        TransactionState(transactional_id=f"id-{each}", producer_id=each, transaction_state="Ongoing")
        for each in range(MANY)
    ]
    listed = ListTransactionsResponse(error_code=0, unknown_state_filters=[], transaction_states=states)
    told, _ = decode_unless_large(ListTransactionsResponse, 0, large_payload(listed, 0))
    assert isinstance(told, LargeAnswer)
    assert await decoded(told, never) == listed
