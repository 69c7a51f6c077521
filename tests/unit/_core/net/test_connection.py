from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.metrics import NodeCounters
from aioproducer._core.net import connection as connection_module
from aioproducer._core.net.connection import Connection, resolve, set_done
from aioproducer._core.net.dial import MakeProtocol, dial
from aioproducer._core.net.opening import open_connection
from aioproducer._core.protocol.metadata import ApiVersion, ApiVersionsResponse
from aioproducer._core.protocol.produce import InitProducerIdResponse, ProduceRequest
from aioproducer.errors import ConnectionFailed, ProducerError, UnsupportedVersion
from tests.unit._core.net.connection_rig import (
    SHORT_S,
    Clock,
    Outcomes,
    connected,
    produce,
    shorten_request_timeout,
)
from tests.unit._core.net.scripted import ASK, OFFER, Peer, Received, ScriptedBroker, settings

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


async def test_requests_answers_and_bytes_are_counted(broker: ScriptedBroker, outcomes: Outcomes) -> None:
    counters = NodeCounters(0.0)
    async with connected(broker, counters=counters) as (connection, peer):
        before = counters.numbers()  # the handshake
        assert (before["opened"], before["closed"], before["requests"], before["responses"]) == (1, 0, 1, 1)
        connection.call(ASK, outcomes.of("a"))
        connection.write_only(ASK)
        answer = (await peer.inbox.get()).answered_with_id(1)
        peer.send(answer)
        await outcomes.all_of("a")
        after = counters.numbers()
        assert {name: after[name] - before[name] for name in ("requests", "responses", "bytes_in")} == {
            "requests": 2,
            "responses": 1,
            "bytes_in": len(answer),
        }
        assert before["bytes_out"] < after["bytes_out"] == connection._core._accepted
    assert counters.closed == 1


@pytest.mark.parametrize("answered", [True, False])
async def test_traffic_advances_the_window_of_the_counters(
    broker: ScriptedBroker, outcomes: Outcomes, *, answered: bool
) -> None:
    async with connected(broker) as (connection, peer):
        connection.counters.window_ends_at = 0.0
        if answered:
            connection.call(ASK, outcomes.of("a"))
            received = await peer.inbox.get()
            connection.counters.window_ends_at = 0.0
            peer.send(received.answered_with_id(1))
            await outcomes.all_of("a")
        else:
            connection.write_only(ASK)
        assert connection.counters.window_ends_at > 0


async def test_response_may_arrive_one_byte_at_a_time(broker: ScriptedBroker, outcomes: Outcomes) -> None:
    async with connected(broker) as (connection, peer):
        connection.call(ASK, outcomes.of("a"))
        for byte in (await peer.inbox.get()).answered_with_id(7):
            peer.send(bytes([byte]))
            await asyncio.sleep(0)
        (answer,) = await outcomes.all_of("a")
        assert answer.producer_id == 7


async def test_responses_may_exceed_one_read(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, peer):
        asking = [asyncio.ensure_future(connection.request(ASK)) for _ in range(6000)]
        received = [await peer.inbox.get() for _ in asking]
        answers = b"".join(each.answered_with_id(number) for number, each in enumerate(received))
        assert len(answers) > 2 * 64 * 1024
        peer.send(answers)
        assert [each.producer_id for each in await asyncio.gather(*asking)] == list(range(6000))


async def test_request_is_sent_in_the_given_version(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, peer):
        asking = asyncio.create_task(connection.request(ASK, version=0))
        received = await peer.inbox.get()
        assert received.header.api_version == 0
        peer.send(received.answered_with_id(7))
        assert (await asking).producer_id == 7


async def test_cancelled_request_leaves_the_connection_usable(broker: ScriptedBroker) -> None:
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


async def test_request_fails_with_the_error_of_the_connection(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, peer):
        asking = asyncio.create_task(connection.request(ASK))
        await peer.inbox.get()
        peer.close()
        with pytest.raises(ConnectionFailed, match="closed by the broker") as failed:
            await asking
        assert failed.value is connection.error


async def test_unsupported_request_is_not_written(outcomes: Outcomes) -> None:
    def greeting(received: Received) -> bytes:
        offer = [ApiVersion(api_key=18, min_version=0, max_version=4)]
        return received.answered(ApiVersionsResponse(error_code=0, api_keys=offer))

    async with ScriptedBroker(greeting) as broker, connected(broker) as (connection, _):
        with pytest.raises(UnsupportedVersion, match="InitProducerId"):
            connection.call(ASK, outcomes.of("a"))
        assert connection.in_flight == 0
        assert not connection.closed


async def test_call_may_be_made_from_a_response_handler(broker: ScriptedBroker, outcomes: Outcomes) -> None:
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


async def throttled(connection: Connection, peer: Peer, outcomes: Outcomes, ms: int, version: int) -> float:
    """Have a call answered so; return until when the connection was muted then, by the handler's time."""
    muted: list[float] = []
    connection.call(ASK, lambda _: muted.append(connection.throttled_until), version=version)
    answer = InitProducerIdResponse(throttle_time_ms=ms, producer_id=0, producer_epoch=0)
    peer.send((await peer.inbox.get()).answered(answer))
    connection.call(ASK, outcomes.of("next"))
    peer.send((await peer.inbox.get()).answered_with_id(1))
    await outcomes.all_of("next")
    outcomes.by_call.clear()
    return muted[0]


@pytest.mark.parametrize(("version", "silence_s"), [(0, 0), (1, 2.5), (4, 2.5)])
async def test_throttled_connection_is_muted_from_version_1(
    broker: ScriptedBroker,
    outcomes: Outcomes,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    silence_s: float,
) -> None:
    async with connected(broker) as (connection, peer):
        clock = Clock.of(connection, monkeypatch)
        muted_until = await throttled(connection, peer, outcomes, 2500, version)
        assert muted_until == (clock.time() + silence_s if silence_s else 0)
        assert connection.is_throttled == (silence_s > 0)


