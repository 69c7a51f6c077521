from __future__ import annotations

from math import inf
from typing import Any

import pytest

from aioproducer._core.net.connection_protocol import ConnectionProtocol, ConnectionState
from aioproducer._core.net.handshake import NODE_CHECK
from aioproducer._core.protocol.client import (
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from aioproducer._core.protocol.metadata import ApiVersion, ApiVersionsResponse
from aioproducer._core.protocol.produce import InitProducerIdRequest
from aioproducer.errors import (
    ConnectionFailed,
    ProtocolError,
    UnsupportedVersion,
)
from tests.unit._core.net.connection_protocol_rig import (
    NOW,
    TIMEOUT_S,
    VERSION,
    Feed,
    answer,
    answers,
    call,
    every_way,
    logging_in,
    made,
    outcomes,
    ready,
)
from tests.unit._core.net.scripted import ASK

# --- logins


def login(connection: ConnectionProtocol, answers: list[Any] | None = None) -> None:
    got = [] if answers is None else answers
    connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), NOW, got.append)


def keys(frames: list[bytearray]) -> list[int]:
    """Return which requests these are."""
    return [frame[5] for frame in frames]


LOGIN_KEY, ASK_KEY = SaslHandshakeRequest.API_KEY, InitProducerIdRequest.API_KEY
WELCOME = SaslHandshakeResponse(error_code=0, mechanisms=[])


@every_way
def test_connection_accepts_only_login_requests_before_the_login(feed: Feed) -> None:
    connection = logging_in()
    assert (connection.state, connection.is_exchanging) == (ConnectionState.AUTHENTICATION, False)
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
    assert connection.state is ConnectionState.AUTHENTICATION
    connection.authenticated()
    call(connection)
    assert keys(connection.data_to_send()) == [ASK_KEY]


def test_token_has_a_header_after_the_present_handshake() -> None:
    connection = logging_in()
    login(connection)
    connection.ask(SaslAuthenticateRequest(auth_bytes=b"token"), NOW, lambda _: None)
    assert keys(connection.data_to_send()) == [LOGIN_KEY, SaslAuthenticateRequest.API_KEY]


def test_login_is_rejected_before_the_handshake_and_when_closed() -> None:
    connection = made()
    with pytest.raises(ConnectionFailed, match="the handshake is not over"):
        login(connection)
    connection.connection_lost(None, 0)
    with pytest.raises(ConnectionFailed, match="the connection is closed"):
        login(connection)
    connection.authenticated()
    assert connection.is_closed


def test_connection_retired_during_its_login_takes_no_requests() -> None:
    connection = logging_in()
    connection.retire()
    connection.authenticated()
    assert connection.state is ConnectionState.RETIRED


def test_login_has_the_request_timeout() -> None:
    connection = logging_in()
    login(connection)
    with pytest.raises(ConnectionFailed, match="no answer in 20 s to SaslHandshake v1"):
        connection.handle_timeout(NOW + TIMEOUT_S)


def test_held_requests_follow_the_login_in_their_order() -> None:
    connection = ready()
    call(connection)
    login(connection)
    connection.pause_requests()
    got: list[Any] = []
    connection.send(ASK, NOW, on_answer=got.append, version=0)
    connection.send(ASK, NOW)  # which is not to be answered
    call(connection)
    login(connection)
    assert keys(connection.data_to_send()) == [ASK_KEY, LOGIN_KEY, LOGIN_KEY]
    assert connection.in_flight == 5
    connection.resume_requests(NOW + 3)
    frames = connection.data_to_send()
    assert keys(frames) == [ASK_KEY] * 3
    assert [frame[7] for frame in frames] == [0, VERSION, VERSION]
    assert connection.in_flight == 5
    stream = answer(2) + answer(3, WELCOME, 1) + answer(4, WELCOME, 1) + answer(5, version=0) + answer(7)
    assert list(answers(connection, [stream])) == [2, 5, 7]
    assert connection.in_flight == 0


def test_held_requests_have_the_whole_timeout_after_resume() -> None:
    connection = ready()
    connection.pause_requests()
    call(connection)
    assert connection.next_timeout == inf
    connection.handle_timeout(NOW + 1000)
    connection.resume_requests(NOW + 15)
    assert connection.next_timeout == NOW + 15 + TIMEOUT_S


def test_resume_ends_the_holding_of_requests() -> None:
    connection = ready()
    connection.pause_requests()
    connection.resume_requests(NOW)
    assert connection.data_to_send() == []
    call(connection)
    assert keys(connection.data_to_send()) == [ASK_KEY]
    connection.resume_requests(NOW)
    assert connection.data_to_send() == []


@pytest.mark.parametrize("unwritten", [None, 0])
def test_held_requests_fail_as_unwritten_when_lost(unwritten: int | None) -> None:
    connection = ready()
    call(connection)
    connection.data_to_send()
    connection.pause_requests()
    call(connection)
    connection.send(ASK, NOW)
    assert outcomes(connection, unwritten, ConnectionFailed("lost")) == [True, False]
    connection.resume_requests(NOW)
    assert (connection.data_to_send(), connection.in_flight) == ([], 0)


def test_unsupported_request_is_not_held_back() -> None:
    connection = made()
    nothing = ApiVersionsResponse(error_code=0, api_keys=[])
    list(connection.receive_data(answer(1, nothing, 4), NOW))
    connection.pause_requests()
    with pytest.raises(UnsupportedVersion, match="InitProducerId"):
        call(connection)
    with pytest.raises(UnsupportedVersion, match="SaslHandshake"):
        login(connection)
    assert connection.in_flight == 0


