"""Outcomes of calls and a clock under the test's control, for tests of connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from aioproducer._core.metrics import NodeCounters
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.opening import open_connection
from aioproducer._core.protocol.produce import (
    InitProducerIdResponse,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from aioproducer.errors import ProducerError
from tests.unit._core.net.scripted import Peer, ScriptedBroker, settings

SHORT_S = 0.02


class Outcomes:
    """Outcomes of the calls of a test: pass `outcomes.of("name")` as `on_answer`."""

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
    """Event loop whose time passes only on request."""

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


@asynccontextmanager
async def connected(
    broker: ScriptedBroker, *, counters: NodeCounters | None = None, **changes: Any
) -> AsyncIterator[tuple[Connection, Peer]]:
    connection = await open_connection(broker.address, settings(**changes), node_id=3, counters=counters)
    peer = await broker.accepted.get()
    try:
        yield connection, peer
    finally:
        connection.close()
        await connection.wait_closed()


def shorten_request_timeout(connection: Connection) -> None:
    """Shorten the request timeout after the handshake, which may need more time on a busy machine."""
    connection._settings = connection._core._settings = settings(request_timeout_s=SHORT_S)
    connection._core._timeout_s = SHORT_S
    connection._stop_timer()  # the timer was set for the handshake


def produce(value_bytes: int) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=bytes(value_bytes))
    return ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=1,
        topic_data=[TopicProduceData(name="t", partition_data=[data])],
    )
