from __future__ import annotations

import threading
from math import inf
from typing import Any

import pytest

from aioproducer._core.net.connection import decoded
from aioproducer._core.net.in_flight import (
    DECODE_OFF_LOOP_BYTES,
    IDS,
    LENGTH,
    UNCHECKED_BYTES,
    Call,
    FrameReader,
    InFlight,
    LargeAnswer,
    decode_unless_large,
)
from aioproducer._core.protocol.admin import ListTransactionsResponse, TransactionState
from aioproducer._core.protocol.metadata import MetadataResponse, MetadataResponseTopic
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


STREAM = LENGTH.pack(4) + b"abcd" + LENGTH.pack(6) + b"efghij"
PAYLOADS = [b"abcd", b"efghij"]


def test_chunk_of_whole_frames_yields_all_of_them() -> None:
    reader = FrameReader(6)
    assert list(reader.feed(STREAM)) == PAYLOADS
    assert len(reader.begun) == 0


def test_frames_are_put_together_from_single_bytes() -> None:
    reader = FrameReader(6)
    assert [payload for byte in STREAM for payload in reader.feed(bytes([byte]))] == PAYLOADS


def test_incomplete_frame_is_kept_for_the_next_chunk() -> None:
    reader = FrameReader(6)
    assert list(reader.feed(STREAM[:-2])) == PAYLOADS[:1]
    assert len(reader.begun) == 8
    assert list(reader.feed(STREAM[-2:] + STREAM)) == [PAYLOADS[1], *PAYLOADS]
    assert len(reader.begun) == 0


def test_begun_payload_is_available_after_four_bytes() -> None:
    reader = FrameReader(6)
    seen = [(list(reader.feed(bytes([byte]))), reader.begun_payload)[1] for byte in STREAM[8:]]
    assert seen == [b""] * 7 + [b"efgh"] * 2 + [b""]


@for_each("length", [-(2**31), -1, 0, 3, 7, 2**31 - 1])
def test_impossible_length_is_refused_before_its_payload(length: int) -> None:
    with pytest.raises(ProtocolError, match=rf" {length} bytes long \(4 to 6 are possible\)"):
        list(FrameReader(6).feed(LENGTH.pack(length)))


@for_each(
    ("start", "likeness"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x28", "TLS alert: this port expects TLS"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS handshake"),
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP response: this is a web server's port"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH greeting"),
    ],
)
def test_length_error_names_other_protocols(start: bytes, likeness: str) -> None:
    with pytest.raises(ProtocolError, match=likeness):
        list(FrameReader(100 * 1024 * 1024).feed(start))


def test_payload_before_an_impossible_length_is_yielded_first() -> None:
    frames = iter(FrameReader(6).feed(STREAM + b"junk"))
    assert [next(frames), next(frames)] == PAYLOADS
    with pytest.raises(ProtocolError, match="it begins with b'junk'"):
        next(frames)


@pytest.mark.parametrize("size", [3, 7])
def test_whole_frame_of_an_impossible_length_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"cannot be {size} bytes long"):
        list(FrameReader(6).feed(LENGTH.pack(size) + bytes(size)))


def test_payload_that_looks_like_a_frame_is_one_payload() -> None:
    reader, payload = FrameReader(8), LENGTH.pack(4) + b"abcd"
    assert list(reader.feed(LENGTH.pack(8))) == []
    assert list(reader.feed(payload)) == [payload]


def test_length_error_of_unknown_bytes_shows_only_the_bytes() -> None:
    with pytest.raises(ProtocolError, match=r"it begins with b'junk'$"):
        list(FrameReader(6).feed(b"junk"))


def test_limit_of_the_expected_answer_counts_for_large_frames() -> None:
    reader = FrameReader(10**9, lambda: UNCHECKED_BYTES + 10)
    assert list(reader.feed(LENGTH.pack(UNCHECKED_BYTES + 10))) == []
    with pytest.raises(ProtocolError, match=r"cannot be 65547 bytes long \(4 to 65546 are possible\)"):
        list(FrameReader(10**9, lambda: UNCHECKED_BYTES + 10).feed(LENGTH.pack(UNCHECKED_BYTES + 11)))


def test_small_frames_are_not_compared_with_the_expected_answer() -> None:
    payload = bytes(UNCHECKED_BYTES)
    assert list(FrameReader(10**9, lambda: 0).feed(LENGTH.pack(len(payload)) + payload + b"\0")) == [payload]


def test_limit_counts_for_large_frames_in_one_chunk() -> None:
    length = UNCHECKED_BYTES + 1
    with pytest.raises(ProtocolError, match="cannot be 65537 bytes long"):
        list(FrameReader(10**9, lambda: UNCHECKED_BYTES).feed(LENGTH.pack(length) + bytes(length)))


def test_large_frames_in_one_chunk_are_reported() -> None:
    large: list[int] = []
    reader = FrameReader(10**9, on_large=lambda payload: large.append(len(payload)))
    for length in (UNCHECKED_BYTES, UNCHECKED_BYTES + 1):
        assert [*map(len, reader.feed(LENGTH.pack(length) + bytes(length)))] == [length]
    assert large == [UNCHECKED_BYTES + 1]


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
    kept, _ = decode_unless_large(MetadataResponse, version, large)
    assert isinstance(kept, LargeAnswer)
    assert kept.throttle_time_ms == 7, "the connection pauses for it"
    assert kept.decode() == decode_response(MetadataResponse, version, large)


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
