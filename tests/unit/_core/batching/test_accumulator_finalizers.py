"""An append in which another append runs: an allocation may start the garbage collector, and a finalizer may send a record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aioproducer._core.acceleration import accelerated
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.bulk import Rows, SendManyCall
from aioproducer._core.batching.waiters import acknowledgement_on
from aioproducer._core.records.columns import RecordColumns, open_records
from tests.cases import for_each
from tests.unit._core.batching.accumulator_rig import unresolved
from tests.unit.floor_rig import TOPIC, FloorRig

Send = Callable[[FloorRig, bytes, Any], Any]

RECORDS = pytest.mark.parametrize("records", [RecordColumns, open_records], ids=["columns", "buffer"])


class Armed:
    """A kind of waiter whose allocation number *at* runs an action first."""

    def __init__(self, kind: Any, at: int, action: Callable[[], object]) -> None:
        self._kind, self._left, self._action = kind, at, action

    def stretch(self) -> Any:
        self._count()
        return self._kind.stretch()

    def waiter(self) -> Any:
        self._count()
        return self._kind.waiter()

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._action()


def append(rig: FloorRig, value: bytes, kind: Any) -> Any:
    topic = rig.accumulator.topics[TOPIC]
    return rig.accumulator.append(topic, rig.queue(), value, b"key", (), None, 17 + len(value), kind)


def join(rig: FloorRig, value: bytes, kind: Any) -> Any:
    return rig.accumulator.append_to_open(rig.accumulator.topics[TOPIC], value, kind)


SENDS = pytest.mark.parametrize("send", [append, join])


def check(rig: FloorRig, waiters: dict[bytes, Any]) -> None:
    """Each record has its own waiter, and the memory is that of the batches."""
    batches = unresolved(rig)
    found = {
        value: batch.columns.values[index]
        for batch in batches
        for value, waiter in waiters.items()
        for index in batch.indices_of(waiter)
    }
    assert found == {value: value for value in waiters}
    assert rig.accumulator.memory.used == sum(batch.held for batch in batches)


@RECORDS
@SENDS
@for_each("at", [1, 2, 3, 4])
async def test_record_of_a_finalizer_keeps_its_waiter(send: Send, records: Any, at: int) -> None:
    rig, waiters = FloorRig(records=records), dict[bytes, Any]()

    def nested() -> None:
        waiters[b"nested"] = send(rig, b"nested", kind)

    kind = Armed(rig.receipts, at, nested)
    for value in (b"first", b"second", b"third"):
        waiters[value] = send(rig, value, kind)
    assert len(waiters) == 4
    check(rig, waiters)


@RECORDS
@SENDS
@pytest.mark.parametrize("other", [False, True], ids=["same_kind", "other_kind"])
async def test_record_of_a_finalizer_in_the_clock_keeps_its_waiter(
    send: Send, records: Any, other: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, waiters, call_soon = (
        FloorRig(records=records),
        dict[bytes, Any](),
        asyncio.get_running_loop().call_soon,
    )
    nested_kind = acknowledgement_on(rig.loop) if other else rig.receipts
    # The clock schedules a call at the second reading within one millisecond.
    monkeypatch.setattr("aioproducer._core.clock.wall_ms", lambda: 1)
    waiters[b"first"] = send(rig, b"first", rig.receipts)

    def nested(*args: Any, **named: Any) -> Any:
        monkeypatch.undo()
        rig.accumulator.clock.forget()
        waiter = send(rig, b"nested", nested_kind)
        if not other:
            waiters[b"nested"] = waiter
        return call_soon(*args, **named)

    monkeypatch.setattr(rig.loop, "call_soon", nested)
    waiters[b"second"] = send(rig, b"second", rig.receipts)
    [batch] = unresolved(rig)
    assert len(batch) == sum(map(len, batch.stretches)) == 3
    check(rig, waiters)


class Iterated(list[bytes]):
    """Values that run an action when they are read as a whole."""

    action: Callable[[], object] | None = None

    def __iter__(self) -> Iterator[bytes]:
        action, self.action = self.action, None
        if action is not None:
            action()
        return super().__iter__()

    def __getitem__(self, place: Any) -> Any:
        return self if isinstance(place, slice) else super().__getitem__(place)


def extend(rig: FloorRig, values: list[bytes]) -> None:
    count = len(values)
    rows = Rows(TOPIC, range(count), values, None, None, 5, None, [14 + len(value) for value in values])
    call = SendManyCall(TOPIC, count, rig.loop)
    assert rig.accumulator.extend(rig.accumulator.topics[TOPIC], rig.queue(), rows, call) == count


@RECORDS
async def test_memory_of_a_finalizer_is_counted_beside_rows(
    records: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, waiters, of_batch = FloorRig(records=records), dict[bytes, Any](), Batch.extend

    def armed(batch: Batch, *args: Any) -> int:
        monkeypatch.undo()
        waiters[b"nested"] = append(rig, b"nested", rig.receipts)
        return of_batch(batch, *args)

    monkeypatch.setattr(Batch, "extend", armed)
    extend(rig, [b"row"] * 3)
    assert len(waiters) == 1
    check(rig, waiters)


@pytest.mark.skipif(not accelerated, reason="buffers in C only")
async def test_memory_of_a_finalizer_is_counted_once_in_a_buffer() -> None:
    rig, waiters = FloorRig(records=open_records), dict[bytes, Any]()
    values = Iterated([b"row"] * 3)

    def nested() -> None:
        waiters[b"nested"] = append(rig, b"nested" * 100, rig.receipts)

    values.action = nested
    extend(rig, values)
    assert len(waiters) == 1
    [batch] = unresolved(rig)
    assert batch.columns.values == [b"nested" * 100, b"row", b"row", b"row"]
    assert rig.accumulator.memory.used == batch.held == batch.columns.held
