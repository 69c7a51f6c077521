"""Rig for tests of waiting calls: calls that take turns, and a cluster that responds with partitions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aioproducer._core.batching.accumulator import Ready
from aioproducer._core.batching.topic import TopicQueues
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.intake.appending import PendingAppend, WaitingCall
from aioproducer.errors import ProducerClosed
from tests.fakes import topic_info
from tests.unit.floor_rig import TOPIC, FloorRig

FOREVER = 1e9
CLOSED = Failure(ProducerClosed, "closed")


class Rig(FloorRig):
    def __init__(self, *, partitions: int = 2, buffer_bytes: int = 1_000) -> None:
        super().__init__(partitions=partitions, buffer_bytes=buffer_bytes)

    @property
    def queues(self) -> TopicQueues:
        return self.accumulator.topic(TOPIC)

    @contextmanager
    def caller(self, records: int = 1, call: WaitingCall | None = None) -> Iterator[WaitingCall]:
        """Return a call with *records* to append; other calls make no attempt for it by default."""
        call = call or WaitingCall()
        if not isinstance(call, PendingAppend):
            call.partition = None
            call.begin(self.queues, self.accumulator, self.updater.real)
        try:
            call.enter(records)
            yield call
        except BaseException as error:
            call.end(error)
            raise
        call.end()

    @asynccontextmanager
    async def permit(
        self, deadline: float = FOREVER, *, partition: int | None = None, argument: str = "partition"
    ) -> AsyncIterator[WaitingCall]:
        """Run the turn of a call with one record."""
        with self.caller() as call:
            call.partition, call.argument = partition, argument
            assert not await call.take_turn(deadline)
            yield call

    async def call(self, order: list[Any], name: object, deadline: float = FOREVER, **more: Any) -> None:
        """Wait for a turn, and note that in *order*."""
        async with self.permit(deadline, **more):
            order.append(name)

    def pending(self, serialize: Callable[[], object], partition: int | None = None) -> PendingAppend:
        """Return a record whose first attempt calls *serialize*."""

        def prepare(queues: TopicQueues, pending: PendingAppend) -> Ready:
            serialize()
            queue = queues[0] if partition is None else queues[partition]
            return queue, pending.value, None, (), pending.timestamp_ms, 100

        pending = PendingAppend(TOPIC, b"v", None, partition, (), 1)
        pending.begin_at(
            self.loop.time(), self.queues, self.accumulator, self.updater.real, prepare, self.receipts
        )
        return pending

    async def served(self, pending: PendingAppend) -> None:
        """Wait until another call has appended *pending*."""
        with self.caller(1, pending):
            assert await pending.take_turn(FOREVER)

    def answer(self, *leaders: int) -> None:
        """Answer all metadata requests for the topic with these partitions."""
        asked, self.updater.asked = self.updater.asked, []
        self.learn(TOPIC, *leaders)
        for _, _, answered in asked:
            if not answered.done():
                answered.set_result(topic_info(TOPIC, *leaders))

    @contextmanager
    def nothing_left_behind(self) -> Iterator[None]:
        """Check that the turns in the body leave no waiting call and the memory unchanged."""
        free = self.accumulator.memory.free
        yield
        assert len(self.accumulator.pending_calls) == 0
        assert self.accumulator.arriving == 0
        assert self.accumulator.memory.free == free
        assert not self.accumulator.memory.waiters
        queues = self.accumulator.topics.get(TOPIC)
        assert queues is None or (
            queues.append_lock.calls,
            len(queues.pending_calls),
            queues.awaiting_partition,
        ) == (
            0,
            0,
            {},
        )
