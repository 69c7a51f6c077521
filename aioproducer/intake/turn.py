"""A call's turn: records of a topic are appended in the order of the calls, also when a call has to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from aioproducer.batching.accumulator import Accumulator
from aioproducer.batching.batch import Appended
from aioproducer.batching.queues import TopicQueues
from aioproducer.cluster.refresher import Refresher
from aioproducer.errors import BufferTimeout, MetadataTimeout


def has_partition(queues: TopicQueues, partition: int | None) -> bool:
    """Whether the topic is known, and *partition*, if given, is one of its partitions."""
    return len(queues.leaders) > (partition or 0)


def no_such_partition(argument: str, topic: str, partition: int, count: int) -> ValueError:
    """Return the error for a partition that does not exist."""
    those = "1 partition, 0" if count == 1 else f"{count} partitions, 0 to {count - 1}"
    return ValueError(f"{argument}={partition}: {topic!r} has {those}")


def earlier_calls(queues: TopicQueues) -> str:
    """Return, for a message, how many calls for the topic are in line."""
    count = queues.line.length
    return f"{count} earlier call{'' if count == 1 else 's'} for {queues.name!r}"


class Turn:
    """`async with Turn(…)`: from here on this call is the only one that appends to the topic.

    Everything it waits for shares one *deadline* in loop time: `max_block_ms` bounds metadata and
    memory together. Cancelled or late, it leaves nothing behind, and the next call has its turn.
    Whatever it waited for, it raises what the producer was closed for, if it was meanwhile.
    """

    def __init__(
        self,
        queues: TopicQueues,
        deadline: float,
        *,
        records: int,
        attempt: Callable[[], Appended | None],
        accumulator: Accumulator,
        refresher: Refresher,
    ) -> None:
        self._queues = queues
        self._records = records
        self._attempt = attempt
        self.deadline = deadline
        """When the present wait is over; who has several in one turn may move it."""
        self.appended: Appended | None = None
        """What *attempt* returned, if the call before us has made it for us: then nothing is left to do."""
        self._accumulator = accumulator
        self._refresher = refresher
        self._began_at = asyncio.get_running_loop().time()

    async def __aenter__(self) -> Self:
        queues = self._queues
        self._accumulator.callers += 1
        self._accumulator.arriving += self._records
        try:
            self.appended = await queues.line.enter(self.deadline, self._try)
        except BaseException as error:
            self._gone()
            if isinstance(error, TimeoutError):
                raise self._late(f"{earlier_calls(queues)} to be appended") from None
            raise
        if self.appended is None and self._accumulator.closed_for is not None:
            self._end()
            raise self._accumulator.closed_for.error()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def settled(self, records: int) -> None:
        """Note that so many records of the call have been appended, or have failed."""
        self._accumulator.arriving -= records
        self._records -= records

    async def metadata(self, partition: int | None, argument: str = "partition") -> None:
        """Wait until the topic's partitions are known; look again if *partition*, given as *argument*, is not there.

        Raises: MetadataTimeout; ValueError if *partition* does not exist; what the cluster says against the topic.
        """
        queues, refresher = self._queues, self._refresher
        if has_partition(queues, partition):
            return
        info = await refresher.topic(queues.name, self.deadline)
        if partition is not None and partition >= len(info.leaders):  # it may have been added since we looked
            info = await refresher.topic(queues.name, self.deadline, anew=True)
        self._accumulator.update_topic(queues.name, info.leaders, info.topic_id)
        self._check_open()
        if partition is not None and not has_partition(queues, partition):
            raise no_such_partition(argument, queues.name, partition, len(queues.leaders))

    async def memory(self, size: int) -> None:
        """Wait for *size* bytes of `buffer_memory`. Raises: BufferTimeout."""
        memory = self._accumulator.memory
        self._accumulator.wake()  # nothing lingers while somebody waits for memory
        try:
            await memory.take(size, self.deadline)
        except TimeoutError:
            raise self._late(f"{size:,} of buffer_memory={memory.limit:,} bytes") from None
        if self._accumulator.closed_for is not None:
            memory.give_back(size)
        self._check_open()

    async def pause(self) -> None:
        """Let others run: a call that appends much must not keep the event loop to itself."""
        await asyncio.sleep(0)
        self._check_open()

    def _check_open(self) -> None:
        if self._accumulator.closed_for is not None:
            raise self._accumulator.closed_for.error()

    def _late(self, what: str) -> BufferTimeout | MetadataTimeout:
        waited_s = asyncio.get_running_loop().time() - self._began_at
        known = bool(self._queues.leaders)
        kind = BufferTimeout if known else MetadataTimeout
        return kind(f"waited {waited_s:.3f} s for {what}; max_block_ms or the call's timeout_s ran out")

    def _try(self) -> Appended | None:
        appended = self._attempt() if self._accumulator.closed_for is None else None
        if appended is not None:
            self.settled(self._records)
        return appended

    def _end(self) -> None:
        try:
            if self.appended is None:
                self._queues.line.leave()
        finally:
            self._gone()

    def _gone(self) -> None:
        queues = self._queues
        self._accumulator.callers -= 1
        self._accumulator.arriving -= self._records
        if not self._accumulator.callers:
            self._accumulator.wake()  # a sender that is asked to finish waits for us
        if not queues.leaders:  # nothing came of it: a topic that does not exist leaves no trace
            self._accumulator.update_topic(queues.name, ())