def test_held_request_with_a_missing_field_fails_alone() -> None:
    connection = ready()
    connection.pause_requests()
    again = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=0, producer_id=5, producer_epoch=1
    )
    with pytest.raises(UnsupportedVersion, match="producer_id"):
        connection.send(again, NOW, on_answer=lambda _: None, version=2)
    call(connection)
    connection.resume_requests(NOW)
    assert keys(connection.data_to_send()) == [ASK_KEY]


def test_retired_connection_sends_its_held_requests() -> None:
    connection = ready()
    login(connection)
    connection.pause_requests()
    call(connection)
    connection.retire()
    list(connection.receive_data(answer(2, WELCOME, 1), NOW))
    assert not connection.is_done
    connection.resume_requests(NOW)
    assert list(answers(connection, [answer(3)])) == [3]
    assert connection.is_done


def test_retired_connection_is_done_after_acks_0_requests() -> None:
    connection = ready()
    connection.pause_requests()
    connection.send(ASK, NOW)
    connection.retire()
    assert (connection.in_flight, connection.is_done) == (0, False)
    assert not connection.is_one_way
    connection.resume_requests(NOW)
    assert keys(connection.data_to_send()) == [ASK_KEY]
    assert connection.is_one_way
    assert connection.is_done


def test_login_does_not_count_as_use_of_the_connection() -> None:
    connection = ready()
    used = connection.last_used
    connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), NOW + 1, lambda _: None)
    list(connection.receive_data(answer(2, WELCOME, 1), NOW + 2))
    assert connection.last_used == used
    call(connection, now=NOW + 3)
    assert connection.last_used == NOW + 3


def test_responses_count_as_use_once_the_logins_are_answered() -> None:
    connection = ready()
    used = connection.last_used
    login(connection)
    login(connection)
    for correlation_id in (2, 3):
        for each, message, _ in connection.receive_data(answer(correlation_id, WELCOME, 1), NOW + 1):
            each.on_answer(message)
        assert connection.last_used == used
    call(connection, now=NOW + 2)
    list(connection.receive_data(answer(4), NOW + 3))
    assert connection.last_used == NOW + 3


def test_response_during_a_login_counts_as_use() -> None:
    connection = ready()
    call(connection, now=NOW + 1)
    connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), NOW + 2, lambda _: None)
    list(connection.receive_data(answer(2), NOW + 3))
    assert connection.last_used == NOW + 3
    list(connection.receive_data(answer(3, WELCOME, 1), NOW + 4))
    assert connection.last_used == NOW + 3


class TestTokensWithoutHeaders:
    """SaslHandshake v0 (KIP-43)."""

    @staticmethod
    def logging_in() -> ConnectionProtocol:
        """Return a connection to a broker of Kafka 0.11, without SaslAuthenticate."""
        connection = made(has_sasl=True)
        keys = [(0, 0, 3), (22, 0, 1), (17, 0, 0)]
        offer = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in keys]
        greeting = ApiVersionsResponse(error_code=0, api_keys=offer)
        list(connection.receive_data(answer(1, greeting, NODE_CHECK - 1), NOW))
        return connection

    @every_way
    def test_tokens_are_sent_and_received_as_they_are(self, feed: Feed) -> None:
        connection = self.logging_in()
        got: list[Any] = []
        login(connection, got)
        for token in b"first", b"second":  # both behind the handshake, as for SCRAM
            connection.ask(SaslAuthenticateRequest(auth_bytes=token), NOW, got.append)
        handshake, *tokens = connection.data_to_send()
        assert (handshake[5], handshake[7]) == (LOGIN_KEY, 0)
        assert tokens == [b"\0\0\0\x05first", b"\0\0\0\x06second"]
        received = answer(2, WELCOME, 0) + b"\0\0\0\x05proof" + b"\0\0\0\0"
        answered = [
            message for piece in feed(received) for _, message, _ in connection.receive_data(piece, NOW)
        ]
        assert [getattr(each, "auth_bytes", None) for each in answered] == [None, b"proof", b""]
        assert [each.error_code for each in answered] == [0, 0, 0]
        connection.authenticated()
        call(connection)
        (asked,) = connection.data_to_send()
        assert asked[5] == ASK_KEY
        assert list(answers(connection, feed(answer(5, version=1)))) == [5]

    def test_requests_follow_a_token_without_an_answer(self) -> None:
        connection = self.logging_in()
        login(connection)
        list(connection.receive_data(answer(2, WELCOME, 0), NOW))
        got: list[Any] = []
        connection.ask(SaslAuthenticateRequest(auth_bytes=b"last"), NOW, got.append)
        connection.authenticated()
        assert connection.in_flight == 0
        call(connection)
        assert list(answers(connection, [answer(4, version=1)], NOW + 1)) == [4]
        assert connection.last_used == NOW + 1
        assert not got

    def test_token_in_flight_fails_with_its_connection(self) -> None:
        lost = self.logging_in()
        login(lost)
        lost.ask(SaslAuthenticateRequest(auth_bytes=b"first"), NOW, lambda _: None)
        assert lost.progress(NOW) == (
            "after 0 s with 2 calls in flight, during the login;"
            " brokers before Kafka 1.0 close the connection after wrong credentials"
        )
        _ = lost.data_to_send()
        # of the last 9 bytes, none has left: they are the token and its length
        assert [error.written for _, error in lost.connection_lost(None, 9)] == [True, False]  # type: ignore[attr-defined]

    def test_impossible_length_ends_the_login(self) -> None:
        connection = self.logging_in()
        login(connection)
        list(connection.receive_data(answer(2, WELCOME, 0), NOW))
        connection.ask(SaslAuthenticateRequest(auth_bytes=b"first"), NOW, lambda _: None)
        with pytest.raises(ProtocolError, match="cannot be -1 bytes"):
            list(connection.receive_data(b"\xff\xff\xff\xff", NOW))
