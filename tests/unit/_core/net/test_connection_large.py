"""Large answers on a connection: decoded in a worker thread, and settled in their order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from aioproducer._core.net.in_flight import DECODE_OFF_LOOP_BYTES
from aioproducer._core.protocol.schema import decode_response
from aioproducer.errors import ConnectionFailed, ProducerError, ProtocolError
from tests.unit._core.net.connection_rig import Outcomes, connected
from tests.unit._core.net.scripted import ASK, OFFER, Peer, Received, ScriptedBroker, answer_to, greet

LARGE = bytes(DECODE_OFF_LOOP_BYTES)
"""Surplus bytes that make an answer a large one."""


class Decoder:
    """Decoder that records its threads and blocks worker threads until released."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.threads: list[int] = []
        self.is_in_a_thread = asyncio.Event()
        self.may_go_on = threading.Event()
        self.fails = False

    def __call__(self, response: type[Any], version: int, payload: bytes) -> tuple[Any, int]:
        self.threads.append(threading.get_ident())
        if self.threads[-1] != threading.main_thread().ident:
            self._loop.call_soon_threadsafe(self.is_in_a_thread.set)
            assert self.may_go_on.wait(10)
        if self.fails:
            raise ProtocolError("makes no sense")
        return decode_response(response, version, payload)


@pytest.fixture
async def decoder() -> AsyncIterator[Decoder]:
    made = Decoder()
    yield made
    made.may_go_on.set()


def thread_of(decoder: Decoder, number: int) -> str:
    return "loop" if decoder.threads[number] == threading.get_ident() else "worker"


async def answers(peer: Peer, sizes: str) -> bytes:
    """Return the answers to as many calls: 'L' for a large one, 's' for a small one."""
    received: list[Received] = [await peer.inbox.get() for _ in sizes]
    return b"".join(
        answer_to(each.header, surplus=LARGE if size == "L" else b"")
        for each, size in zip(received, sizes, strict=True)
    )


@pytest.mark.parametrize("sizes", ["Ls", "sLs", "LLs", "LsLsLss"])
@pytest.mark.parametrize("cut", [0, 1, 5, len(LARGE), len(LARGE) + 40])
async def test_answers_around_a_large_one_keep_their_order(
    broker: ScriptedBroker, decoder: Decoder, sizes: str, cut: int
) -> None:
    order: list[int] = []
    settled = asyncio.Event()

    def settle(number: int, answer: Any) -> None:
        assert not isinstance(answer, ProducerError), answer
        order.append(number)
        if len(order) == len(sizes):
            settled.set()

    async with connected(broker) as (connection, peer):
        for number in range(len(sizes)):
            connection.call(ASK, partial(settle, number), decode=decoder)
        stream = await answers(peer, sizes)
        peer.send(stream[:cut])
        await asyncio.sleep(0)
        peer.send(stream[cut:])
        await decoder.is_in_a_thread.wait()
        await asyncio.sleep(0.01)
        assert order == list(range(sizes.index("L"))), "the large answer and its successors wait"
        assert connection.in_flight == len(sizes) - len(order)
        decoder.may_go_on.set()
        async with asyncio.timeout(10):
            await settled.wait()
        assert order == list(range(len(sizes)))
        assert [thread_of(decoder, number) for number in order] == [
            "worker" if size == "L" else "loop" for size in sizes
        ]
        assert not connection.closed


async def test_close_settles_calls_whose_answer_is_being_decoded(
    broker: ScriptedBroker, decoder: Decoder, outcomes: Outcomes
) -> None:
    async with connected(broker) as (connection, peer):
        for call in "ab":
            connection.call(ASK, outcomes.of(call), decode=decoder)
        peer.send(await answers(peer, "Ls"))
        await decoder.is_in_a_thread.wait()
        connection.close()
        assert all(isinstance(each, ConnectionFailed) for each in outcomes.by_call.values())
        assert outcomes.by_call.keys() == {"a", "b"}, "before close returns"
        decoder.may_go_on.set()
        await connection.wait_closed()


async def test_retired_connection_stays_open_while_decoding_a_response(
    broker: ScriptedBroker, decoder: Decoder, outcomes: Outcomes
) -> None:
    async with connected(broker) as (connection, peer):
        connection.call(ASK, outcomes.of("a"), decode=decoder)
        peer.send(await answers(peer, "L"))
        await decoder.is_in_a_thread.wait()
        connection.retire()
        assert not connection.socket_closed.done()
        decoder.may_go_on.set()
        (answer,) = await outcomes.all_of("a")
        assert not isinstance(answer, ProducerError)
        await connection.wait_closed()


async def test_malformed_large_answer_closes_the_connection(
    broker: ScriptedBroker, decoder: Decoder, outcomes: Outcomes
) -> None:
    decoder.fails = True
    decoder.may_go_on.set()
    async with connected(broker) as (connection, peer):
        for call in "ab":
            connection.call(ASK, outcomes.of(call), decode=decoder)
        peer.send(await answers(peer, "Ls"))
        errors = await outcomes.errors("a", "b")
        assert {type(each) for each in errors} == {ProtocolError}
        assert str(connection.address) in str(errors[0])
        assert connection.closed


async def test_large_answer_that_no_call_waits_for_is_skipped(
    broker: ScriptedBroker, outcomes: Outcomes
) -> None:
    async with connected(broker) as (connection, peer):
        connection.write_only(ASK)
        connection.call(ASK, outcomes.of("a"))
        peer.send(await answers(peer, "Ls"))
        (answer,) = await outcomes.all_of("a")
        assert not isinstance(answer, ProducerError)


async def test_large_answer_to_the_handshake_leaves_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def large(received: Received) -> bytes:
        frame = greet(received)
        assert frame is not None
        return (len(frame) - 4 + len(LARGE)).to_bytes(4, "big") + frame[4:] + LARGE

    def noted(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return decode_response(*arguments)

    monkeypatch.setattr("aioproducer._core.net.handshake.decode_response", noted)
    async with ScriptedBroker(large) as broker, connected(broker) as (connection, _):
        assert len(connection.versions.offered) == len(OFFER)
    assert threads
    assert threading.get_ident() not in threads


async def test_end_of_the_event_loop_closes_while_an_answer_is_decoded(
    broker: ScriptedBroker, decoder: Decoder, outcomes: Outcomes
) -> None:
    async with connected(broker) as (connection, peer):
        connection.call(ASK, outcomes.of("a"), decode=decoder)
        peer.send(await answers(peer, "L"))
        await decoder.is_in_a_thread.wait()
        assert connection._decoding is not None
        connection._decoding.cancel()  # as asyncio.run does
        (error,) = await outcomes.errors("a")
        assert isinstance(error, ConnectionFailed)
        assert connection.closed
