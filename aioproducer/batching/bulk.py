"""What a `send_many` call and the batches that its records went to have to do with each other.

Imported by the first such call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aioproducer.batching.failure import Failure
from aioproducer.batching.waiters import Delivered, Waiter
from aioproducer.errors.send_many import DeliveredRun, SendManyResult


class SendManyCall:
    """A `send_many` call: its result, and who waits for that."""

    __slots__ = ("_done", "_outstanding", "partitions", "result")

    def __init__(self, topic: str, total: int, loop: asyncio.AbstractEventLoop) -> None:
        self.result: SendManyResult = SendManyResult(topic, total)
        self.partitions: set[int] = set()
        """Those its records went to."""
        self._outstanding = total
        self._done: asyncio.Future[None] = loop.create_future()
        if total == 0:
            self._done.set_result(None)

    def delivered(self, run: DeliveredRun) -> None:
        """Note the records of *run* as acknowledged."""
        self.result.add_delivered(run)
        self._count_down(len(run.positions))

    def failed(self, positions: Sequence[int], failure: Failure) -> None:
        """Note the records at *positions* as failed."""
        for position in positions:
            self.result.add_failed(position, failure.error())
        self._count_down(len(positions))

    def waiters(self, positions: Sequence[int]) -> CallWaiters:
        """Return the call as what waits for the records at *positions*."""
        return CallWaiters(self, positions)

    async def wait(self) -> None:
        """Wait until every record is settled. Cancelling only stops the waiting."""
        await asyncio.shield(self._done)

    def _count_down(self, count: int) -> None:
        self._outstanding -= count
        if self._outstanding == 0 and not self._done.done():  # nothing (count 0) may follow the last one
            self._done.set_result(None)


class CallWaiters:
    """Records of one `send_many` call."""

    __slots__ = ("call", "positions")

    def __init__(self, call: SendManyCall | None, positions: Sequence[int]) -> None:
        self.call = call
        """None once the call has given up waiting."""
        self.positions: Sequence[int] = positions

    def __len__(self) -> int:
        return len(self.positions)

    def resolve(self, delivered: Delivered) -> None:
        """Add them to the call's result."""
        _, partition, base, timestamps, log_append = delivered
        if self.call is not None:
            self.call.delivered(DeliveredRun(self.positions, partition, base, timestamps, log_append))

    def fail(self, failure: Failure) -> None:
        """Add each record to the call's failures."""
        if self.call is not None:
            self.call.failed(self.positions, failure)

    def take(self, indices: Sequence[int]) -> CallWaiters:
        """Return those of the positions at *indices*."""
        return CallWaiters(self.call, [self.positions[index] for index in indices])

    def indices_of(self, waiter: Waiter) -> Sequence[int]:
        """Return all of them if the call *waiter* is ours."""
        return range(len(self.positions)) if self.call is waiter else ()

    def detach(self, waiter: Waiter, failure: Failure) -> None:
        """Fail the positions now and let the call go."""
        if self.call is waiter:
            self.fail(failure)
            self.call = None
