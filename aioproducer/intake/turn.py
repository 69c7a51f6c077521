"""A call's turn: records of a topic are appended in the order of the calls, also when a call has to wait."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from aioproducer.batching.accumulator import Accumulator
from aioproducer.batching.queues import TopicQueues
from aioproducer.cluster.refresher import Refresher
from aioproducer.errors import BufferTimeout, MetadataTimeout


def has_partition(queues: TopicQueues, partition: int | None) -> bool:
    """Whether the topic is known, and *partition*, if given, is one of its partitions."""
    return len(queues.leaders) > (partition or 0)


def no_such_partition(argument: str, topic: str, partition: int, count: int) -> ValueError:
    """Return the error for a partition that does not exist."""
    return ValueError(f"{argument}={partition}: {topic!r} has {count} partitions, 0 to {count - 1}")


class Turn:
    """`async with Turn(…)`: from here on this call is the only one that appends to the topic.

    Everything it waits for shares one *deadline* in loop time: `max_block_ms` bounds metadata and
    memory together. Cancelled or late, it leaves nothing behind, and the next call has its turn.
    """

    def __init__(
        self, queues: TopicQueues, deadline: float, *, accumulator: Accumulator, refresher: Refresher
    ) -> None:
        self._queues = queues
        self.deadline = deadline
        """When the present wait is over; who has several in one turn may move it."""
        self._accumulator = accumulator
        self._refresher = refresher
        self._began_at = asyncio.get_running_loop().time()

    async def __aenter__(self) -> Self:
        queues = self._queues
        queues.waiting += 1
        self._accumulator.callers += 1
        try:
            async with asyncio.timeout_at(self.deadline):
                await queues.order.acquire()
        except BaseException as error:
            self._leave()
            if isinstance(error, TimeoutError):
                raise self._late(
                    f"{queues.waiting} earlier calls for {queues.name!r} to be appended"
                ) from None
            raise
        if self._accumulator.closed_for is not None:
            await self.__aexit__(None, None, None)
            raise self._accumulator.closed_for.error()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._queues.order.release()
        self._leave()

    async def metadata(self, partition: int | None) -> None:
        """Wait until the topic's partitions are known; look again if *partition* is not among them.

        Raises: MetadataTimeout; ValueError if *partition* does not exist; what the cluster says against the topic.
        """
        queues, refresher = self._queues, self._refresher
        if has_partition(queues, partition):
            return
        if queues.leaders:  # partitions may have been added since we looked
            await refresher.topic(queues.name, self.deadline, anew=True)
        if not queues.leaders:
            info = await refresher.topic(queues.name, self.deadline)
            self._accumulator.update_topic(queues.name, [each.leader for each in info.partitions])
        if partition is not None and not has_partition(queues, partition):
            raise no_such_partition("partition", queues.name, partition, len(queues.leaders))

    async def memory(self, size: int) -> None:
        """Wait for *size* bytes of `buffer_memory`. Raises: BufferTimeout."""
        memory = self._accumulator.memory
        self._accumulator.wake()  # nothing lingers while somebody waits for memory
        try:
            await memory.take(size, self.deadline)
        except TimeoutError:
            raise self._late(f"{size:,} of buffer_memory={memory.limit:,} bytes") from None

    def _late(self, what: str) -> BufferTimeout | MetadataTimeout:
        waited_s = asyncio.get_running_loop().time() - self._began_at
        known = bool(self._queues.leaders)
        kind = BufferTimeout if known else MetadataTimeout
        return kind(f"waited {waited_s:.3f} s for {what}; max_block_ms or the call's timeout_s ran out")

    def _leave(self) -> None:
        queues = self._queues
        queues.waiting -= 1
        self._accumulator.callers -= 1
        if not self._accumulator.callers:
            self._accumulator.wake()  # a sender that is asked to finish waits for us
        if (
            not queues.leaders and queues.idle
        ):  # nothing came of it: a topic that does not exist leaves no trace
            self._accumulator.topics.pop(queues.name, None)
