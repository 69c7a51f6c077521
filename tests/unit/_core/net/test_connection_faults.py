from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from aioproducer._core.metrics import NodeCounters
from aioproducer._core.net.connection import Connection
from aioproducer.errors import ConnectionFailed, ProducerError, ProtocolError
from tests.unit._core.net.connection_rig import Clock, Outcomes, connected, produce, shorten_request_timeout
from tests.unit._core.net.scripted import ASK, Peer, Received, ScriptedBroker

CORRELATION_ID_AT = 7
"""In a frame: the last byte of the correlation id."""

Misbehave = Callable[[Peer, Received], None]


# --- answers that make no sense


def wrong_correlation_id(peer: Peer, received: Received) -> None:
    answer = bytearray(received.answered_with_id(1))
    answer[CORRELATION_ID_AT] ^= 0xFF
    peer.send(bytes(answer))


def absurd_length(peer: Peer, received: Received) -> None:
    peer.send(b"\x7f\xff\xff\xff" + received.answered_with_id(1)[4:])


def negative_length(peer: Peer, received: Received) -> None:
    peer.send(b"\xff\xff\xff\xff" + received.answered_with_id(1)[4:])


def endless_nonsense(peer: Peer, received: Received) -> None:
    peer.send(b"\x05\xff\xff\xff" + b"\x2a" * 4)  # a length that could be, and not one byte more


def body_cut_short(peer: Peer, received: Received) -> None:
    answer = received.answered_with_id(1)
    peer.send((len(answer) - 6).to_bytes(4, "big") + answer[4:-2])


def body_too_long(peer: Peer, received: Received) -> None:
    answer = received.answered_with_id(1)
    peer.send((len(answer) - 2).to_bytes(4, "big") + answer[4:] + b"!!")


