from __future__ import annotations

from math import inf

import pytest

from aioproducer._core.address import Address
from aioproducer._core.net.connection_protocol import ConnectionProtocol, ConnectionState
from aioproducer._core.net.handshake import NODE_CHECK, ExpectedNode
from aioproducer._core.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from aioproducer._core.protocol.produce import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.errors import (
    ClusterAuthorizationFailed,
    ConnectionFailed,
    ProtocolError,
    UnsupportedVersion,
)
from tests.cases import for_each
from tests.unit._core.net.connection_protocol_rig import (
    GREETING,
    NOW,
    TIMEOUT_S,
    VERSION,
    Feed,
    answer,
    answers,
    call,
    every_way,
    made,
    outcomes,
    ready,
)
from tests.unit._core.net.scripted import ASK, settings

# --- the handshake


@every_way
def test_handshake_precedes_requests(feed: Feed) -> None:
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


def test_handshake_checks_the_expected_node() -> None:
    expected = ExpectedNode("cluster", 3)
    connection = ConnectionProtocol(Address("b", 1), settings(), 3, NOW, expected=expected)
    connection.connection_made(NOW)
    (greeting,) = connection.data_to_send()
    assert greeting[7] == NODE_CHECK
    assert b"cluster" in greeting


@every_way
def test_handshake_is_retried_in_version_0_for_an_old_broker(feed: Feed) -> None:
    connection = made()
    too_old = ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=[])
    list(answers(connection, feed(answer(1, too_old, 0))))
    assert connection.is_exchanging
    (again,) = connection.data_to_send()
    assert (again[5], again[7]) == (ApiVersionsRequest.API_KEY, 0)
    list(answers(connection, feed(answer(2, GREETING, 0))))
    assert connection.state is ConnectionState.READY


def test_refused_handshake_raises_the_error_of_the_broker() -> None:
    connection = made()
    refused = ApiVersionsResponse(error_code=ClusterAuthorizationFailed.code, api_keys=[])
    with pytest.raises(ClusterAuthorizationFailed):
        list(connection.receive_data(answer(1, refused, 4), NOW))
    assert connection.state is ConnectionState.HANDSHAKE


def test_handshake_has_the_request_timeout() -> None:
    connection = made()
    assert connection.next_timeout == NOW + TIMEOUT_S
    with pytest.raises(ConnectionFailed, match="no answer in 20 s to ApiVersions v4") as silent:
        connection.handle_timeout(NOW + TIMEOUT_S)
    assert isinstance(silent.value.__cause__, TimeoutError)


def test_connection_lost_in_the_handshake_settles_one_call() -> None:
    connection = made()
    ((own, error),) = connection.connection_lost(cause := ConnectionFailed("lost"), 0)
    assert (own.api, error) == ("ApiVersions", cause)
    own.on_answer(error)  # as any other: the shell need not know it
    assert connection.error is cause


def test_connection_retired_in_its_handshake_is_done_after_it() -> None:
    connection = made()
    connection.retire()
    assert not connection.is_done
    list(connection.receive_data(answer(1, GREETING, 4), NOW))
    assert connection.is_done


# --- requests and answers


@every_way
def test_responses_arrive_in_the_order_of_the_calls(feed: Feed) -> None:
    connection = ready()
    call(connection, 3)
    assert len(connection.data_to_send()) == 3
    assert connection.in_flight == 3
    assert list(answers(connection, feed(answer(2) + answer(3) + answer(4)))) == [2, 3, 4]
    assert connection.in_flight == 0


@every_way
def test_response_that_no_call_awaits_is_skipped(feed: Feed) -> None:
    connection = ready()
    connection.send(ASK, NOW)
    call(connection)
    assert list(answers(connection, feed(answer(2) + answer(3)))) == [3]


