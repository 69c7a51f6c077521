"""Finalizers that run in an allocation of an append, and use the batch of the append."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from aioproducer._core.acceleration import accelerated
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.records.columns import open_records
from aioproducer.errors import ProducerClosed
from tests.unit._core.intake.intake_rig import Rig

pytestmark = pytest.mark.skipif(not accelerated, reason="appends in Python are not atomic for finalizers")

PURGED = Failure(ProducerClosed, "purged")


def note(calls: list[str], name: str, _: object) -> None:
    calls.append(name)


class Finalized:
    """Garbage in a cycle, whose finalizer calls the action in *armed* once."""

    def __init__(self, armed: list[Callable[[], object]]) -> None:
        self.armed = armed
        self.cycle = self

    def __del__(self) -> None:
        gc.disable()
        if self.armed:
            self.armed.pop()()


@contextmanager
def finalizer(allocation: int, action: Callable[[], object]) -> Iterator[None]:
    """Let the collector run *action* near the given allocation of the block."""
    gc.collect()
    gc.disable()
    before, armed = gc.get_threshold(), [action]
    Finalized(armed)
    gc.set_threshold(gc.get_count()[0] + allocation, 1_000_000, 1_000_000)
    gc.enable()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        armed.clear()
        gc.enable()


@pytest.mark.parametrize("awaits", [False, True])
async def test_append_survives_the_end_of_its_batch(awaits: bool) -> None:
    for allocation in range(12):
        rig = Rig(records=open_records)
        kind: Any = rig.intake.awaits if awaits else rig.receipts

        def append(rig: Rig = rig, kind: Any = kind) -> Any:
            return rig.intake.front.append(kind, "orders", b"value", b"key", None, [("a", b"1")], None)

        def purge(rig: Rig = rig) -> None:
            for batch in tuple(rig.accumulator.unresolved):
                rig.completion.fail(batch, PURGED)
            rig.witness.failures.clear()  # the last references to the batch

        waiters = [append()]
        if not awaits:
            waiters.clear()  # the last reference to the outcome
        with finalizer(allocation, purge):
            waiters += [append() for _ in range(3)]
        purge()
        if not awaits:
            assert all(isinstance(waiter.exception(), ProducerClosed) for waiter in waiters)
        assert rig.accumulator.memory.free == rig.accumulator.memory.limit


@pytest.mark.parametrize("awaits", [False, True])
async def test_append_in_a_finalizer_keeps_records_and_waiters(awaits: bool) -> None:
    for allocation in range(12):
        rig = Rig(records=open_records)
        kind: Any = rig.intake.awaits if awaits else rig.receipts

        def append(rig: Rig = rig, kind: Any = kind, headers: Any = (("a", b"1"),)) -> Any:
            return rig.intake.front.append(kind, "orders", b"value", b"key", None, headers, None)

        append()
        with finalizer(allocation, append):
            for _ in range(3):
                with pytest.raises(ValueError, match="cannot be encoded"):
                    append(headers=[("\ud800", b"1")])
                append()
        [batch] = rig.accumulator.unresolved
        assert sum(map(len, batch.stretches)) == len(batch.columns)
        assert 4 <= len(batch) <= 5


@pytest.mark.parametrize("before", [0, 1, 2])
async def test_callback_runs_when_a_finalizer_settles_its_record(before: int) -> None:
    for allocation in range(12):
        rig, calls = Rig(records=open_records), list[str]()
        receipt, other = rig.appended(), rig.appended()
        for _ in range(before):
            receipt.add_done_callback(partial(note, calls, "before"))

        def purge(rig: Rig = rig) -> None:
            for batch in tuple(rig.accumulator.unresolved):
                rig.completion.fail(batch, PURGED)

        with finalizer(allocation, purge):
            receipt.add_done_callback(partial(note, calls, "added"))
            other.add_done_callback(partial(note, calls, "other"))
        purge()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sorted(calls) == ["added", *["before"] * before, "other"]


@pytest.mark.parametrize("before", [0, 1, 2])
async def test_callback_that_a_finalizer_adds_runs(before: int) -> None:
    for allocation in range(12):
        rig, calls = Rig(records=open_records), list[str]()
        receipt, other = rig.appended(), rig.appended()
        for _ in range(before):
            receipt.add_done_callback(partial(note, calls, "before"))

        def add(receipt: Any = receipt, other: Any = other, calls: list[str] = calls) -> None:
            receipt.add_done_callback(lambda _: calls.append("finalizer"))
            other.add_done_callback(lambda _: calls.append("other"))

        with finalizer(allocation, add):
            receipt.add_done_callback(partial(note, calls, "added"))
        for batch in tuple(rig.accumulator.unresolved):
            rig.completion.fail(batch, PURGED)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ran = sorted(calls)
        assert ran in (["added", *["before"] * before], ["added", *["before"] * before, "finalizer", "other"])


async def test_comparison_may_cancel_the_receipt_of_a_callback() -> None:
    rig, calls = Rig(records=open_records), list[str]()
    receipt = rig.appended()

    class Callback:
        def __call__(self, _: object) -> None:
            calls.append("ran")

        def __eq__(self, other: object) -> bool:
            receipt.cancel()
            return False

        __hash__ = object.__hash__

    receipt.add_done_callback(Callback())
    receipt.remove_done_callback(calls.__len__)  # type: ignore[arg-type]
    for batch in tuple(rig.accumulator.unresolved):
        rig.completion.fail(batch, PURGED)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert calls == ["ran"]
