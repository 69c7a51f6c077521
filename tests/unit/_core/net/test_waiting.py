from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.net.waiting import let_go, resolve
from aioproducer.errors import ConnectionFailed


async def test_who_waits_goes_on() -> None:
    waiting = asyncio.get_running_loop().create_future()
    let_go(waiting)
    assert await waiting is None
    let_go(waiting)
    let_go(None)


async def test_an_answer_is_handed_over_and_an_error_raised() -> None:
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
