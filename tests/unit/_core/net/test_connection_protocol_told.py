from __future__ import annotations

import pytest

from aioproducer._core.address import Address
from aioproducer._core.net.connection_protocol import ConnectionProtocol
from aioproducer.errors import ConnectionFailed
from tests.unit._core.net.connection_protocol_rig import NOW, TIMEOUT_S, answer, answers, call, made, ready
from tests.unit._core.net.scripted import settings


def test_new_connection_counts_as_used_and_knows_no_versions() -> None:
    connection = ConnectionProtocol(Address("b", 1), settings(), 3, NOW)
    assert (connection.opened_at, connection.last_used) == (NOW, NOW)
    assert connection.versions.offered == {}


@pytest.mark.parametrize(
    ("node_id", "name"), [(-1, "b:1 (bootstrap)"), (0, "b:1 (node 0)"), (3, "b:1 (node 3)")]
)
def test_connection_is_named_by_its_address_and_node(node_id: int, name: str) -> None:
    assert str(ConnectionProtocol(Address("b", 1), settings(), node_id, NOW)) == name


def test_requests_carry_the_client_id() -> None:
    connection = ready(client_id="somebody")
    call(connection)
    (frame,) = connection.data_to_send()
    assert b"\x00\x08somebody" in frame


def test_rejected_call_has_the_error_of_the_connection_as_cause() -> None:
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


def test_unwritten_call_fails_with_the_error_of_the_connection() -> None:
    connection = ready()
    call(connection)
    ((_, error),) = connection.connection_lost(ConnectionFailed("lost"), 0)
    assert isinstance(error, ConnectionFailed)
    assert (str(error), error.written) == ("lost", False)


def test_progress_hints_at_tls_or_sasl_before_the_handshake() -> None:
    assert made().progress(NOW + 1.5) == (
        "after 1.5 s with 1 call in flight, before the handshake was over: does this listener require TLS or SASL?"
    )


def test_progress_hints_at_sasl_before_the_first_response() -> None:
    connection = ready()
    call(connection, 2)
    assert connection.progress(NOW + 1.2345) == (
        "after 1.23 s with 2 calls in flight, before any response but that of the handshake; the listener may require SASL: set security_protocol"
    )


def test_progress_counts_the_bytes_of_an_incomplete_response() -> None:
    connection = ready()
    call(connection, 2)
    assert list(answers(connection, [answer(2) + answer(3)[:5]])) == [2]
    assert connection.progress(NOW) == "after 0 s with 1 call in flight, 5 bytes into an answer"


def test_progress_counts_no_calls_when_idle() -> None:
    assert ready().progress(NOW + 3) == "after 3 s with 0 calls in flight"
