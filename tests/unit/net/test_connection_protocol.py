from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest

from aioproducer.errors import (
    ClusterAuthorizationFailed,
    ConnectionFailed,
    ProducerError,
    ProtocolError,
    UnsupportedVersion,
)
from aioproducer.net.address import Address
from aioproducer.net.connection_protocol import ConnectionProtocol, ConnectionState
from aioproducer.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aioproducer.protocol.frames import encode_response
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.protocol.sasl import SaslHandshakeRequest, SaslHandshakeResponse
from aioproducer.protocol.schema import Message
from tests.unit.net.scripted import ASK, OFFER, settings

NOW = 100.0
TIMEOUT_S = 20
GREETING = ApiVersionsResponse(error_code=0, api_keys=OFFER)
VERSION = InitProducerIdRequest.VERSIONS[1]

Feed = Callable[[bytes], list[bytes]]


def whole(data: bytes) -> list[bytes]:
    return [data]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def with_a_tail(data: bytes) -> list[bytes]:
    """Each piece ends within an answer, but for the last one."""
    return [data[:-3], data[-3:]]


every_way = pytest.mark.parametrize("feed", [whole, byte_by_byte, with_a_tail])


def made(**changes: Any) -> ConnectionProtocol:
    """Return one that has just been connected, with its greeting taken out."""
    connection = ConnectionProtocol(Address("b", 1), settings(request_timeout_s=TIMEOUT_S, **changes), 3, NOW)
    connection.connection_made(NOW)
    (greeting,) = connection.data_to_send()
    assert (greeting[5], greeting[7]) == (ApiVersionsRequest.API_KEY, ApiVersionsRequest.VERSIONS[1])
    return connection


def ready(**changes: Any) -> ConnectionProtocol:
    """Return one past its handshake; the next correlation id is 2."""
    connection = made(**changes)
    list(connection.receive_data(answer(1, GREETING, ApiVersionsRequest.VERSIONS[1]), NOW))
    assert connection.state is ConnectionState.READY
    connection.handle_timeout(NOW)  # nothing is in flight any more
    return connection


def answer(correlation_id: int, response: Message | None = None, version: int = VERSION) -> bytes:
    """Return *response*, or the answer to `ASK` with the correlation id as producer id."""
    if response is None:
        response = InitProducerIdResponse(producer_id=correlation_id, producer_epoch=0)
    return bytes(encode_response(response, version, correlation_id))


def call(connection: ConnectionProtocol, times: int = 1, *, now: float = NOW) -> None:
    for _ in range(times):
        connection.send(ASK, now, on_answer=lambda _: None)


def answers(connection: ConnectionProtocol, pieces: list[bytes], now: float = NOW) -> Iterator[int]:
    """Yield the producer id of each answer to `ASK` in *pieces*."""
    for piece in pieces:
        for _, message, _ in connection.receive_data(piece, now):
            if isinstance(message, InitProducerIdResponse):
                yield message.producer_id


def outcomes(connection: ConnectionProtocol, unwritten: int | None, cause: ProducerError) -> list[Any]:
    """Lose the connection; return whether each call is told that it may have been written."""
    lost = connection.connection_lost(cause, unwritten)
    assert all(error is cause or error.__cause__ is cause for _, error in lost)
    return [error.written for _, error in lost if isinstance(error, ConnectionFailed)]


# --- the handshake


@every_way
def test_the_handshake_comes_first(feed: Feed) -> None:
    connection = made()
    assert connection.is_exchanging
    with pytest.raises(ConnectionFailed, match=r"b:1 \(node 3\): the handshake is not over") as refused:
        call(connection)
    assert not refused.value.written
    assert list(answers(connection, feed(answer(1, GREETING, 4)))) == []
    assert connection.state is ConnectionState.READY
    assert not connection.is_exchanging
    assert connection.versions.pick(InitProducerIdRequest) == VERSION
    assert connection.data_to_send() == []


@every_way
def test_a_broker_that_is_too_old_for_the_question_is_asked_again(feed: Feed) -> None:
    connection = made()
    too_old = ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=[])
    list(answers(connection, feed(answer(1, too_old, 0))))
    assert connection.is_exchanging
    (again,) = connection.data_to_send()
    assert (again[5], again[7]) == (ApiVersionsRequest.API_KEY, 0)
    list(answers(connection, feed(answer(2, GREETING, 0))))
    assert connection.state is ConnectionState.READY