def test_response_is_delivered_before_the_whole_chunk_is_parsed() -> None:
    """A response handler may send, and even close the connection, before the next response is parsed."""
    connection = ready()
    call(connection, 2)
    received = answers(connection, [answer(2) + answer(3) + b"HTTP/1.1"])
    assert next(received) == 2
    call(connection)
    assert connection.in_flight == 2
    assert outcomes(connection, 0, ConnectionFailed("closed")) == [False, False]  # nothing was taken out
    assert list(received) == []


def test_receive_data_is_ignored_after_the_connection_is_lost() -> None:
    connection = ready()
    call(connection)
    connection.connection_lost(None, 0)
    assert list(connection.receive_data(answer(2), NOW + 1)) == []
    assert connection.last_used == NOW


@every_way
def test_malformed_bytes_raise_after_the_responses_before_them(feed: Feed) -> None:
    connection = ready()
    call(connection, 2)
    got: list[int] = []
    with pytest.raises(ProtocolError, match=r"b:1 \(node 3\): unexpected response with correlation id 9"):
        got.extend(answers(connection, feed(answer(2) + answer(9))))
    assert (got or [2], connection.in_flight) == ([2], 1)


@every_way
def test_unexpected_bytes_raise_before_they_form_a_frame(feed: Feed) -> None:
    connection = ready()
    call(connection)
    with pytest.raises(ProtocolError, match="bytes: no request is in flight"):
        list(answers(connection, feed(answer(2) + b"\x00\x00")))


def test_correlation_id_is_checked_before_the_frame_is_complete() -> None:
    """The connection does not wait for up to 100 MB of garbage."""
    connection = ready()
    call(connection)
    with pytest.raises(ProtocolError, match="correlation id 9"):
        list(answers(connection, [answer(9)[:8]]))


@pytest.mark.parametrize(("version", "silence_s"), [(0, 0), (1, 2.5), (VERSION, 2.5)])
def test_throttle_begins_with_the_response(version: int, silence_s: float) -> None:
    connection = ready()
    connection.send(ASK, NOW, on_answer=lambda _: None, version=version)
    throttled = InitProducerIdResponse(throttle_time_ms=2500, producer_id=0, producer_epoch=0)
    list(connection.receive_data(answer(2, throttled, version), NOW + 1))
    assert connection.throttled_until == (NOW + 1 + silence_s if silence_s else 0)


def throttle(connection: ConnectionProtocol, ms: int, now: float, correlation_id: int = 2) -> None:
    """Answer the oldest call, and name a throttle of *ms*."""
    response = InitProducerIdResponse(throttle_time_ms=ms, producer_id=0, producer_epoch=0)
    list(connection.receive_data(answer(correlation_id, response), now))


@pytest.mark.parametrize("ms", [5_000, 30_000, 90_000])
def test_request_timeout_begins_again_when_a_throttle_ends(ms: int) -> None:
    connection = ready(throttle_max_s=120.0)
    call(connection, 2)
    throttle(connection, ms, NOW + 19)
    due_at = NOW + 19 + ms / 1000 + TIMEOUT_S
    for time in (NOW + TIMEOUT_S, NOW + 19 + ms / 1000, due_at - 0.1):
        connection.handle_timeout(time)
    assert connection.next_timeout == due_at
    with pytest.raises(ConnectionFailed, match="no answer in 20 s"):
        connection.handle_timeout(due_at)


def test_request_after_a_throttle_has_the_request_timeout() -> None:
    connection = ready()
    call(connection)
    throttle(connection, 5_000, NOW)
    call(connection, now=NOW + 6)
    connection.handle_timeout(NOW + 6 + TIMEOUT_S - 0.1)
    with pytest.raises(ConnectionFailed):
        connection.handle_timeout(NOW + 6 + TIMEOUT_S)


def test_throttled_connection_without_requests_has_no_timeout() -> None:
    connection = ready()
    call(connection)
    throttle(connection, 5_000, NOW)
    connection.handle_timeout(NOW + TIMEOUT_S)
    assert connection.next_timeout == inf


