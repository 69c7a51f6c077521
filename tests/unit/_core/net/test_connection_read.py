"""Callbacks that a response handler schedules for the end of the read."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.errors import ConnectionFailed
from tests.unit._core.net.connection_rig import connected
from tests.unit._core.net.scripted import ASK, ScriptedBroker


async def test_after_read_callback_runs_once_per_read(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, peer):
        done: list[Any] = []

        def answered(answer: Any) -> None:
            assert connection.is_reading
            done.append(answer.producer_id)
            connection.after_read = over

        def over() -> None:
            assert not connection.is_reading
            assert connection.after_read is None
            done.append("over")

        for _ in range(3):
            connection.call(ASK, answered)
        answers = [(await peer.inbox.get()).answered_with_id(number) for number in range(3)]
        connection.feed_data(answers[0] + answers[1] + answers[2][:6])
        assert done == [0, 1, "over"]
        connection.feed_data(answers[2][6:])
        assert done == [0, 1, "over", 2, "over"]


async def test_after_read_callback_runs_when_garbage_follows(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, peer):
        done: list[str] = []

        def answered(_: object) -> None:
            connection.after_read = lambda: done.append(f"over, closed: {connection.closed}")

        connection.call(ASK, answered)
        connection.feed_data((await peer.inbox.get()).answered_with_id(1) + b"\xff" * 8)
        assert done == ["over, closed: True"]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
async def test_after_read_callback_runs_when_a_handler_is_interrupted(
    broker: ScriptedBroker, interrupt: type[BaseException]
) -> None:
    async with connected(broker) as (connection, peer):
        done: list[str] = []

        def answered(_: object) -> None:
            connection.after_read = lambda: done.append("over")
            raise interrupt

        connection.call(ASK, answered)
        data = (await peer.inbox.get()).answered_with_id(1)
        with pytest.raises(interrupt):
            connection.feed_data(data)
        assert done == ["over"]
        assert not connection.is_reading


async def test_is_reading_is_false_when_a_call_fails_without_response(broker: ScriptedBroker) -> None:
    async with connected(broker) as (connection, _):
        heard: list[tuple[type[object], bool]] = []
        connection.call(ASK, lambda error: heard.append((type(error), connection.is_reading)))
        connection.close(ConnectionFailed("lost"))
        assert heard == [(ConnectionFailed, False)]