def test_a_broker_that_refuses_the_handshake_ends_it() -> None:
    connection = made()
    refused = ApiVersionsResponse(error_code=ClusterAuthorizationFailed.code, api_keys=[])
    with pytest.raises(ClusterAuthorizationFailed):
        list(connection.receive_data(answer(1, refused, 4), NOW))
    assert connection.state is ConnectionState.HANDSHAKE


def test_the_request_timeout_holds_in_the_handshake() -> None:
    connection = made()
    assert connection.next_timeout == NOW + TIMEOUT_S
    with pytest.raises(ConnectionFailed, match="no answer in 20 s to ApiVersions v4") as silent:
        connection.handle_timeout(NOW + TIMEOUT_S)
    assert isinstance(silent.value.__cause__, TimeoutError)


def test_a_connection_lost_in_the_handshake_settles_only_its_own_call() -> None:
    connection = made()
    ((own, error),) = connection.connection_lost(cause := ConnectionFailed("lost"), 0)
    assert (own.api, error) == ("ApiVersions", cause)
    own.on_answer(error)  # as any other: the shell need not know it
    assert connection.error is cause


def test_one_retired_in_its_handshake_never_takes_requests() -> None:
    connection = made()
    connection.retire()
    assert not connection.is_done
    list(connection.receive_data(answer(1, GREETING, 4), NOW))
    assert connection.is_done


# --- requests and answers


@every_way
def test_answers_come_in_the_order_of_the_calls_however_they_are_cut(feed: Feed) -> None:
    connection = ready()
    call(connection, 3)
    assert len(connection.data_to_send()) == 3
    assert connection.in_flight == 3
    assert list(answers(connection, feed(answer(2) + answer(3) + answer(4)))) == [2, 3, 4]
    assert connection.in_flight == 0


@every_way
def test_an_answer_that_is_not_awaited_is_skipped(feed: Feed) -> None:
    connection = ready()
    connection.send(ASK, NOW)
    call(connection)
    assert list(answers(connection, feed(answer(2) + answer(3)))) == [3]


def test_an_answer_is_there_before_the_chunk_is_taken_in_full() -> None:
    """Who is answered may send, and even close the connection, before the next answer is looked at."""
    connection = ready()
    call(connection, 2)
    received = answers(connection, [answer(2) + answer(3) + b"HTTP/1.1"])
    assert next(received) == 2
    call(connection)
    assert connection.in_flight == 2
    assert outcomes(connection, 0, ConnectionFailed("closed")) == [False, False]  # nothing was taken out
    assert list(received) == []


def test_nothing_is_received_after_the_end() -> None:
    connection = ready()
    call(connection)
    connection.connection_lost(None, 0)
    assert list(connection.receive_data(answer(2), NOW + 1)) == []
    assert connection.last_used == NOW


@every_way
def test_bytes_that_make_no_sense_raise_behind_the_answers_before_them(feed: Feed) -> None:
    connection = ready()
    call(connection, 2)
    got: list[int] = []
    with pytest.raises(ProtocolError, match=r"b:1 \(node 3\): an answer came with correlation id 9"):
        got.extend(answers(connection, feed(answer(2) + answer(9))))
    assert (got or [2], connection.in_flight) == ([2], 1)


@every_way
def test_bytes_that_nobody_asked_for_raise_before_they_are_a_frame(feed: Feed) -> None:
    connection = ready()
    call(connection)
    with pytest.raises(ProtocolError, match="bytes came that no request was waiting for"):
        list(answers(connection, feed(answer(2) + b"\x00\x00")))


def test_the_start_of_an_answer_tells_whose_it_is() -> None:
    """What may become a hundred megabytes of nonsense is not waited for."""
    connection = ready()
    call(connection)
    with pytest.raises(ProtocolError, match="correlation id 9"):
        list(answers(connection, [answer(9)[:8]]))


@pytest.mark.parametrize(("version", "silence_s"), [(0, 0), (1, 2.5), (VERSION, 2.5)])
def test_the_silence_that_a_broker_asks_for_begins_with_its_answer(version: int, silence_s: float) -> None:
    connection = ready()
    connection.send(ASK, NOW, on_answer=lambda _: None, version=version)
    throttled = InitProducerIdResponse(throttle_time_ms=2500, producer_epoch=0)
    list(connection.receive_data(answer(2, throttled, version), NOW + 1))
    assert connection.throttled_until == (NOW + 1 + silence_s if silence_s else 0)