async def test_handshake_response_may_throttle_the_connection() -> None:
    def greeting(received: Received) -> bytes:
        return received.answered(ApiVersionsResponse(error_code=0, api_keys=OFFER, throttle_time_ms=60_000))

    async with ScriptedBroker(greeting) as broker, connected(broker) as (connection, _):
        assert connection.is_throttled


async def test_longest_throttle_time_wins(
    broker: ScriptedBroker, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(broker) as (connection, peer):
        clock = Clock.of(connection, monkeypatch)
        assert not connection.is_throttled
        for ms in (20_000, 10_000, 0):
            assert await throttled(connection, peer, outcomes, ms, 4) == clock.time() + 20

        def muted_after(silence_s: float) -> bool:
            clock.advance(silence_s)
            return connection.is_throttled

        assert [muted_after(each) for each in (0, 19, 1)] == [True, True, False]


async def test_awaited_request_is_held_back_until_the_throttle_ends(
    broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    async with connected(broker) as (connection, peer):
        await throttled(connection, peer, outcomes, 200, 4)
        asking = asyncio.create_task(connection.request(ASK))
        await asyncio.sleep(0.1)
        assert connection.in_flight == 0
        peer.send((await peer.inbox.get()).answered_with_id(7))
        assert not connection.is_throttled
        assert (await asking).producer_id == 7


async def test_held_back_request_fails_when_the_connection_closes(
    broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    async with connected(broker) as (connection, peer):
        await throttled(connection, peer, outcomes, 60_000, 4)
        asking = asyncio.create_task(connection.request(ASK))
        await asyncio.sleep(0)
        connection.close()
        with pytest.raises(ConnectionFailed) as closed:
            await asking
        assert not closed.value.written


async def test_throttled_connection_is_idle_from_the_throttle_end(
    broker: ScriptedBroker, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(broker) as (connection, peer):
        clock = Clock.of(connection, monkeypatch)
        assert connection.idle_since == connection.last_used
        await throttled(connection, peer, outcomes, 60_000, 4)
        assert connection.idle_since == clock.time() + 60


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


async def test_closed_connection_rejects_calls(broker: ScriptedBroker, outcomes: Outcomes) -> None:
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


async def test_close_in_a_handler_skips_the_rest_of_the_chunk(
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


async def test_retired_connection_closes_after_its_last_response(
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


async def test_retiring_a_closed_connection_changes_nothing(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, _):
        causes: list[ProducerError | None] = []
        connection.on_closed = lambda _, cause: causes.append(cause)
        connection.close(lost := ConnectionFailed("lost"))
        connection.retire(0.0)
        await connection.wait_closed()
        assert causes == [lost]
        assert connection.error is lost


async def test_close_flushes_requests_without_response(broker: ScriptedBroker) -> None:
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


async def test_close_is_not_delayed_by_a_broker_that_reads_nothing(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "FLUSH_GRACE_S", SHORT_S)
    async with connected(broker, send_buffer_bytes=4096) as (connection, peer):
        peer.freeze()
        connection.write_only(produce(8_000_000))
        connection.close()
        await connection.wait_closed()


async def test_drain_waits_until_the_request_is_written(broker: ScriptedBroker) -> None:
    async with connected(broker, send_buffer_bytes=65_536) as (connection, peer):
        connection.write_only(produce(4_000_000))
        unwritten = connection._transport.get_write_buffer_size
        assert unwritten() > connection_module.WRITE_BUFFER_BYTES
        await connection.drain()
        assert unwritten() < connection_module.WRITE_BUFFER_BYTES
        await peer.inbox.get()


async def test_drain_fails_when_the_broker_reads_nothing(broker: ScriptedBroker) -> None:
    async with connected(broker, send_buffer_bytes=4096) as (connection, peer):
        shorten_request_timeout(connection)
        peer.freeze()
        connection.write_only(produce(8_000_000))
        with pytest.raises(ConnectionFailed, match="closed before all requests were written"):
            await connection.drain()
        assert "bytes unwritten after 0.02 s" in str(connection.error)


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
        with pytest.raises(ConnectionFailed, match="closed before all requests were written"):
            await draining


async def test_aborted_transport_counts_as_closed_before_the_report(broker: ScriptedBroker) -> None:
    """A write to it would look successful."""

    async def dial_and_keep(host: str, port: int, make_protocol: MakeProtocol, /) -> asyncio.Transport:
        transports.append(await dial(host, port, make_protocol))
        return transports[0]

    transports: list[asyncio.Transport] = []
    connection = await open_connection(broker.address, settings(), dial=dial_and_keep)
    transports[0].abort()
    assert connection.closed
    with pytest.raises(ConnectionFailed, match="is closed"):
        connection.call(ASK, lambda _: None)
    await connection.wait_closed()


async def test_let_go_resolves_a_pending_future_once() -> None:
    waiting = asyncio.get_running_loop().create_future()
    set_done(waiting)
    assert await waiting is None
    set_done(waiting)
    set_done(None)


async def test_resolve_sets_a_response_or_an_error() -> None:
    answered, failed, cancelled = (asyncio.get_running_loop().create_future() for _ in range(3))
    resolve(answered, "answer")
    assert await answered == "answer"
    resolve(failed, ConnectionFailed("lost"))
    with pytest.raises(ConnectionFailed):
        await failed
    cancelled.cancel()
    for outcome in ("late", ConnectionFailed("late")):
        resolve(cancelled, outcome)
    assert cancelled.cancelled()