@for_each(("ms", "until_s"), [(2**31 - 1, 120.0), (120_001, 120.0), (-1, 0), (-(2**31), 0)])
def test_throttle_of_absurd_length_is_limited(ms: int, until_s: float) -> None:
    connection = ready(throttle_max_s=120.0)
    call(connection)
    throttle(connection, ms, NOW)
    assert max(connection.throttled_until, NOW) == NOW + until_s


def test_unsupported_request_is_not_sent() -> None:
    connection = made()
    nothing = ApiVersionsResponse(error_code=0, api_keys=[])
    list(connection.receive_data(answer(1, nothing, 4), NOW))
    with pytest.raises(UnsupportedVersion, match="InitProducerId"):
        call(connection)
    assert connection.data_to_send() == []
    assert connection.in_flight == 0


def test_connection_is_one_way_after_a_request_without_response() -> None:
    connection = ready()
    call(connection)
    assert connection.is_one_way is False
    connection.send(ASK, NOW)
    assert connection.is_one_way is True


# --- time


def test_call_has_the_whole_request_timeout() -> None:
    connection = ready()
    assert connection.next_timeout == inf
    call(connection)
    call(connection, now=NOW + 5)
    connection.handle_timeout(NOW + TIMEOUT_S - 0.1)
    assert list(answers(connection, [answer(2)], NOW + 6)) == [2]
    connection.handle_timeout(connection.next_timeout)
    assert connection.next_timeout == NOW + 5 + TIMEOUT_S
    with pytest.raises(ConnectionFailed, match="no answer in 20 s to InitProducerId v6"):
        connection.handle_timeout(NOW + 5 + TIMEOUT_S)


def test_request_without_response_has_no_timeout() -> None:
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


def test_retired_connection_is_done_with_its_last_response() -> None:
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


@for_each(("calls", "unanswered"), [(1, "1 request is"), (2, "2 requests are")])
def test_retired_connection_times_out_with_calls_in_flight(calls: int, unanswered: str) -> None:
    connection = ready()
    call(connection, calls)
    connection.retire(NOW + 5)
    assert connection.next_timeout == NOW + 5
    connection.handle_timeout(NOW + 4)
    with pytest.raises(ConnectionFailed) as retired:
        connection.handle_timeout(NOW + 5)
    assert str(retired.value) == f"b:1 (node 3): retired, and {unanswered} unanswered"
    assert isinstance(retired.value.__cause__, TimeoutError)


def size(frames: list[bytearray]) -> int:
    return sum(map(len, frames))


def test_request_that_never_left_fails_as_unwritten() -> None:
    connection = ready()
    call(connection, 2)
    frames = connection.data_to_send()
    call(connection)
    cause = ConnectionFailed("lost")
    assert outcomes(connection, size(frames[1:]) - 1, cause) == [True, True, False]


def test_request_counts_as_unwritten_when_no_byte_of_it_left() -> None:
    connection = ready()
    call(connection, 2)
    frames = connection.data_to_send()
    assert outcomes(connection, size(frames[1:]), ConnectionFailed("lost")) == [True, False]


def test_requests_count_as_written_if_the_buffer_is_unknown() -> None:
    connection = ready()
    call(connection, 2)
    connection.data_to_send()
    call(connection)  # it never got to the transport
    assert outcomes(connection, None, ConnectionFailed("lost")) == [True, True, False]


def test_call_fails_with_closed_by_this_side_after_a_close() -> None:
    connection = ready()
    call(connection)
    connection.data_to_send()
    ((_, error),) = connection.connection_lost(None, 0)
    assert str(error) == "b:1 (node 3): closed by this side"
    assert connection.error is None
    with pytest.raises(ConnectionFailed, match="the connection is closed"):
        call(connection)


def test_lost_connection_has_no_data_calls_or_timeout() -> None:
    connection = ready()
    call(connection)
    connection.connection_lost(None, 0)
    assert (connection.data_to_send(), connection.in_flight, connection.next_timeout) == ([], 0, inf)
    assert connection.connection_lost(None, 0) == []
    connection.handle_timeout(NOW + 1000)