def test_what_the_broker_does_not_know_is_not_sent() -> None:
    connection = made()
    nothing = ApiVersionsResponse(error_code=0, api_keys=[])
    list(connection.receive_data(answer(1, nothing, 4), NOW))
    with pytest.raises(UnsupportedVersion, match="InitProducerId"):
        call(connection)
    assert connection.data_to_send() == []
    assert connection.in_flight == 0


# --- time


def test_each_call_has_the_whole_request_timeout() -> None:
    connection = ready()
    assert connection.next_timeout == inf
    call(connection)
    call(connection, now=NOW + 5)
    connection.handle_timeout(NOW + TIMEOUT_S - 0.1)
    assert list(answers(connection, [answer(2)], NOW + 6)) == [2]
    connection.handle_timeout(connection.next_timeout)
    assert connection.next_timeout == NOW + 5 + TIMEOUT_S
    with pytest.raises(ConnectionFailed, match="no answer in 20 s to InitProducerId v4"):
        connection.handle_timeout(NOW + 5 + TIMEOUT_S)


def test_what_nobody_answers_has_no_timeout() -> None:
    connection = ready()
    connection.send(ASK, NOW)
    assert connection.next_timeout == inf


def test_sending_and_receiving_is_use() -> None:
    connection = ready()
    call(connection, now=NOW + 1)
    assert connection.last_used == NOW + 1
    list(connection.receive_data(answer(2)[:5], NOW + 2))
    assert connection.last_used == NOW + 2


# --- the end


def test_a_retired_connection_is_done_with_its_last_answer() -> None:
    connection = ready()
    call(connection)
    connection.retire()
    with pytest.raises(ConnectionFailed, match="the connection is closed"):
        call(connection)
    assert not connection.is_done
    assert list(answers(connection, [answer(2)])) == [2]
    assert connection.is_done
    assert connection.connection_lost(None, 0) == []
    connection.retire()
    assert connection.state is ConnectionState.CLOSED


def size(frames: list[bytearray]) -> int:
    return sum(map(len, frames))


def test_a_request_of_which_surely_no_byte_left_is_told_so() -> None:
    connection = ready()
    call(connection, 2)
    frames = connection.data_to_send()
    call(connection)
    cause = ConnectionFailed("lost")
    assert outcomes(connection, size(frames[1:]) - 1, cause) == [True, True, False]


def test_one_whose_first_byte_is_still_here_was_not_written() -> None:
    connection = ready()
    call(connection, 2)
    frames = connection.data_to_send()
    assert outcomes(connection, size(frames[1:]), ConnectionFailed("lost")) == [True, False]


def test_where_nobody_can_tell_what_was_handed_over_counts_as_written() -> None:
    connection = ready()
    call(connection, 2)
    connection.data_to_send()
    call(connection)  # it never got to the transport
    assert outcomes(connection, None, ConnectionFailed("lost")) == [True, True, False]


def test_a_call_of_a_connection_closed_on_purpose_is_told_by_whom() -> None:
    connection = ready()
    call(connection)
    connection.data_to_send()
    ((_, error),) = connection.connection_lost(None, 0)
    assert str(error) == "b:1 (node 3): closed by this side"
    assert connection.error is None
    with pytest.raises(ConnectionFailed, match="the connection is closed"):
        call(connection)


def test_nothing_is_left_after_the_end() -> None:
    connection = ready()
    call(connection)
    connection.connection_lost(None, 0)
    assert (connection.data_to_send(), connection.in_flight, connection.next_timeout) == ([], 0, inf)
    assert connection.connection_lost(None, 0) == []
    connection.handle_timeout(NOW + 1000)


# --- logins


def login(connection: ConnectionProtocol, answers: list[Any] | None = None) -> None:
    got = [] if answers is None else answers
    connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), NOW, got.append)


def logging_in() -> ConnectionProtocol:
    """Return one past its handshake, that waits for somebody to log in."""
    connection = ConnectionProtocol(
        Address("b", 1), settings(request_timeout_s=TIMEOUT_S), 3, NOW, logs_in=True
    )
    connection.connection_made(NOW)
    connection.data_to_send()
    list(connection.receive_data(answer(1, GREETING, ApiVersionsRequest.VERSIONS[1]), NOW))
    connection.handle_timeout(NOW)
    return connection