@pytest.mark.parametrize(
    ("misbehave", "complaint"),
    [
        (wrong_correlation_id, "unexpected response with correlation id"),
        (absurd_length, "2147483647 bytes long"),
        (negative_length, "-1 bytes long"),
        (endless_nonsense, "bytes long (4 to"),
        (body_cut_short, "InitProducerIdResponse v6"),
    ],
)
async def test_malformed_response_closes_the_connection(
    misbehave: Misbehave, complaint: str, broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    async with connected(broker) as (connection, peer):
        connection.call(ASK, outcomes.of("a"))
        connection.call(ASK, outcomes.of("b"))
        misbehave(peer, await peer.inbox.get())
        errors = await outcomes.errors("a", "b")
        assert [type(each) for each in errors] == [ProtocolError, ProtocolError]
        assert str(errors[0]).startswith(f"{connection}: ")
        assert complaint in str(errors[0])
        assert connection.closed
        await peer.gone.wait()


async def test_surplus_bytes_of_a_response_are_logged_once_per_node(
    broker: ScriptedBroker, outcomes: Outcomes, caplog: pytest.LogCaptureFixture
) -> None:
    counters = NodeCounters(0.0)
    for _ in range(2):  # connecting again is no reason to tell it again
        async with connected(broker, counters=counters) as (connection, peer):
            for call in "abc":
                connection.call(ASK, outcomes.of(call))
            body_too_long(peer, await peer.inbox.get())
            body_too_long(peer, await peer.inbox.get())
            peer.send((await peer.inbox.get()).answered_with_id(3))
            assert [each.producer_id for each in await outcomes.all_of("a", "b", "c")] == [1, 1, 3]
            assert not connection.closed
        outcomes.by_call.clear()
    (told,) = [each for each in caplog.records if each.message.startswith("connection.")]
    assert (told.levelno, told.message) == (
        logging.WARNING,
        f"connection.surplus node_id=3 address={broker.address} api=InitProducerId version=6 bytes=2",
    )
    assert counters.surplus_answers == 4


async def test_responses_to_acks_0_requests_are_skipped_in_any_pieces(
    broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    async with connected(broker) as (connection, peer):
        connection.write_only(ASK)
        unasked = (await peer.inbox.get()).answered_with_id(1)
        for piece in (unasked[:6], unasked[6:10], unasked[10:]):
            connection.feed_data(piece)
        connection.write_only(ASK)
        connection.call(ASK, outcomes.of("a"))
        unasked, asked = [(await peer.inbox.get()).answered_with_id(each) for each in (2, 3)]
        peer.send(unasked + asked)
        assert [each.producer_id for each in await outcomes.all_of("a")] == [3]
        assert not connection.closed


@pytest.mark.parametrize("twice", [True, False])
async def test_unexpected_bytes_close_after_the_responses_before_them(
    twice: bool, broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    async with connected(broker) as (connection, peer):
        connection.call(ASK, outcomes.of("a"))
        answer = (await peer.inbox.get()).answered_with_id(7)
        peer.send(answer + (answer if twice else b"\x00\x00"))
        (settled,) = await outcomes.all_of("a")
        assert settled.producer_id == 7
        await connection.wait_closed()
        assert isinstance(connection.error, ProtocolError)
        assert "no request is in flight" in str(connection.error)


# --- the other ways to die


def close_cleanly(peer: Peer, received: Received) -> None:
    peer.close()


def close_within_an_answer(peer: Peer, received: Received) -> None:
    peer.send(received.answered_with_id(1)[:-1])
    peer.close()


def reset(peer: Peer, received: Received) -> None:
    peer.reset()


async def test_error_names_one_call_in_flight_in_the_singular(
    broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    async with connected(broker) as (connection, peer):
        connection.call(ASK, outcomes.of("a"))
        await peer.inbox.get()
        peer.close()
        with pytest.raises(ConnectionFailed, match=r"with 1 call in flight, before any response"):
            raise (await outcomes.errors("a"))[0]
        await connection.wait_closed()


@pytest.mark.parametrize(
    ("die", "story"),
    [
        (close_cleanly, r"closed by the broker after \S+ s with 2 calls in flight$"),
        (close_within_an_answer, r"with 2 calls in flight, 35 bytes into an answer$"),
        (reset, r"lost after \S+ s with 2 calls in flight: .*reset"),
    ],
)
async def test_lost_connection_fails_its_calls_in_flight(
    die: Misbehave, story: str, broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    told: list[tuple[Connection, ProducerError | None, int]] = []
    async with connected(broker) as (connection, peer):
        connection.on_closed = lambda closed, error: told.append((closed, error, len(outcomes.by_call)))
        connection.call(ASK, outcomes.of("before"))
        peer.send((await peer.inbox.get()).answered_with_id(7))
        await outcomes.all_of("before")
        connection.call(ASK, outcomes.of("a"))
        connection.call(ASK, outcomes.of("b"))
        first, _ = await peer.inbox.get(), await peer.inbox.get()
        die(peer, first)
        with pytest.raises(ConnectionFailed, match=story) as failed:
            raise (await outcomes.errors("a", "b"))[0]
        assert failed.value.written
        assert told == [(connection, failed.value, 3)]
        await connection.wait_closed()


async def test_close_after_the_first_request_hints_at_sasl(
    broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    """Such a listener answers ApiVersions for every client, and other requests only after a login."""
    async with connected(broker) as (connection, peer):
        connection.call(ASK, outcomes.of("a"))
        peer.close()
        (error,) = await outcomes.errors("a")
        assert "the listener may require SASL" in str(error)


async def test_request_timeout_closes_the_connection(broker: ScriptedBroker, outcomes: Outcomes) -> None:
    async with connected(broker) as (connection, peer):
        shorten_request_timeout(connection)
        connection.call(ASK, outcomes.of("a"))
        connection.call(ASK, outcomes.of("b"))
        errors = await outcomes.errors("a", "b")
        assert str(errors[0]) == f"{connection}: no answer in 0.02 s to InitProducerId v6"
        assert isinstance(errors[0].__cause__, TimeoutError)  # tells it from a connection that was lost
        assert isinstance(errors[0], ConnectionFailed)
        assert errors[0].written
        await peer.gone.wait()


async def test_call_has_the_whole_request_timeout(
    broker: ScriptedBroker, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer is set for the first call; when it goes off, the second has time left."""
    async with connected(broker, request_timeout_s=30) as (connection, peer):
        clock = Clock.of(connection, monkeypatch)
        connection.call(ASK, outcomes.of("first"))
        clock.advance(20)
        connection.call(ASK, outcomes.of("second"))
        peer.send((await peer.inbox.get()).answered_with_id(1))
        await outcomes.all_of("first")
        clock.advance(10)
        assert connection.in_flight == 1
        clock.advance(19)
        assert connection.in_flight == 1
        clock.advance(1)
        assert "no answer in 30 s" in str(outcomes.by_call["second"])


async def test_idle_connection_does_not_time_out(
    broker: ScriptedBroker, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(broker, request_timeout_s=30) as (connection, peer):
        clock = Clock.of(connection, monkeypatch)
        connection.call(ASK, outcomes.of("a"))
        peer.send((await peer.inbox.get()).answered_with_id(1))
        await outcomes.all_of("a")
        clock.advance(100)
        assert clock.timers == []
        assert not connection.closed
        connection.call(ASK, outcomes.of("b"))
        clock.advance(30)
        await outcomes.errors("b")


async def test_request_that_never_left_is_unwritten_after_a_timeout(
    broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    async with connected(broker, send_buffer_bytes=4096) as (connection, peer):
        shorten_request_timeout(connection)
        peer.freeze()
        connection.call(produce(8_000_000), outcomes.of("partly written"))
        connection.call(produce(1), outcomes.of("kept back"))
        partly, kept = await outcomes.errors("partly written", "kept back")
        assert isinstance(partly, ConnectionFailed)
        assert partly.written
        assert isinstance(kept, ConnectionFailed)
        assert not kept.written
        assert kept.__cause__ is partly


async def test_request_that_never_left_is_unwritten_after_garbage(
    broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    async with connected(broker, send_buffer_bytes=4096) as (connection, peer):
        peer.freeze()
        connection.call(produce(8_000_000), outcomes.of("partly written"))
        connection.call(produce(1), outcomes.of("kept back"))
        peer.send(b"junk")
        partly, kept = await outcomes.errors("partly written", "kept back")
        assert isinstance(partly, ProtocolError)
        assert isinstance(kept, ConnectionFailed)
        assert not kept.written


async def test_request_counts_as_written_when_tls_hides_the_buffer(
    broker: ScriptedBroker, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(broker, send_buffer_bytes=4096) as (connection, peer):
        peer.freeze()
        connection.call(produce(8_000_000), outcomes.of("partly written"))
        connection.call(produce(1), outcomes.of("kept back"))
        monkeypatch.setattr(connection._transport, "get_extra_info", {"ssl_object": object()}.get)
        connection.close(ConnectionFailed("enough"))
        partly, kept = await outcomes.errors("partly written", "kept back")
        assert isinstance(kept, ConnectionFailed)
        assert kept is partly
        assert kept.written


# --- our own mistakes


async def test_response_handler_that_raises_closes_the_connection(
    broker: ScriptedBroker, outcomes: Outcomes, caplog: pytest.LogCaptureFixture
) -> None:
    def stumble(outcome: Any) -> None:
        raise LookupError("oops")

    async with connected(broker) as (connection, peer):
        connection.call(ASK, stumble)
        connection.call(ASK, stumble)  # called again at the close, and raises again: logged only
        connection.call(ASK, outcomes.of("c"))
        peer.send((await peer.inbox.get()).answered_with_id(1))
        (error,) = await outcomes.errors("c")
        assert "LookupError('oops')" in str(error)
        logged = [each for each in caplog.records if each.message.startswith("connection.handler_failed")]
        assert len(logged) == 1
        assert logged[0].exc_info
        await connection.wait_closed()


async def test_decoder_that_raises_closes_the_connection(
    broker: ScriptedBroker, outcomes: Outcomes, caplog: pytest.LogCaptureFixture
) -> None:
    def stumble(*_: Any) -> tuple[int, Any]:
        raise LookupError("oops")

    async with connected(broker) as (connection, peer):
        connection.call(ASK, outcomes.of("a"), decode=stumble)
        peer.send((await peer.inbox.get()).answered_with_id(1))
        (error,) = await outcomes.errors("a")
        assert isinstance(error, ConnectionFailed)
        assert isinstance(error.__cause__, LookupError)
        (logged,) = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert logged.message.startswith("connection.bug ")
