"""Signal handlers that raise inside a callback of a connection: the connection is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer._core.net import connection as connection_module
from aioproducer._core.net.connection import Connection
from tests.interrupting import interrupt
from tests.unit._core.net.connection_rig import Outcomes, connected
from tests.unit._core.net.scripted import ASK, ScriptedBroker

FAR_APART = 5
"""Bytecodes from one interruption to the next."""


@pytest.fixture(autouse=True)
def brief_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "FLUSH_GRACE_S", 0.02)


class Interrupted:
    """Interrupts the next call of a method of `Connection` at bytecode number *at*."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self._callback = getattr(Connection, method)
        self.at = 0
        self.has_raised = False
        self.was_called = asyncio.Event()

        def call(*arguments: Any) -> None:  # a function becomes a method
            self._call(*arguments)

        monkeypatch.setattr(Connection, method, call)

    def _call(self, *arguments: Any) -> None:
        if not self.at:
            self._callback(*arguments)
            return
        at, self.at = self.at, 0
        self.has_raised = interrupt(lambda: self._callback(*arguments), at)
        self.was_called.set()


async def test_interrupted_reading_closes(broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = Interrupted(monkeypatch, "feed_data")
    at, interrupted.has_raised = 0, True
    while interrupted.has_raised:
        interrupted.has_raised = False
        outcomes = Outcomes()
        async with connected(broker) as (connection, peer):
            for call in "ab":
                connection.call(ASK, outcomes.of(call))
            received = [await peer.inbox.get() for _ in "ab"]
            at += FAR_APART
            interrupted.at = at
            peer.send(received[0].answered_with_id(1))
            async with asyncio.timeout(10):
                await interrupted.was_called.wait()
                interrupted.was_called.clear()
                if interrupted.has_raised and not connection.closed:
                    assert "a" in outcomes.by_call, "the answer was read"
                elif interrupted.has_raised:
                    await outcomes.errors("b")
                    await connection.wait_closed()
    assert at > 100


async def test_interrupted_loss_leaves_no_caller_waiting(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted = Interrupted(monkeypatch, "lost")
    at, interrupted.has_raised = 0, True
    while interrupted.has_raised:
        interrupted.has_raised = False
        async with connected(broker) as (connection, peer):
            at += FAR_APART
            interrupted.at = at
            peer.reset()
            async with asyncio.timeout(10):
                await interrupted.was_called.wait()
                interrupted.was_called.clear()
                connection.close()
                await connection.wait_closed()
    assert at > 100