def keys(frames: list[bytearray]) -> list[int]:
    """Return which requests these are."""
    return [frame[5] for frame in frames]


LOGIN_KEY, ASK_KEY = SaslHandshakeRequest.API_KEY, InitProducerIdRequest.API_KEY
WELCOME = SaslHandshakeResponse(error_code=0, mechanisms=[])


@every_way
def test_before_the_login_only_the_login_may_ask(feed: Feed) -> None:
    connection = logging_in()
    assert (connection.state, connection.is_exchanging) == (ConnectionState.LOGIN, False)
    with pytest.raises(ConnectionFailed, match=r"b:1 \(node 3\): the login is not over") as refused:
        call(connection)
    assert not refused.value.written
    login(connection)
    assert keys(connection.data_to_send()) == [LOGIN_KEY]
    assert connection.next_timeout == NOW + TIMEOUT_S
    (got,) = [
        message
        for piece in feed(answer(2, WELCOME, 1))
        for _, message, _ in connection.receive_data(piece, NOW)
    ]
    assert got == WELCOME
    assert connection.state is ConnectionState.LOGIN
    connection.logged_in()
    call(connection)
    assert keys(connection.data_to_send()) == [ASK_KEY]


def test_a_login_comes_after_the_handshake() -> None:
    connection = made()
    with pytest.raises(ConnectionFailed, match="the handshake is not over"):
        login(connection)
    connection.connection_lost(None, 0)
    with pytest.raises(ConnectionFailed, match="the connection is closed"):
        login(connection)
    connection.logged_in()
    assert connection.is_closed


def test_one_retired_during_its_login_never_takes_requests() -> None:
    connection = logging_in()
    connection.retire()
    connection.logged_in()
    assert connection.state is ConnectionState.RETIRED


def test_a_silent_login_ends_with_the_request_timeout() -> None:
    connection = logging_in()
    login(connection)
    with pytest.raises(ConnectionFailed, match="no answer in 20 s to SaslHandshake v1"):
        connection.handle_timeout(NOW + TIMEOUT_S)


def test_what_is_held_back_goes_behind_the_login_in_its_order() -> None:
    connection = ready()
    call(connection)
    login(connection)
    connection.hold()
    got: list[Any] = []
    connection.send(ASK, NOW, on_answer=got.append, version=0)
    connection.send(ASK, NOW)  # which is not to be answered
    call(connection)
    login(connection)
    assert keys(connection.data_to_send()) == [ASK_KEY, LOGIN_KEY, LOGIN_KEY]
    assert connection.in_flight == 5
    connection.release(NOW + 3)
    frames = connection.data_to_send()
    assert keys(frames) == [ASK_KEY] * 3
    assert [frame[7] for frame in frames] == [0, VERSION, VERSION]
    assert connection.in_flight == 5
    stream = answer(2) + answer(3, WELCOME, 1) + answer(4, WELCOME, 1) + answer(5, version=0) + answer(7)
    assert list(answers(connection, [stream])) == [2, 5, 7]
    assert connection.in_flight == 0


def test_what_was_held_back_has_the_whole_request_timeout_from_then_on() -> None:
    connection = ready()
    connection.hold()
    call(connection)
    assert connection.next_timeout == inf
    connection.handle_timeout(NOW + 1000)
    connection.release(NOW + 15)
    assert connection.next_timeout == NOW + 15 + TIMEOUT_S


def test_nothing_is_held_back_any_more_after_the_release() -> None:
    connection = ready()
    connection.hold()
    connection.release(NOW)
    assert connection.data_to_send() == []
    call(connection)
    assert keys(connection.data_to_send()) == [ASK_KEY]
    connection.release(NOW)
    assert connection.data_to_send() == []


@pytest.mark.parametrize("unwritten", [None, 0])
def test_what_was_held_back_when_the_connection_is_lost_was_not_written(unwritten: int | None) -> None:
    connection = ready()
    call(connection)
    connection.data_to_send()
    connection.hold()
    call(connection)
    connection.send(ASK, NOW)
    assert outcomes(connection, unwritten, ConnectionFailed("lost")) == [True, False]
    connection.release(NOW)
    assert (connection.data_to_send(), connection.in_flight) == ([], 0)


