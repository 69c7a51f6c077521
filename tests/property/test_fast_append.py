"""FastAppend in C and in Python: equal effects for any records, in any state of the batches."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st

from aioproducer._core import clock
from aioproducer._core.batching.bulk import Rows
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.intake.appending import PendingAppend
from aioproducer._core.intake.fast_append import FastAppend
from aioproducer._core.partitioning import Murmur2Partitioner, Partitioner, RoundRobinPartitioner
from aioproducer._core.records.columns import RecordColumns, sizes
from aioproducer.errors import ProducerClosed
from tests.unit._core.intake.intake_rig import NOW_MS, Rig
from tests.unit.floor_rig import TOPIC

accelerator: Any = pytest.importorskip(
    "aioproducer._core._accelerator", reason="it was not built", exc_type=ImportError
)

PARTITIONS = 3


class Topic(StrEnum):
    ORDERS = TOPIC


class Bytes(bytes):
    def __bytes__(self) -> bytes:
        return b"other"

    def __len__(self) -> int:
        return 1


class Name(str):
    __slots__ = ()


class Header(NamedTuple):
    name: Any
    value: Any


class Number(int):
    def __index__(self) -> int:
        return 1


class Headers(dict[Any, Any]):
    def items(self) -> Any:
        return [("other", b"1")]


PLAIN = st.sampled_from([b"", b"a", b"aa", b"value", b"v" * 300, b"v" * 1_985, b"v" * 1_986])
DATA = st.one_of(
    PLAIN,
    PLAIN,
    PLAIN,
    st.sampled_from(
        [None, Bytes(b"bytes"), bytearray(b"array"), memoryview(b"view"), "text", 1, b"v" * 9_000]
    ),
)
NAMES = st.sampled_from(["", "trace", "größe", "\ud800", Topic.ORDERS, b"name", None, "n" * 700])
PAIRS = st.one_of(
    st.tuples(NAMES, DATA),
    st.tuples(st.just("trace"), PLAIN),
    st.builds(Header, st.just("trace"), PLAIN),
    st.sampled_from([["trace", b"1"], ("trace",), ("a", b"1", b"2"), None, "ab"]),
)
HEADERS = st.one_of(
    st.just(()),
    st.lists(PAIRS, max_size=3),
    st.lists(PAIRS, max_size=3).map(tuple),
    st.lists(st.tuples(st.just("trace"), PLAIN), max_size=70),
    st.dictionaries(st.sampled_from(["a", "b", Name("c")]), DATA, max_size=2),
    st.dictionaries(st.sampled_from(["a", "b"]), PLAIN, max_size=2).map(Headers),
    st.sampled_from([None, 0, "ab", b"ab", {}]),
)
PARTITION = st.sampled_from([*[None] * 4, 0, 1, 2, 3, -1, True, Number(2), 2**31, 2**70, -(2**70), 1.0, "1"])
TIME = st.sampled_from(
    [*[None] * 4, 0, NOW_MS, NOW_MS + 1, -1, 2**63 - 1, 2**63, 2**80, True, Number(7), 1.5, "1"]
)
TOPICS: st.SearchStrategy[Any] = st.sampled_from(
    [*[TOPIC] * 9, Topic.ORDERS, Name(TOPIC), "unknown", "", None, 1, [], "\ud800"]
)
RECORD = st.tuples(TOPICS, DATA, DATA | st.none(), PARTITION, HEADERS, TIME)
LONGEST = st.tuples(
    st.just(TOPIC),
    st.just(b"v" * 1_985),
    st.none(),
    st.just(None),
    st.sampled_from([b"", b"a", b"aa"]).map(lambda value: [("trace", value)]),
    st.just(None),
)
SIMPLE = st.tuples(st.just(TOPIC), PLAIN, st.none() | PLAIN, st.just(None), st.just(()), st.just(None))
STATES = [
    "seal",
    "lock",
    "unlock",
    "queue",
    "unqueue",
    "rows",
    "forget",
    "learn",
    "close",
    "fail",
    "await",
    "futures",
]
STEPS = st.lists(SIMPLE | LONGEST | RECORD | st.sampled_from(STATES), max_size=12)


class TwinRig(Rig):
    """An intake with the fast path in C, or in Python."""

    def __init__(self, *, in_c: bool, partitioner: Partitioner, records: Callable[[], Any]) -> None:
        super().__init__(
            partitions=PARTITIONS,
            partitioner=partitioner,
            records=records,
            batch_bytes=60_000,
            max_request_bytes=2_070,
        )
        self.kind: Any = self.receipts
        accumulator = self.accumulator
        if not in_c:
            self.intake.front = FastAppend(
                accumulator,
                partitioner,
                loop=self.loop,
                running_loop=asyncio.get_running_loop,
                choose=self.intake.choose,
                refused=self.intake.report_refused,
                known=self.intake._known,
                general=self.intake,
            )

    def change(self, state: str) -> None:  # noqa: C901 - one branch for each kind of change
        memory, topic = self.accumulator.memory, self.accumulator.topics.get(TOPIC)
        if state == "seal":
            for batch in tuple(self.accumulator.unresolved):
                if self.accumulator.queue(batch).open is batch:
                    self.accumulator.seal(batch, self.loop.time())
        elif state in {"lock", "unlock"} and topic is not None:
            topic.append_lock.held = state == "lock"
        elif state in {"queue", "unqueue"}:
            memory.waiters = deque([(10**9, self.loop.create_future(), None)] if state == "queue" else [])
        elif state == "rows" and topic is not None and topic.leaders and self.accumulator.closed_for is None:
            call: Any = FakeCall(self)
            values, keys = [b"row", None], [None, b"key"]
            rows = Rows(TOPIC, (0, 1), values, keys, None, NOW_MS, None, sizes(values, keys, None))
            self.accumulator.extend(topic, self.queue(1), rows, call)
        elif state in {"forget", "learn"}:
            self.accumulator.update_topic(TOPIC, [1] * (PARTITIONS if state == "learn" else 0))
        elif state == "close":
            self.accumulator.close(Failure(ProducerClosed, "closed"))
        elif state == "fail":
            for batch in tuple(self.accumulator.unresolved):
                self.completion.fail(batch, Failure(ProducerClosed, "failed"))
        else:
            self.kind = self.intake.awaits if state == "await" else self.receipts

    def step(self, step: Any) -> Any:
        if isinstance(step, str):
            return self.change(step)
        topic, value, key, partition, headers, at = step
        try:
            outcome = self.intake.front.append(self.kind, topic, value, key, partition, headers, at)
        except Exception as error:  # noqa: BLE001 - compared
            return type(error), str(error)
        if isinstance(outcome, PendingAppend):
            kept = ("topic", "value", "key", "partition", "headers")
            return [getattr(outcome, name) for name in kept]
        return isinstance(outcome, asyncio.Future)

    def all_records(self) -> list[Any]:
        topic = self.accumulator.topics.get(TOPIC)
        return [] if topic is None else [self.records(partition) for partition in range(PARTITIONS)]

    def check(self) -> None:
        held = sum(batch.held for batch in self.accumulator.unresolved)
        assert self.accumulator.memory.free == self.accumulator.memory.limit - held
        for batch in self.accumulator.unresolved:
            assert sum(map(len, batch.stretches)) == len(batch.columns)
            assert (batch.size, batch.held) == (batch.columns.size, batch.columns.held)


class FakeCall:
    """A `send_many` call, as far as the accumulator uses it."""

    def __init__(self, rig: TwinRig) -> None:
        self.rig = rig
        self.partitions: set[int] = set()

    def waiters(self, positions: Any, batch: Any) -> Any:
        stretch = self.rig.receipts.stretch()
        for _ in positions:
            stretch.append(self.rig.receipts.waiter())
        return stretch


async def compare(steps: list[Any], make: Callable[[], Partitioner]) -> None:
    rigs = [
        TwinRig(in_c=in_c, partitioner=make(), records=records)
        for in_c, records in (
            (True, accelerator.RecordBuffer),
            (False, accelerator.RecordBuffer),
            (True, RecordColumns),
        )
    ]
    for step in steps:
        first, *others = [rig.step(step) for rig in rigs]
        for other in others:
            assert first == other, step
        first, *others = [rig.all_records() for rig in rigs]
        for other in others:
            assert first == other, step
        for rig in rigs:
            rig.check()


@pytest.mark.parametrize("make", [Murmur2Partitioner, RoundRobinPartitioner])
@given(STEPS)
def test_both_fast_paths_append_alike(make: Callable[[], Partitioner], steps: list[Any]) -> None:
    with patch.object(clock, "wall_ms", lambda: NOW_MS), patch.object(random, "random", lambda: 0.5):
        asyncio.run(compare(steps, make))
