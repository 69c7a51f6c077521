"""At the end of a read, tasks with acknowledged records resume, and the sender writes their next records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer._core.batching.waiters import Acknowledgement, acknowledgement_on
from aioproducer._core.sender.loop import Sender
from aioproducer._core.sender.requests import ResponseHandler
from aioproducer.testing import in_virtual_time
from aioproducer.types import RecordMetadata
from tests.unit._core.sender.loop_rig import LINGER_S, Rig, advance
from tests.unit.floor_rig import TOPIC, settle


class Office:
    """Tasks that send records and await them, at the sender of a rig."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.kind = acknowledgement_on(rig.loop)
        rig.sender._waker = self.kind.waker
        self.sent: list[RecordMetadata] = []

    def append(self, value: bytes) -> Acknowledgement:
        waiter = self.rig.accumulator.append_to_open(self.rig.accumulator.topics[TOPIC], value, self.kind)
        assert isinstance(waiter, Acknowledgement)
        return waiter

    async def send(self, *values: bytes) -> None:
        for value in values:
            self.sent.append(await self.append(value))

    def from_the_transport(self) -> None:
        """Answer the oldest request as a transport does: no task runs meanwhile."""
        self.rig.loop.call_soon(self.rig.accept)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Which task ran in each turn of the sender; None: it was at the end of a read."""
    turns: list[str | None] = []
    run_once = Sender._run_once

    def noted(sender: Sender) -> float | None:
        task = asyncio.current_task()
        turns.append(None if task is None else task.get_name())
        return run_once(sender)

    monkeypatch.setattr(Sender, "_run_once", noted)
    return turns


ADAPTIVE = {"linger_s": 0.005, "linger_is_adaptive": True}


@in_virtual_time
async def test_record_of_a_resumed_task_is_written_during_the_read(turns: list[str | None]) -> None:
    async with Rig(batching=ADAPTIVE) as rig:
        office = Office(rig)
        sending = asyncio.create_task(office.send(b"a", b"b"))
        await settle()
        assert rig.sent_values() == [[b"a"]]
        turns.clear()
        seen: list[list[list[bytes | None]]] = []
        office.from_the_transport()
        rig.loop.call_soon(lambda: seen.append(rig.sent_values()))
        await settle()
        assert (seen, turns) == ([[[b"b"]]], [None])
        office.from_the_transport()
        await sending
        assert [each.offset for each in office.sent] == [0, 0]


@in_virtual_time
async def test_sender_runs_after_the_tasks_that_await_futures(
    turns: list[str | None],
) -> None:
    """Otherwise the sender would send lingering batches without the next records of these tasks."""
    async with Rig(batching=ADAPTIVE) as rig:
        office = Office(rig)
        rig.fill()
        await settle()
        turns.clear()
        office.from_the_transport()
        await settle()
        assert len(turns) == 1
        assert turns != [None]


@in_virtual_time
async def test_sender_does_not_run_if_tasks_send_no_more(turns: list[str | None]) -> None:
    async with Rig(batching={"linger_s": 0.5}) as rig:
        office = Office(rig)
        sending = asyncio.create_task(office.send(b"a"))
        await advance(0.5)
        assert turns
        turns.clear()
        office.from_the_transport()
        await sending
        await settle()
        assert turns == []


@in_virtual_time
async def test_ring_of_a_resumed_task_runs_the_sender_at_once(turns: list[str | None]) -> None:
    async with Rig(batching=ADAPTIVE) as rig:
        office = Office(rig)

        async def send_and_ring() -> None:
            await office.send(b"a")
            rig.wakeup.ring()

        sending = asyncio.create_task(send_and_ring())
        await settle()
        turns.clear()
        office.from_the_transport()
        await sending
        await settle()
        assert turns == [None]


@in_virtual_time
async def test_batch_that_waited_for_an_answer_is_sent_immediately(turns: list[str | None]) -> None:
    async with Rig(max_in_flight=1, partitions=2, batching={"linger_s": 0.0, "max_in_flight": 1}) as rig:
        office = Office(rig)
        rig.accumulator.topics[TOPIC].sticky = rig.queue(0)
        sending = asyncio.create_task(office.send(b"a"))
        await settle()
        rig.fill(b"behind", partition=1)
        await settle()
        assert rig.sent_values() == [[b"a"]]
        turns.clear()
        office.from_the_transport()
        await sending
        assert (rig.sent_values(), turns) == ([[b"behind"]], [None])


@in_virtual_time
async def test_sender_that_is_finishing_ends_after_the_read(turns: list[str | None]) -> None:
    async with Rig(batching=ADAPTIVE) as rig:
        office = Office(rig)
        sending = asyncio.create_task(office.send(b"a"))
        await settle()
        rig.accumulator.finish()
        office.from_the_transport()
        await asyncio.wait([rig.running])
        await sending
        assert None not in turns
        assert rig.loop.time() == 0, "the last response ends the sender"


@in_virtual_time
async def test_sender_runs_again_when_the_next_linger_is_over() -> None:
    async with Rig(batching={"linger_s": 0.5}) as rig:
        office = Office(rig)
        sending = asyncio.create_task(office.send(b"a", b"b"))
        await advance(0.5)
        office.from_the_transport()
        await advance(0.4)
        assert rig.sent_values() == []
        await advance(0.2)
        assert rig.sent_values() == [[b"b"]]
        office.from_the_transport()
        await sending


@in_virtual_time
async def test_bug_at_the_end_of_a_read_ends_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Sender) -> None:
        raise LookupError("a bug")

    async with Rig(batching=ADAPTIVE) as rig:
        office = Office(rig)
        sending = asyncio.create_task(office.send(b"a"))
        await settle()
        monkeypatch.setattr(Sender, "_run_once", fail)
        office.from_the_transport()
        await asyncio.wait([rig.running])
        assert isinstance(rig.running.exception(), LookupError)
        await sending


@in_virtual_time
async def test_bug_after_a_delivery_ends_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    take = ResponseHandler.take

    def take_and_fail(*arguments: Any) -> None:
        take(*arguments)
        raise LookupError("a bug")

    monkeypatch.setattr(ResponseHandler, "take", take_and_fail)
    async with Rig(batching=ADAPTIVE) as rig:
        office = Office(rig)
        sending = asyncio.create_task(office.send(b"a"))
        await settle()

        def read() -> None:
            with pytest.raises(LookupError):
                rig.accept()

        rig.loop.call_soon(read)
        await asyncio.wait([rig.running])
        assert isinstance(rig.running.exception(), LookupError)
        assert rig.loop.time() == 0
        await sending


@in_virtual_time
async def test_cancelled_sender_sends_nothing_at_the_end_of_a_read(turns: list[str | None]) -> None:
    async with Rig(batching=ADAPTIVE) as rig:
        office = Office(rig)
        sending = asyncio.create_task(office.send(b"a", b"b"))
        await settle()
        turns.clear()
        rig.loop.call_soon(rig.accept)
        rig.running.cancel()
        await settle()
        assert (turns, rig.sent_values()) == ([], [])
        sending.cancel()


@in_virtual_time
async def test_end_of_a_linger_runs_the_sender(turns: list[str | None]) -> None:
    async with Rig() as rig:
        rig.fill()
        await settle()
        turns.clear()
        await advance(LINGER_S)
        assert turns == [None]
        assert len(rig.connection.calls) == 1
    assert rig.wakeup.on_time is None, "nobody is there any more whose turn it could be"


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
@in_virtual_time
async def test_interrupt_in_a_callback_is_raised_and_ends_the_sender(
    monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException]
) -> None:
    """A program may continue after Ctrl-C. The turn may be incomplete, so waiting records must fail."""

    def interrupted(_: Sender) -> None:
        raise interrupt

    async with Rig() as rig:
        monkeypatch.setattr(Sender, "_run_once", interrupted)
        assert rig.wakeup.on_time is not None
        with pytest.raises(interrupt):
            rig.wakeup.on_time()
        with pytest.raises(RuntimeError, match=interrupt.__name__):
            await rig.running