def test_what_the_broker_does_not_know_is_not_held_back() -> None:
    connection = made()
    nothing = ApiVersionsResponse(error_code=0, api_keys=[])
    list(connection.receive_data(answer(1, nothing, 4), NOW))
    connection.hold()
    with pytest.raises(UnsupportedVersion, match="InitProducerId"):
        call(connection)
    with pytest.raises(UnsupportedVersion, match="SaslHandshake"):
        login(connection)
    assert connection.in_flight == 0


def test_a_retired_connection_still_sends_what_it_held_back() -> None:
    connection = ready()
    login(connection)
    connection.hold()
    call(connection)
    connection.retire()
    list(connection.receive_data(answer(2, WELCOME, 1), NOW))
    assert not connection.is_done
    connection.release(NOW)
    assert list(answers(connection, [answer(3)])) == [3]
    assert connection.is_done


def test_a_retired_connection_is_not_done_before_it_has_sent_what_nobody_answers() -> None:
    connection = ready()
    connection.hold()
    connection.send(ASK, NOW)
    connection.retire()
    assert (connection.in_flight, connection.is_done) == (0, False)
    connection.release(NOW)
    assert keys(connection.data_to_send()) == [ASK_KEY]
    assert connection.is_done


# --- what it says of itself


def test_a_new_one_has_been_used_when_it_was_opened_and_knows_no_versions() -> None:
    connection = ConnectionProtocol(Address("b", 1), settings(), 3, NOW)
    assert (connection.opened_at, connection.last_used) == (NOW, NOW)
    assert connection.versions.offered == {}


@pytest.mark.parametrize(
    ("node_id", "name"), [(-1, "b:1 (bootstrap)"), (0, "b:1 (node 0)"), (3, "b:1 (node 3)")]
)
def test_it_is_named_by_its_address_and_its_node(node_id: int, name: str) -> None:
    assert str(ConnectionProtocol(Address("b", 1), settings(), node_id, NOW)) == name


def test_requests_carry_the_client_id() -> None:
    connection = ready(client_id="somebody")
    call(connection)
    (frame,) = connection.data_to_send()
    assert b"\x00\x08somebody" in frame


def test_a_refusal_says_what_the_connection_was_closed_for() -> None:
    connection = ready()
    connection.connection_lost(lost := ConnectionFailed("lost"), 0)
    with pytest.raises(ConnectionFailed) as refused:
        call(connection)
    assert str(refused.value) == "b:1 (node 3): the connection is closed"
    assert refused.value.__cause__ is lost
    assert refused.value.written is False


def test_silence_is_a_timeout_of_the_option_by_that_name() -> None:
    connection = ready()
    call(connection)
    with pytest.raises(ConnectionFailed) as silent:
        connection.handle_timeout(NOW + TIMEOUT_S)
    assert str(silent.value.__cause__) == "request_timeout_ms"


def test_a_call_that_was_not_written_is_told_why() -> None:
    connection = ready()
    call(connection)
    ((_, error),) = connection.connection_lost(ConnectionFailed("lost"), 0)
    assert isinstance(error, ConnectionFailed)
    assert (str(error), error.written) == ("lost", False)


def test_the_story_of_one_that_gets_no_answer_to_its_greeting() -> None:
    assert made().story(NOW + 1.5) == (
        "after 1.5 s with 1 call in flight, before the handshake was over: does this listener want TLS or SASL?"
    )


def test_the_story_of_one_that_gets_an_answer_to_its_greeting_only() -> None:
    connection = ready()
    call(connection, 2)
    assert connection.story(NOW + 1.2345) == (
        "after 1.23 s with 2 calls in flight, before it answered anything but the handshake: does this listener want SASL?"
    )


def test_the_story_of_one_that_is_lost_within_an_answer() -> None:
    connection = ready()
    call(connection, 2)
    assert list(answers(connection, [answer(2) + answer(3)[:5]])) == [2]
    assert connection.story(NOW) == "after 0 s with 1 call in flight, 5 bytes into an answer"


def test_the_story_of_one_that_nobody_uses() -> None:
    assert ready().story(NOW + 3) == "after 3 s with 0 calls in flight"
