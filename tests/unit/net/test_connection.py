from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from aioproducer.errors import (
    ClusterAuthorizationFailed,
    ConnectionFailed,
    ProducerError,
    ProtocolError,
    UnsupportedVersion,
)
from aioproducer.net import connection as connection_module
from aioproducer.net.connection import Connection
from aioproducer.net.dial import Address, MakeProtocol, dial
from aioproducer.protocol.api_versions import ApiVersion, ApiVersionsResponse
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.protocol.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.unit.net.scripted import ASK, OFFER, Peer, Received, ScriptedBroker, hang_up, settings, stay_silent

SHORT_S = 0.02
CORRELATION_ID_AT = 7
"""In a frame: the last byte of the correlation id."""

Misbehave = Callable[[Peer, Received], None]


class Outcomes:
    """What the calls of a test were told: pass `outcomes.of("name")` as `on_answer`."""

    def __init__(self) -> None:
        self.by_call: dict[str, InitProducerIdResponse | ProducerError] = {}
        self._changed = asyncio.Event()

    def of(self, call: str) -> Callable[[Any], None]:
        return partial(self._tell, call)

    def _tell(self, call: str, outcome: Any) -> None:
        assert call not in self.by_call, "told twice"
        self.by_call[call] = outcome
        self._changed.set()

    async def all_of(self, *calls: str) -> list[Any]:
        while not self.by_call.keys() >= set(calls):
            self._changed.clear()
            await self._changed.wait()
        return [self.by_call[call] for call in calls]

    async def errors(self, *calls: str) -> list[ProducerError]:
        errors = await self.all_of(*calls)
        assert all(isinstance(each, ProducerError) for each in errors)
        return errors


class Timer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback = callback

    def cancel(self) -> None:
        self.callback = lambda: None


