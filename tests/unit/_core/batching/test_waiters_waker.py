"""Tasks of one event loop that await their records, and a waker that is paused while responses are read."""

from __future__ import annotations

import asyncio
import gc
from contextvars import copy_context
from typing import Any

import pytest

from aioproducer import DeliveryTimeout
from aioproducer._core.batching.waiters import (
    Acknowledgement,
    WakeSignal,
    acknowledgement_on,
    fail_awaited,
    reference_to,
    resolve_awaited,
)
from aioproducer.testing import in_virtual_time
from aioproducer.types import RecordMetadata

FIRST, SECOND, THIRD = (
    RecordMetadata("orders", 0, offset, 1_000, log_append_time=False) for offset in range(3)
)


class Interrupt(KeyboardInterrupt):
    """Exception that a task raises and the event loop re-raises."""


class Office:
    """Tasks that await an acknowledgement each, and their outcomes in the order in which the tasks resume."""

    def __init__(self, loop: asyncio.AbstractEventLoop, calls: int) -> None:
        kind = acknowledgement_on(loop)
        self.waker = kind.waker
        self.waiters = [kind() for _ in range(calls)]
        self.tasks = [loop.create_task(self.call(waiter)) for waiter in self.waiters]
        self.heard: list[RecordMetadata | type[BaseException]] = []
        self.interrupts: list[RecordMetadata] = []
        """Whoever hears one of these is interrupted."""

    async def call(self, waiter: Acknowledgement) -> None:
        try:
            metadata = await waiter
        except DeliveryTimeout as error:
            self.heard.append(type(error))
            return
        self.heard.append(metadata)
        if metadata in self.interrupts:
            raise Interrupt


@in_virtual_time
async def test_tasks_resume_during_resume_before_it_returns() -> None:
    loop = asyncio.get_running_loop()
    office = Office(loop, 3)
    await asyncio.sleep(0)
    heard: list[object] = []

    def read() -> None:
        office.waker.pause()
        resolve_awaited(office.waiters[:2], [FIRST, SECOND])
        office.waker.pause()  # for another answer
        fail_awaited(office.waiters[2:], [DeliveryTimeout("too late")])
        assert office.heard == []
        heard.append(office.waker.resume())
        heard.extend(office.heard)

    loop.call_soon(read)
    await asyncio.wait(office.tasks)
    assert heard == [True, FIRST, SECOND, DeliveryTimeout]


@in_virtual_time
async def test_resume_without_waiters_returns_false() -> None:
    office = Office(asyncio.get_running_loop(), 1)
    await asyncio.sleep(0)
    office.waker.pause()
    assert not office.waker.resume()
    assert not office.waker.resume()
    resolve_awaited(office.waiters, [FIRST])
    assert office.heard == []
    await asyncio.sleep(0)
    assert office.heard == [FIRST]


@in_virtual_time
async def test_tasks_resume_next_iteration_inside_a_task() -> None:
    office = Office(asyncio.get_running_loop(), 2)
    await asyncio.sleep(0)
    office.waker.pause()
    resolve_awaited(office.waiters, [FIRST, SECOND])
    assert not office.waker.resume()
    assert office.heard == []
    await asyncio.sleep(0)
    assert office.heard == [FIRST, SECOND]


def test_interrupt_of_a_task_is_raised_by_the_loop_others_resume() -> None:
    loop = asyncio.new_event_loop()
    office = Office(loop, 3)
    office.interrupts = [FIRST]
    raised: list[BaseException] = []

    def read() -> None:
        office.waker.pause()
        resolve_awaited(office.waiters, [FIRST, SECOND, THIRD])
        assert office.waker.resume()  # the reader is not interrupted

    async def everybody() -> None:
        await asyncio.wait(office.tasks)

    loop.call_soon(read)
    ending = loop.create_task(everybody())
    while not ending.done():
        try:
            loop.run_until_complete(ending)
        except Interrupt as interrupt:
            raised.append(interrupt)
    loop.close()
    assert office.heard == [FIRST, SECOND, THIRD]
    assert raised == [office.tasks[0].exception()]


@pytest.mark.parametrize("resume_in", ["no pause", "callback", "task"])
@in_virtual_time
async def test_one_done_future_wakes_all_tasks(resume_in: str) -> None:
    loop, raised = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, context: raised.append(context["exception"]))
    kind = acknowledgement_on(loop)
    signals: list[WakeSignal] = []

    def wakeup(signal: WakeSignal) -> None:
        signals.append(signal)
        if len(signals) == 2:
            raise asyncio.CancelledError

    waiters = [kind() for _ in range(3)]
    for waiter in waiters:
        waiter.add_done_callback(wakeup, context=copy_context())
    if resume_in != "no pause":
        kind.waker.pause()
    resolve_awaited(waiters, [FIRST, SECOND, THIRD])
    if resume_in == "callback":
        loop.call_soon(kind.waker.resume)
    elif resume_in == "task":
        kind.waker.resume()
    for _ in range(3):
        await asyncio.sleep(0)
    assert signals == [kind.wake_signal] * 3
    assert kind.wake_signal.done()
    assert [type(each) for each in raised] == [asyncio.CancelledError]


def test_reference_to_a_loop_is_weak() -> None:
    loop = asyncio.new_event_loop()
    refer = reference_to(loop)
    assert refer() is loop
    loop.close()
    del loop
    gc.collect()
    assert refer() is None


def test_reference_to_a_loop_without_weak_references_is_strong() -> None:
    loop: Any = ()
    assert reference_to(loop)() is loop
