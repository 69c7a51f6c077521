"""What the tests of turns need: calls that take theirs, and a cluster that says which partitions there are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aioproducer.batching.batch import Appended
from aioproducer.batching.topic import TopicQueues
from aioproducer.batching.waiters import Failure
from aioproducer.errors import (
    ProducerClosed,
)
from aioproducer.intake.appending import AppendPermit, Caller
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

    def caller(self, records: int = 1) -> Caller:
        return Caller(self.queues, records, accumulator=self.accumulator, updater=self.updater.real)

    @asynccontextmanager
    async def permit(self, deadline: float = FOREVER, **more: Any) -> AsyncIterator[AppendPermit]:
        """The permit of a call that appends one record and has no other."""
        with self.caller() as caller:
            async with caller.permit(deadline, **more) as permit:
                yield permit

    async def call(self, order: list[Any], name: object, **more: Any) -> None:
        """Wait for a turn, and note that in *order*."""
        async with self.permit(**more):
            order.append(name)

    def serve(self, order: list[Any], name: object) -> Appended:
        """Make the attempt of a call: append a record, and note that in *order*."""
        order.append(name)
        future, batch = self.append(), self.queue().open
        assert batch is not None
        return Appended(future, batch, len(batch) - 1)

    def answer(self, *leaders: int) -> None:
        """Let the cluster say that the topic has these partitions, to all who have asked."""
        asked, self.updater.asked = self.updater.asked, []
        self.learn(TOPIC, *leaders)
        for _, _, answered in asked:
            if not answered.done():
                answered.set_result(topic_info(TOPIC, *leaders))

    @contextmanager
    def nothing_left_behind(self) -> Iterator[None]:
        """Check that the turns in the body leave nobody waiting, and the memory as it was."""
        free = self.accumulator.memory.free
        yield
        assert self.accumulator.callers == 0
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