class Clock:
    """The event loop, but for time: that passes only when a test says so."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time()
        self.timers: list[Timer] = []

    @classmethod
    def of(cls, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Clock:
        connection._stop_timer()  # it was set for the handshake
        monkeypatch.setattr(connection, "_loop", clock := cls())
        return clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(when, callback))
        return self.timers[-1]

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return self.call_at(self._now + delay_s, callback)

    def advance(self, by_s: float) -> None:
        self._now += by_s
        due = [each for each in self.timers if each.when <= self._now]
        self.timers = [each for each in self.timers if each.when > self._now]
        for each in due:
            each.callback()


@pytest.fixture
async def outcomes() -> Outcomes:
    return Outcomes()


@asynccontextmanager
async def connected(broker: ScriptedBroker, **changes: Any) -> AsyncIterator[tuple[Connection, Peer]]:
    connection = await Connection.open(broker.address, settings(**changes), node_id=3)
    peer = await broker.accepted.get()
    try:
        yield connection, peer
    finally:
        connection.close()
        await connection.wait_closed()


def lose_patience(connection: Connection) -> None:
    """Shorten the request timeout, after a handshake that could take its time."""
    connection._settings = settings(request_timeout_s=SHORT_S)
    connection._stop_timer()  # it was set for the handshake


def produce(value_bytes: int) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=bytes(value_bytes))
    return ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=1,
        topic_data=[TopicProduceData(name="t", partition_data=[data])],
    )


# --- opening


async def test_open_returns_with_the_versions_of_the_broker(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, _):
        assert connection.versions.pick(InitProducerIdRequest) == InitProducerIdRequest.VERSIONS[1]
        assert str(connection) == f"{broker.address} (node 3)"
        assert not connection.closed
        assert broker.greeted[0].header.client_id == "test"


async def test_a_broker_that_is_too_old_for_our_greeting_is_asked_in_version_0() -> None:
    def greeting(received: Received) -> bytes:
        # KIP-511: error 35 is answered in version 0, whatever was asked
        asked = received._replace(header=received.header._replace(api_version=0))
        error_code = 35 if received.header.api_version else 0
        return asked.answered(ApiVersionsResponse(error_code=error_code, api_keys=OFFER))

    async with ScriptedBroker(greeting) as broker, connected(broker) as (connection, _):
        assert [each.header.api_version for each in broker.greeted] == [4, 0]
        assert connection.versions.pick(InitProducerIdRequest) == InitProducerIdRequest.VERSIONS[1]


async def test_a_refused_connection_says_where_and_why() -> None:
    async def refuse(host: str, port: int, _: MakeProtocol, /) -> asyncio.Transport:
        raise ConnectionRefusedError(111, "nobody there")

    with pytest.raises(
        ConnectionFailed, match=r"b:1 \(bootstrap\): cannot connect: .* nobody there"
    ) as failed:
        await Connection.open(Address("b", 1), settings(), dial=refuse)
    assert not failed.value.written
    assert isinstance(failed.value.__cause__, ConnectionRefusedError)


async def test_dialling_ends_with_the_setup_timeout() -> None:
    async def hang(host: str, port: int, _: MakeProtocol, /) -> asyncio.Transport:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    with pytest.raises(ConnectionFailed, match="nothing answered in time"):
        await Connection.open(Address("b", 1), settings(setup_timeout_s=SHORT_S), dial=hang)


async def test_an_address_from_a_broker_can_be_anything() -> None:
    with pytest.raises(ConnectionFailed, match="there is no port 70000"):
        await Connection.open(Address("127.0.0.1", 70_000), settings())


async def test_a_broker_frozen_in_the_handshake_is_given_up_at_the_deadline() -> None:
    async with ScriptedBroker(stay_silent) as broker:
        deadline = asyncio.get_running_loop().time() + SHORT_S
        with pytest.raises(ConnectionFailed, match=r"connected, but the handshake was not over in 0\.0"):
            await Connection.open(broker.address, settings(), deadline=deadline)
        await (await broker.accepted.get()).gone.wait()


async def test_the_request_timeout_holds_in_the_handshake_too() -> None:
    async with ScriptedBroker(stay_silent) as broker:
        with pytest.raises(ConnectionFailed, match=r"no answer in 0\.02 s to ApiVersions v4"):
            await Connection.open(broker.address, settings(request_timeout_s=SHORT_S))


async def test_a_listener_that_hangs_up_on_the_greeting_may_want_tls() -> None:
    async with ScriptedBroker(hang_up) as broker:
        with pytest.raises(ConnectionFailed, match=r"closed by the broker .* want TLS or SASL"):
            await Connection.open(broker.address, settings())


@pytest.mark.parametrize(
    ("greeting", "complaint"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS alert"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP response"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00", "ApiVersionsResponse v4"),
    ],
)
async def test_something_else_than_a_broker_is_recognised(greeting: bytes, complaint: str) -> None:
    async with ScriptedBroker(lambda _: greeting) as broker:
        with pytest.raises(ProtocolError, match=complaint) as failed:
            await Connection.open(broker.address, settings())
        assert str(failed.value).startswith(f"{broker.address} (bootstrap): ")
        await (await broker.accepted.get()).gone.wait()


async def test_a_broker_that_refuses_the_handshake_is_hung_up_on() -> None:
    def refuse(received: Received) -> bytes:
        return received.answered(ApiVersionsResponse(error_code=31, api_keys=[]))

    async with ScriptedBroker(refuse) as broker:
        with pytest.raises(ClusterAuthorizationFailed):
            await Connection.open(broker.address, settings())
        await (await broker.accepted.get()).gone.wait()


async def test_a_greeting_with_garbage_behind_it_fails_the_opening() -> None:
    def greeting(received: Received) -> bytes:
        return received.answered(ApiVersionsResponse(error_code=0, api_keys=OFFER)) + b"junk"

    async with ScriptedBroker(greeting) as broker:
        with pytest.raises(ProtocolError, match="b'junk'"):
            await Connection.open(broker.address, settings())


async def test_cancelling_open_leaves_nothing_however_far_it_got() -> None:
    async with ScriptedBroker() as broker:
        for steps in range(25):
            opening = asyncio.create_task(Connection.open(broker.address, settings()))
            for _ in range(steps):
                await asyncio.sleep(0)
            if opening.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await opening
            else:
                connection = await opening
                connection.close()
                await connection.wait_closed()


# --- calls and answers


async def test_answers_go_to_their_calls_in_order(broker: ScriptedBroker, outcomes: Outcomes) -> None:
    async with connected(broker) as (connection, peer):
        for call in "abc":
            connection.call(ASK, outcomes.of(call))
        assert connection.in_flight == 3
        received = [await peer.inbox.get() for _ in "abc"]
        peer.send(b"".join(each.answered_with_id(number) for number, each in enumerate(received)))
        answers = await outcomes.all_of("a", "b", "c")
        assert [each.producer_id for each in answers] == [0, 1, 2]
        assert connection.in_flight == 0
        assert not connection.closed


async def test_an_answer_may_come_one_byte_at_a_time(broker: ScriptedBroker, outcomes: Outcomes) -> None:
    async with connected(broker) as (connection, peer):
        connection.call(ASK, outcomes.of("a"))
        for byte in (await peer.inbox.get()).answered_with_id(7):
            peer.send(bytes([byte]))
            await asyncio.sleep(0)
        (answer,) = await outcomes.all_of("a")
        assert answer.producer_id == 7


async def test_a_version_can_be_asked_for(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, peer):
        asking = asyncio.create_task(connection.request(ASK, version=0))
        received = await peer.inbox.get()
        assert received.header.api_version == 0
        peer.send(received.answered_with_id(7))
        assert (await asking).producer_id == 7


async def test_a_cancelled_request_only_stops_waiting(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, peer):
        asking = asyncio.create_task(connection.request(ASK))
        first = await peer.inbox.get()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        asking = asyncio.create_task(connection.request(ASK))
        second = await peer.inbox.get()
        peer.send(first.answered_with_id(1) + second.answered_with_id(2))
        assert (await asking).producer_id == 2


async def test_a_request_fails_with_what_the_connection_was_closed_for(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, peer):
        asking = asyncio.create_task(connection.request(ASK))
        await peer.inbox.get()
        peer.close()
        with pytest.raises(ConnectionFailed, match="closed by the broker") as failed:
            await asking
        assert failed.value is connection.error


async def test_a_request_that_the_broker_does_not_know_is_not_written(outcomes: Outcomes) -> None:
    def greeting(received: Received) -> bytes:
        offer = [ApiVersion(api_key=18, min_version=0, max_version=4)]
        return received.answered(ApiVersionsResponse(error_code=0, api_keys=offer))

    async with ScriptedBroker(greeting) as broker, connected(broker) as (connection, _):
        with pytest.raises(UnsupportedVersion, match="InitProducerId"):
            connection.call(ASK, outcomes.of("a"))
        assert connection.in_flight == 0
        assert not connection.closed


async def test_an_answer_can_be_the_occasion_for_the_next_call(
    broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    async with connected(broker) as (connection, peer):
        connection.call(ASK, lambda _: connection.call(ASK, outcomes.of("second")))
        peer.send((await peer.inbox.get()).answered_with_id(1))
        peer.send((await peer.inbox.get()).answered_with_id(2))
        (answer,) = await outcomes.all_of("second")
        assert answer.producer_id == 2


async def test_using_the_connection_is_noted(
    broker: ScriptedBroker, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(broker) as (connection, peer):
        clock = Clock.of(connection, monkeypatch)
        clock.advance(1)
        connection.call(ASK, outcomes.of("a"))
        assert connection.last_used == clock.time()
        clock.advance(1)
        peer.send((await peer.inbox.get()).answered_with_id(1))
        await outcomes.all_of("a")
        assert connection.last_used == clock.time()


async def test_the_longest_silence_asked_for_counts(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(broker) as (connection, _):
        clock = Clock.of(connection, monkeypatch)
        assert not connection.muted
        connection.mute_until(clock.time() + 20)
        connection.mute_until(clock.time() + 10)
        assert connection.throttled_until == clock.time() + 20

        def muted_after(silence_s: float) -> bool:
            clock.advance(silence_s)
            return connection.muted

        assert [muted_after(each) for each in (0, 19, 1)] == [True, True, False]


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
        (wrong_correlation_id, "an answer came with correlation id"),
        (absurd_length, "2147483647 bytes long"),
        (negative_length, "-1 bytes long"),
        (endless_nonsense, "an answer came with correlation id"),
        (body_cut_short, "InitProducerIdResponse v4"),
        (body_too_long, "left over"),
    ],
)
async def test_an_answer_that_makes_no_sense_closes_the_connection_at_once(
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


@pytest.mark.parametrize("twice", [True, False])
async def test_bytes_nobody_asked_for_close_the_connection_after_the_answers_before_them(
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
        assert "nobody asked for" in str(connection.error)


# --- the other ways to die


def close_cleanly(peer: Peer, received: Received) -> None:
    peer.close()


def close_within_an_answer(peer: Peer, received: Received) -> None:
    peer.send(received.answered_with_id(1)[:-1])
    peer.close()


def reset(peer: Peer, received: Received) -> None:
    peer.reset()


@pytest.mark.parametrize(
    ("die", "story"),
    [
        (close_cleanly, r"closed by the broker after \S+ s with 2 calls in flight$"),
        (close_within_an_answer, r"with 2 calls in flight, 25 bytes into an answer$"),
        (reset, r"lost after \S+ s with 2 calls in flight: .*reset"),
    ],
)
async def test_a_lost_connection_fails_what_was_in_flight(
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


async def test_a_listener_that_hangs_up_on_the_first_request_may_want_sasl(
    broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    """It answers the handshake to anybody, and nothing else to those who have not said who they are."""
    async with connected(broker) as (connection, peer):
        connection.call(ASK, outcomes.of("a"))
        peer.close()
        (error,) = await outcomes.errors("a")
        assert "does this listener want SASL?" in str(error)


async def test_a_broker_that_does_not_answer_in_time_is_hung_up_on(
    broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    async with connected(broker) as (connection, peer):
        lose_patience(connection)
        connection.call(ASK, outcomes.of("a"))
        connection.call(ASK, outcomes.of("b"))
        errors = await outcomes.errors("a", "b")
        assert str(errors[0]) == f"{connection}: no answer in 0.02 s to InitProducerId v4"
        assert isinstance(errors[0], ConnectionFailed)
        assert errors[0].written
        await peer.gone.wait()


async def test_each_call_has_the_whole_request_timeout(
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


async def test_an_idle_connection_does_not_time_out(
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


async def test_a_request_of_which_no_byte_left_is_told_so(broker: ScriptedBroker, outcomes: Outcomes) -> None:
    async with connected(broker, send_buffer_bytes=4096) as (connection, peer):
        lose_patience(connection)
        peer.freeze()
        connection.call(produce(8_000_000), outcomes.of("partly written"))
        connection.call(produce(1), outcomes.of("kept back"))
        partly, kept = await outcomes.errors("partly written", "kept back")
        assert isinstance(partly, ConnectionFailed)
        assert partly.written
        assert isinstance(kept, ConnectionFailed)
        assert not kept.written
        assert kept.__cause__ is partly


async def test_a_request_that_never_left_is_told_so_whatever_the_cause(
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


# --- our own mistakes


async def test_an_answer_handler_that_raises_is_logged_and_closes_the_connection(
    broker: ScriptedBroker, outcomes: Outcomes, caplog: pytest.LogCaptureFixture
) -> None:
    def stumble(outcome: Any) -> None:
        raise LookupError("oops")

    async with connected(broker) as (connection, peer):
        connection.call(ASK, stumble)
        connection.call(ASK, stumble)  # told of the closing, and raises again: logged, no more
        connection.call(ASK, outcomes.of("c"))
        peer.send((await peer.inbox.get()).answered_with_id(1))
        (error,) = await outcomes.errors("c")
        assert "LookupError('oops')" in str(error)
        logged = [each for each in caplog.records if each.message.startswith("connection.handler_failed")]
        assert len(logged) == 2
        assert logged[0].exc_info
        await connection.wait_closed()


async def test_a_decoder_that_raises_is_logged_and_closes_the_connection(
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


# --- closing


async def test_close_settles_every_call_before_it_returns(broker: ScriptedBroker, outcomes: Outcomes) -> None:
    told: list[ProducerError | None] = []
    async with connected(broker) as (connection, _):
        connection.on_closed = lambda _, error: told.append(error)
        connection.call(ASK, outcomes.of("a"))
        connection.close()
        assert isinstance(outcomes.by_call["a"], ConnectionFailed)
        assert "closed by this side" in str(outcomes.by_call["a"])
        connection.close()
        assert told == [None]


async def test_a_closed_connection_takes_no_calls(broker: ScriptedBroker, outcomes: Outcomes) -> None:
    cause = ConnectionFailed("for a reason")
    async with connected(broker) as (connection, _):
        connection.close(cause)
        with pytest.raises(ConnectionFailed, match="is closed") as refused:
            connection.call(ASK, outcomes.of("a"))
        assert not refused.value.written
        assert refused.value.__cause__ is cause
        with pytest.raises(ConnectionFailed, match="is closed"):
            connection.write_only(ASK)
        with pytest.raises(ConnectionFailed, match="is closed"):
            await connection.request(ASK)
    assert outcomes.by_call == {}


async def test_the_rest_of_a_chunk_is_not_read_after_closing(
    broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    async with connected(broker) as (connection, peer):
        connection.call(ASK, lambda _: connection.close())
        connection.call(ASK, outcomes.of("b"))
        first, second = await peer.inbox.get(), await peer.inbox.get()
        peer.send(first.answered_with_id(1) + second.answered_with_id(2))
        await outcomes.errors("b")
        await connection.wait_closed()
        assert connection.error is None


async def test_a_retired_connection_closes_after_its_last_answer(
    broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    async with connected(broker) as (connection, peer):
        connection.call(ASK, outcomes.of("a"))
        connection.retire()
        assert connection.closed
        with pytest.raises(ConnectionFailed, match="is closed"):
            connection.call(ASK, outcomes.of("b"))
        peer.send((await peer.inbox.get()).answered_with_id(7))
        (answer,) = await outcomes.all_of("a")
        assert answer.producer_id == 7
        await connection.wait_closed()
        await peer.gone.wait()


async def test_retiring_an_idle_connection_closes_it(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, peer):
        connection.retire()
        await connection.wait_closed()
        await peer.gone.wait()


# --- requests without an answer


async def test_what_nobody_answers_still_goes_out_at_an_orderly_close(broker: ScriptedBroker) -> None:
    async with connected(broker, send_buffer_bytes=65_536) as (connection, peer):
        connection.write_only(produce(4_000_000))
        assert connection._transport.get_write_buffer_size() > 0
        connection.close()
        received = await peer.inbox.get()
        assert isinstance(received.body, ProduceRequest)
        records = received.body.topic_data[0].partition_data[0].records
        assert records is not None
        assert len(records) == 4_000_000
        await connection.wait_closed()


async def test_a_broker_that_takes_nothing_does_not_hold_up_a_close(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "FLUSH_GRACE_S", SHORT_S)
    async with connected(broker, send_buffer_bytes=4096) as (connection, peer):
        peer.freeze()
        connection.write_only(produce(8_000_000))
        connection.close()
        await connection.wait_closed()


async def test_drain_waits_until_the_broker_has_taken_it(broker: ScriptedBroker) -> None:
    async with connected(broker, send_buffer_bytes=65_536) as (connection, peer):
        connection.write_only(produce(4_000_000))
        unwritten = connection._transport.get_write_buffer_size
        assert unwritten() > connection_module.WRITE_BUFFER_BYTES
        await connection.drain()
        assert unwritten() < connection_module.WRITE_BUFFER_BYTES
        await peer.inbox.get()


async def test_drain_gives_a_broker_up_that_takes_nothing(broker: ScriptedBroker) -> None:
    async with connected(broker, send_buffer_bytes=4096) as (connection, peer):
        lose_patience(connection)
        peer.freeze()
        connection.write_only(produce(8_000_000))
        with pytest.raises(ConnectionFailed, match="closed before all was written"):
            await connection.drain()
        assert "bytes were not taken in 0.02 s" in str(connection.error)


@pytest.mark.parametrize("ours", [True, False])
async def test_drain_ends_with_the_connection(ours: bool, broker: ScriptedBroker) -> None:
    async with connected(broker, send_buffer_bytes=4096) as (connection, peer):
        peer.freeze()
        connection.write_only(produce(8_000_000))
        draining = asyncio.create_task(connection.drain())
        await asyncio.sleep(0)
        if ours:
            connection.close(ConnectionFailed("enough"))
        else:
            peer.reset()
        with pytest.raises(ConnectionFailed, match="closed before all was written"):
            await draining


async def test_a_dead_transport_counts_as_closed_before_it_is_reported(broker: ScriptedBroker) -> None:
    """Writing to it would only look as if something had been sent."""

    async def dial_and_keep(host: str, port: int, make_protocol: MakeProtocol, /) -> asyncio.Transport:
        transports.append(await dial(host, port, make_protocol))
        return transports[0]

    transports: list[asyncio.Transport] = []
    connection = await Connection.open(broker.address, settings(), dial=dial_and_keep)
    transports[0].abort()
    assert connection.closed
    with pytest.raises(ConnectionFailed, match="is closed"):
        connection.call(ASK, lambda _: None)
    await connection.wait_closed()
