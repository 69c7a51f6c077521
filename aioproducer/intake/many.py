"""`send_many`: columns in, straight into batches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Final

from aioproducer.batching.accumulator import Accumulator
from aioproducer.batching.bulk import SendManyCall
from aioproducer.batching.queues import TopicQueues
from aioproducer.batching.rows import Rows
from aioproducer.batching.settler import Settler
from aioproducer.errors import DeliveryTimeout, ProducerError
from aioproducer.errors.send_many import SendManyResult
from aioproducer.intake.checks import check_timeout
from aioproducer.intake.convoy import Convoy
from aioproducer.intake.intake import Intake
from aioproducer.intake.preparing import Group, Preparing, failure
from aioproducer.intake.rows import check_rows
from aioproducer.intake.turn import Caller, has_partition

CHUNK_RECORDS: Final = 4096
"""After so many records others have their turn: calls that wait for the topic, and the event loop."""


class ManyIntake:
    """Takes the columns of `send_many` calls: chunk by chunk, partition by partition, as memory allows."""

    def __init__(self, intake: Intake, *, accumulator: Accumulator, settler: Settler) -> None:
        self._intake = intake
        self._settings = intake.settings
        self._accumulator = accumulator
        self._settler = settler
        self._preparing = Preparing(intake, accumulator=accumulator)

    async def send_columns(
        self,
        topic: str,
        values: Iterable[Any],
        timeout_s: float | None,
        convoy: Convoy | None = None,
        **columns: Any,
    ) -> SendManyResult:
        """Check the arguments of a `send_many` call, and carry it out; in *convoy*, behind what is in it already.

        Raises: as `Producer.send_many`.
        """
        self._intake.check_loop()
        later = (self._settings.value_serializer is not None, self._settings.key_serializer is not None)
        rows = check_rows(topic, values, serialized_later=later, **columns)
        if timeout_s is not None:
            timeout_s = check_timeout("timeout_s", timeout_s)
        result = await self.send(rows, timeout_s, convoy)
        result.raise_failures()
        return result

    async def send(self, rows: Rows, timeout_s: float | None, convoy: Convoy | None = None) -> SendManyResult:
        """Append all of *rows* and wait for their outcomes.

        Cancelling stops the appending and the waiting; what was appended goes on.
        """
        loop = self._intake.loop
        call = SendManyCall(rows.topic, len(rows), loop)
        deadline = timer = None
        if timeout_s is not None:
            deadline = loop.time() + timeout_s
            timer = loop.call_at(deadline, self._expire, call, timeout_s)
        try:
            await self._append(rows, call, deadline, convoy)
            await call.wait()
        finally:
            if timer is not None:
                timer.cancel()
        return call.result

    async def _append(
        self, rows: Rows, call: SendManyCall, deadline: float | None, convoy: Convoy | None
    ) -> None:
        queues = self._accumulator.topic(rows.topic)
        left = _Left(rows)
        try:
            with self._intake.caller(queues, len(rows)) as caller:
                until = self._block_deadline(deadline)
                async with nullcontext() if convoy is None else convoy.turn(rows.topic, until):
                    await self._append_chunks(left, call, deadline, queues, caller)
        except ProducerError as error:
            for rest in left.begun():
                self._preparing.fail(rest, error, call)
            call.failed(left.untouched(), failure(error))  # interceptors have not seen these
            self._settings.on_refused(len(left.untouched()), error)
        except asyncio.CancelledError:
            for rest in left.begun():
                self._preparing.tell(rest, asyncio.CancelledError)
            raise
        finally:
            self._seal(queues, call)

    async def _append_chunks(
        self, left: _Left, call: SendManyCall, deadline: float | None, queues: TopicQueues, caller: Caller
    ) -> None:
        """Append all there is, with a turn for each chunk: other calls wait for one chunk at most."""
        partition, argument = _highest_partition(left.rows, queues)
        while left:
            until = self._block_deadline(deadline)
            async with caller.turn(until, partition=partition, argument=argument) as turn:
                partition = None  # that one is there
                if not left.groups:
                    self._prepare_chunk(left, call, queues, caller)
                self._extend(left, call, queues, caller)
                patience = self._patience(queues)
                while left.groups and patience > 0:
                    turn.deadline = self._block_deadline(deadline)  # a wait of its own, as each `send` has
                    reserved = self._accumulator.room_for(left.groups[0][1].sizes[0])
                    await turn.memory(reserved)
                    patience -= self._extend(left, call, queues, caller, reserved)
            if left and not left.groups:
                await asyncio.sleep(0)
                self._check_time(left.rows.topic, deadline)

    def _prepare_chunk(self, left: _Left, call: SendManyCall, queues: TopicQueues, caller: Caller) -> None:
        before = len(left)
        if not left.prepared:
            left.prepared, taken = self._preparing.prepared(left.chunk(), call)
            left.taken += taken
        groups, taken = self._preparing.grouped(queues, left.prepared, call)
        left.prepared = left.prepared.slice(taken, len(left.prepared))
        left.groups.extend(groups)
        caller.settled(before - len(left))  # those that have failed

    def _extend(
        self, left: _Left, call: SendManyCall, queues: TopicQueues, caller: Caller, reserved: int = 0
    ) -> int:
        """Append as many groups, from the first one on, as memory allows; return the size of what had to wait for it."""
        size, measured = 0, bool(reserved)
        while left.groups:
            queue, rows = left.groups[0]
            done = self._accumulator.extend(queues, queue, rows, call, reserved)
            reserved = 0
            caller.settled(done)
            if measured:
                size += sum(rows.sizes[:done])
            if done < len(rows):
                left.groups[0] = queue, rows.slice(done, len(rows))
                break
            left.groups.popleft()
        return size

    def _patience(self, queues: TopicQueues) -> int:
        """Return for how many bytes to wait in a turn: small calls are not torn apart, and others not held up for long."""
        return max(1, min(queues.batch_bytes, self._accumulator.memory.limit // 4))

    def _check_time(self, topic: str, deadline: float | None) -> None:
        if deadline is not None and self._intake.loop.time() >= deadline:
            raise DeliveryTimeout(f"{topic!r}: not appended within the call's timeout_s")

    def _block_deadline(self, deadline: float | None) -> float:
        block_s = min(self._settings.max_block_s, self._accumulator.settings.delivery_timeout_s)
        until = self._intake.loop.time() + block_s
        return until if deadline is None else min(until, deadline)

    def _seal(self, queues: TopicQueues, call: SendManyCall) -> None:
        """Let the call's last batches go: it never lingers."""
        now = self._intake.loop.time()
        for partition in call.partitions:
            batch = queues[partition].open
            if batch is not None and batch.holds(call):
                self._accumulator.seal(batch, now)

    def _expire(self, call: SendManyCall, timeout_s: float) -> None:
        for batch in tuple(self._accumulator.unresolved):
            if batch.holds(call):
                self._settler.expire_waiter(batch, call, self._intake.expired(batch, timeout_s))


class _Left:
    """What is left of a call: rows that were not looked at, and those that are on their way."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.taken = 0
        """How many of `rows` were looked at."""
        self.prepared: Rows = rows.slice(0, 0)
        """Of those, what has no partition yet."""
        self.groups: deque[Group] = deque()
        """What only needs memory."""

    def __len__(self) -> int:
        return len(self.rows) - self.taken + sum(map(len, self.begun()))

    def chunk(self) -> Rows:
        """Return those to look at next."""
        return self.rows.slice(self.taken, self.taken + CHUNK_RECORDS)

    def begun(self) -> Iterator[Rows]:
        """Return all that interceptors have seen."""
        for _, rows in self.groups:
            yield rows
        yield self.prepared

    def untouched(self) -> Sequence[int]:
        """Return the positions of all others."""
        return self.rows.positions[self.taken :]


def _highest_partition(rows: Rows, queues: TopicQueues) -> tuple[int | None, str]:
    """Return the highest partition that is asked for by number, and where, if it is not known to be there."""
    highest = rows.highest_partition()
    if highest is None or has_partition(queues, highest) or not isinstance(rows.partitions, Sequence):
        return highest, "partition"
    return highest, f"partitions[{rows.partitions.index(highest)}]"
