"""Calls of `send_many` with async serializers."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

from aioproducer._core.batching.waiters import Failure
from aioproducer._core.intake.preparing import USER_CODE_SLICE_S
from aioproducer.errors import ProducerClosed, SerializerTimeout
from aioproducer.testing import in_virtual_time
from aioproducer.types import ProducerRecord
from tests.unit._core.intake.intake_rig import Spy
from tests.unit._core.intake.many_rig import Rig
from tests.unit._core.intake.slow import work

HUNG = "hung"


async def encode(value: str) -> bytes:
    if value == HUNG:
        await asyncio.Event().wait()
    return value.encode()


@in_virtual_time
async def test_async_serializers_yield_after_their_slice_of_time() -> None:
    async def slow(value: str) -> bytes:
        work(USER_CODE_SLICE_S)
        return value.encode()

    rig = Rig(value_serializer=slow)
    sending = rig.send(["a", "b", "c"])
    for queued in (1, 2, 3):
        await asyncio.sleep(0)
        assert rig.queued == queued
    assert (await rig.delivered(sending)).delivered == 3


@in_virtual_time
async def test_row_refused_by_an_interceptor_fails_alone() -> None:
    def move(record: ProducerRecord) -> ProducerRecord:
        if record.value == "moved":
            record.topic = "elsewhere"
        return record

    rig = Rig(value_serializer=encode, interceptors=[Spy(move)])
    result = await rig.delivered(rig.send(["a", "moved", "b"]))
    assert result.delivered == 2
    assert {position: str(error) for position, error in result.failures.items()} == {
        1: "an interceptor moved a record from 'orders' to 'elsewhere'; send_many writes to one topic"
    }
    assert rig.accumulator.arriving == 0


@in_virtual_time
async def test_late_serializer_fails_all_further_rows() -> None:
    spy = Spy()
    rig = Rig(value_serializer=encode, interceptors=[spy], max_block_s=3.0)
    sending = rig.send(["a", HUNG, "b"])
    await asyncio.sleep(3)
    assert rig.loop.time() == 3
    result = await rig.delivered(sending)
    assert [type(error) for error in result.failures.values()] == [SerializerTimeout] * 2
    assert (list(result.failures), result.delivered) == ([1, 2], 1)
    assert [record.value for record in spy.seen] == ["a", HUNG]
    assert [type(error) for error, _ in spy.errors] == [SerializerTimeout]


class TestBegun:
    """The serializer of a row has returned a coroutine, and the call ends before it awaits the coroutine."""

    @staticmethod
    async def begin() -> tuple[Rig, Spy, asyncio.Task[Any], list[Coroutine[Any, Any, bytes]]]:
        """Return a call that waits between the first row and the row with the coroutine."""
        spy, made = Spy(), list[Coroutine[Any, Any, bytes]]()

        def plain(value: str) -> Any:
            if value == "a":
                return b"a"
            made.append(encode(value))
            return made[-1]

        rig = Rig(value_serializer=plain, interceptors=[spy])
        sending = rig.send(["a", "b", "c"])
        await asyncio.sleep(0)
        assert rig.queued == len(made) == 1
        return rig, spy, sending, made

    @in_virtual_time
    async def test_begun_row_fails_at_close_and_drops_its_coroutine(self) -> None:
        rig, spy, sending, made = await self.begin()
        closed = Failure(ProducerClosed, "closed")
        rig.accumulator.close(closed)
        rig.completion.fail_everything(closed)
        result = await sending
        assert [type(error) for error in result.failures.values()] == [ProducerClosed] * 3
        assert [type(error) for error, _ in spy.errors] == [ProducerClosed]
        assert inspect.getcoroutinestate(made[0]) == "CORO_CLOSED"

    @in_virtual_time
    async def test_begun_row_is_reported_when_the_call_is_cancelled(self) -> None:
        rig, spy, sending, made = await self.begin()
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()
        assert [type(error.__cause__) for error, _ in spy.errors] == [asyncio.CancelledError]
        assert inspect.getcoroutinestate(made[0]) == "CORO_CLOSED"
        assert rig.queued_values(0) == [b"a"]
