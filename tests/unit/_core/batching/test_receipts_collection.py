"""The garbage collector frees receipts and tasks of a lost event loop, and sees no receipts without callbacks."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from aioproducer._core.acceleration import accelerated
from aioproducer._core.batching.receipts import ReceiptKind, receipts_on
from aioproducer._core.batching.waiters import Delivered, Failure, TaskWaker
from aioproducer.errors import DeliveryTimeout
from tests.unit._core.batching.batch_rig import added

LATE = Failure(DeliveryTimeout, "late")


def receipts(loop: asyncio.AbstractEventLoop) -> ReceiptKind:
    return receipts_on(TaskWaker(loop))


@pytest.mark.skipif(not accelerated, reason="receipts in C only")
def test_collector_does_not_track_receipts_without_callbacks() -> None:
    loop = asyncio.new_event_loop()
    try:
        kind = receipts(loop)
        stretch = kind.stretch()
        plain, watched, failed = added(kind, stretch), added(kind, stretch), added(kind, stretch)
        watched.add_done_callback(print)
        assert [gc.is_tracked(each) for each in (plain, watched, failed)] == [False, True, False]
        stretch.fail(LATE)
        assert not gc.is_tracked(failed)
        assert failed.exception() is not None
        assert gc.is_tracked(failed)
        watched.remove_done_callback(print)
        loop.call_soon(loop.stop)
    finally:
        loop.close()


@pytest.mark.skipif(not accelerated, reason="receipts in C only")
def test_collector_does_not_track_receipts_after_callbacks() -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        kind, tracked = receipts(loop), list[bool]()
        stretch = kind.stretch()
        once, twice, noted = futures = [added(kind, stretch) for _ in range(3)]
        for each in (*futures, twice):
            each.add_done_callback(lambda done: tracked.append(gc.is_tracked(done)))
        noted.note = noted  # type: ignore[attr-defined]
        assert all(map(gc.is_tracked, futures))
        stretch.resolve(Delivered("orders", 3, 40, [1, 2, 3], log_append_time=False))
        runner.run(asyncio.sleep(0))
        assert tracked == [False, True, True, True]
        assert [gc.is_tracked(each) for each in futures] == [False, True, True]
        assert once.result().offset == 40
        assert not gc.is_tracked(once)
        once.note = once  # type: ignore[attr-defined]
        assert gc.is_tracked(once)


class Lost:
    """An object whose collection is observed."""


def test_losing_the_loop_frees_receipts_and_the_tasks_that_wait() -> None:
    async def wait(future: asyncio.Future[Any], witness: Lost, others: list[Any]) -> None:
        await future
        del witness, others

    loop = asyncio.new_event_loop()
    kind, witness = receipts(loop), Lost()
    stretch = kind.stretch()
    gone = weakref.ref(witness)
    task = loop.create_task(wait(added(kind, stretch), witness, [added(kind, stretch) for _ in range(10)]))  # noqa: RUF006
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.call_later(1000, print, stretch, task)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    loop._scheduled.clear()  # type: ignore[attr-defined]
    del loop, kind, stretch, witness, task
    gc.collect()
    assert gone() is None


def test_stretch_without_callbacks_keeps_no_loop() -> None:
    loop, witness = asyncio.new_event_loop(), Lost()
    gone = weakref.ref(witness)
    kind = receipts(loop)
    stretch = kind.stretch()
    waiter = added(kind, stretch)
    loop.close()
    loop.kept = (stretch, waiter, witness)  # type: ignore[attr-defined]
    del loop, kind, stretch, waiter, witness
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(not accelerated, reason="receipts in C only")
def test_stretch_is_gc_tracked_once_it_has_a_callback_or_failure() -> None:
    loop = asyncio.new_event_loop()
    try:
        kind = receipts(loop)
        delivered, failed, listened = (kind.stretch() for _ in range(3))
        kept = [added(kind, each) for each in (delivered, failed, listened)]
        kept[2].add_done_callback(print)
        delivered.resolve(Delivered("orders", 3, 40, [1], log_append_time=False))
        failed.fail(LATE)
        assert [gc.is_tracked(each) for each in (delivered, failed, listened)] == [False, True, True]
    finally:
        loop.close()


def test_waiting_task_is_freed_with_the_stretch_alone() -> None:
    async def wait(future: asyncio.Future[Any], witness: Lost) -> None:
        await future
        del witness

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        kind, witness = receipts(loop), Lost()
        stretch = kind.stretch()
        gone = weakref.ref(witness)
        task = loop.create_task(wait(added(kind, stretch), witness))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        runner.run(asyncio.sleep(0))
        del kind, stretch, witness, task
        gc.collect()
        assert gone() is None
