"""`send_many`: columns in, straight into batches."""

from __future__ import annotations

from asyncio import CancelledError
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count, repeat
from typing import Any, Final

from aioproducer.batching.accumulator import Accumulator
from aioproducer.batching.bulk import SendManyCall
from aioproducer.batching.failure import Failure
from aioproducer.batching.queues import PartitionQueue, TopicQueues
from aioproducer.batching.rows import Rows
from aioproducer.batching.settler import Settler
from aioproducer.cluster.partitioner import chooses_columns
from aioproducer.errors import DeliveryTimeout, ProducerError, RecordTooLarge, SerializationError
from aioproducer.errors.send_many import SendManyResult
from aioproducer.intake.intake import Intake
from aioproducer.intake.pending import Pending
from aioproducer.intake.rows import check_rows
from aioproducer.intake.serializing import Contents, InContext, serialized
from aioproducer.intake.turn import Turn, no_such_partition
from aioproducer.records.sizes import sizes
from aioproducer.types import Headers

Group = tuple[PartitionQueue | None, Rows]
"""Rows and the queue they go to; None is the sticky one's."""

CHUNK_RECORDS: Final = 4096
"""After this many records the event loop gets a turn."""


class ManyIntake:
    """Takes the columns of `send_many` calls: chunk by chunk, partition by partition, as memory allows."""

    def __init__(self, intake: Intake, *, accumulator: Accumulator, settler: Settler) -> None:
        self._intake = intake
        self._settings = intake.settings
        self._accumulator = accumulator
        self._settler = settler
        self._partitioner = intake.settings.partitioner
        self._chooses_columns = chooses_columns(self._partitioner)

    def check(self, topic: str, values: Iterable[Any], **columns: Any) -> Rows:
        """Do as `check_rows`; what is serialized here may be anything."""
        later = (self._settings.value_serializer is not None, self._settings.key_serializer is not None)
        return check_rows(topic, values, serialized_later=later, **columns)

    async def send(self, rows: Rows, timeout_s: float | None) -> SendManyResult:
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
            await self._append(rows, call, deadline)
            await call.wait()
        finally:
            if timer is not None:
                timer.cancel()
        return call.result

    async def _append(self, rows: Rows, call: SendManyCall, deadline: float | None) -> None:
        queues = self._accumulator.topic(rows.topic)
        todo: deque[Group] = deque()
        planned = 0
        try:
            async with self._intake.turn(queues, self._block_deadline(deadline), records=len(rows)) as turn:
                if rows:
                    await turn.metadata(*_highest_partition(rows))
                while planned < len(rows):
                    chunk = rows.slice(planned, planned + CHUNK_RECORDS)
                    planned += len(chunk)
                    groups = self._by_queue(queues, self._prepared(chunk, call), call)
                    turn.settled(len(chunk) - sum(len(fit) for _, fit in groups))
                    todo.extend(groups)
                    while todo:
                        await self._append_first(turn, queues, todo, call, deadline)
                    if planned < len(rows):
                        await turn.pause()
                        self._check_time(rows.topic, deadline)
        except ProducerError as error:
            for _, rest in todo:
                self._fail(rest, error, call)
            call.failed(rows.positions[planned:], _failure(error))  # interceptors have not seen these
            self._settings.on_refused(len(rows) - planned, error)
        except CancelledError:
            for _, rest in todo:
                self._tell(rest, CancelledError)
            raise
        finally:
            self._seal(queues, call)

    async def _append_first(
        self,
        turn: Turn,
        queues: TopicQueues,
        todo: deque[Group],
        call: SendManyCall,
        deadline: float | None,
    ) -> None:
        """Append the first of *todo* and take it off; while it waits for memory, only what is left of it is there."""
        reserved = 0
        while True:
            queue, rows = todo[0]
            done = self._accumulator.extend(queues, queue, rows, call, reserved)
            turn.settled(done)
            if done == len(rows):
                todo.popleft()
                return
            todo[0] = queue, rows.slice(done, len(rows))
            turn.deadline = self._block_deadline(deadline)  # a wait of its own, as each `send` has
            reserved = self._accumulator.room_for(rows.sizes[done])
            await turn.memory(reserved)

    def _prepared(self, rows: Rows, call: SendManyCall) -> Rows:
        """Return *rows* ready to be appended: intercepted, serialized, measured; what fails, fails alone."""
        settings = self._settings
        if settings.interceptors:
            rows = self._intercepted(rows, call)
        if self._intake.in_context is not None:
            rows = self._serialized_in_context(self._intake.in_context, rows, call)
        elif settings.value_serializer is not None or settings.key_serializer is not None:
            rows = self._serialized(rows, call)
        rows = replace(rows, sizes=sizes(rows.values, rows.keys, rows.headers))
        if max(rows.sizes, default=0) <= self._accumulator.largest_record:
            return rows
        failures: dict[int, ProducerError] = {}
        for index, size in enumerate(rows.sizes):
            try:
                self._accumulator.check_size(rows.topic, size)
            except RecordTooLarge as error:
                failures[index] = error
        return self._without(failures, rows, call)

    def _intercepted(self, rows: Rows, call: SendManyCall) -> Rows:
        kept: list[int] = []
        pended: list[Pending] = []
        for index in range(len(rows)):
            arguments = (
                rows.topic,
                rows.values[index],
                None if rows.keys is None else rows.keys[index],
                rows.partition(index),
                _headers(rows, index),
                rows.timestamps_ms if isinstance(rows.timestamps_ms, int) else rows.timestamps_ms[index],
            )
            try:
                pending = self._intake.pend(*arguments)
            except ProducerError as error:  # the interceptors have heard of it
                call.failed([rows.positions[index]], _failure(error))
                continue
            if pending.topic != rows.topic:
                moved = ProducerError(
                    f"an interceptor moved a record from {rows.topic!r} to {pending.topic!r};"
                    " send_many writes to one topic"
                )
                self._intake.tell(rows.topic, pending.partition, pending.headers, moved)
                call.failed([rows.positions[index]], _failure(moved))
                continue
            kept.append(index)
            pended.append(pending)
        partitions = [each.partition for each in pended]
        return replace(
            rows if len(kept) == len(rows) else rows.take(kept),
            values=[each.value for each in pended],
            keys=[each.key for each in pended],
            headers=[each.headers for each in pended],
            timestamps_ms=[each.timestamp_ms for each in pended],
            partitions=partitions if partitions.count(None) < len(partitions) else None,
        )

    def _serialized(self, rows: Rows, call: SendManyCall) -> Rows:
        intake, topic = self._intake, rows.topic
        values: list[bytes | None] = []
        keys: list[bytes | None] = []
        failures: dict[int, ProducerError] = {}
        for index, value in enumerate(rows.values):
            key = None if rows.keys is None else rows.keys[index]
            position = rows.positions[index]
            try:
                serialized_key = serialized("key", intake.key_serializer, topic, key, position)
                serialized_value = serialized("value", intake.value_serializer, topic, value, position)
            except SerializationError as error:
                failures[index] = error
                serialized_key = serialized_value = None
            keys.append(serialized_key)
            values.append(serialized_value)
        return self._without(failures, replace(rows, values=values, keys=keys), call)

    def _serialized_in_context(self, serialize: InContext, rows: Rows, call: SendManyCall) -> Rows:
        contents: list[Contents] = []
        failures: dict[int, ProducerError] = {}
        for index, value in enumerate(rows.values):
            key, headers = None if rows.keys is None else rows.keys[index], _headers(rows, index)
            try:
                made = serialize(rows.topic, headers, key, value, rows.positions[index])
            except SerializationError as error:
                failures[index] = error
                made = Contents(None, None, headers)
            contents.append(made)
        prepared = replace(
            rows,
            values=[each.value for each in contents],
            keys=[each.key for each in contents],
            headers=[each.headers for each in contents],
        )
        return self._without(failures, prepared, call)

    def _by_queue(self, queues: TopicQueues, rows: Rows, call: SendManyCall) -> list[Group]:
        """Return *rows* by the queue they go to, in order within each; those that have none fail."""
        if rows.partitions is None and rows.keys is None and self._partitioner.keyless_is_sticky:
            return [(None, rows)]
        if isinstance(rows.partitions, int):
            return [(queues[rows.partitions], rows)]
        if self._chooses_columns and rows.partitions is None and rows.keys and None not in rows.keys:
            return self._by_key(queues, rows, call)
        indices: dict[PartitionQueue | None, list[int]] = {}
        failures: dict[int, ProducerError] = {}
        count = len(queues.leaders)
        keys = rows.keys if rows.keys is not None else repeat(None)
        chosen = rows.partitions if rows.partitions is not None else repeat(None)
        for index, (_, key, partition) in enumerate(zip(rows.values, keys, chosen)):  # noqa: B905 - endless columns
            try:
                if partition is None:
                    queue = self._intake.choose(queues, key)
                elif partition < count:
                    queue = queues[partition]
                else:  # an interceptor's choice; the caller's own were looked at before
                    raise ProducerError(str(no_such_partition("partition", rows.topic, partition, count)))  # noqa: TRY301
            except ProducerError as error:
                failures[index] = error
                continue
            try:
                indices[queue].append(index)
            except KeyError:
                indices[queue] = [index]
        if None in indices and len(indices) > 1:
            # For some any partition will do, but not any order among them and the others there: they share one.
            free = indices.pop(None)
            queue = queues.switch()
            indices[queue] = sorted(indices.get(queue, []) + free)
        self._without(failures, rows, call)
        return [(queue, rows.take(of_queue)) for queue, of_queue in indices.items()]

    def _by_key(self, queues: TopicQueues, rows: Rows, call: SendManyCall) -> list[Group]:
        """Do as `_by_queue` for records that all have a key, with one call of the partitioner."""
        try:
            chosen = self._intake.choose_column(queues, rows.keys or ())
        except ProducerError as error:
            self._fail(rows, error, call)
            return []
        indices: defaultdict[int, list[int]] = defaultdict(list)
        deque(map(list.append, map(indices.__getitem__, chosen), count()), maxlen=0)  # a loop, at C speed
        return [(queues[partition], rows.take(of_partition)) for partition, of_partition in indices.items()]

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

    def _without(self, failures: Mapping[int, ProducerError], rows: Rows, call: SendManyCall) -> Rows:
        """Return *rows* but for those that failed, of which *call* is told."""
        if not failures:
            return rows
        for index, error in failures.items():
            self._fail(rows.take([index]), error, call)
        return rows.take([index for index in range(len(rows)) if index not in failures])

    def _fail(self, rows: Rows, error: ProducerError, call: SendManyCall) -> None:
        """Let *rows*, which interceptors have seen, fail before they are appended."""
        failure = _failure(error)
        self._tell(rows, failure.error)
        call.failed(rows.positions, failure)

    def _tell(self, rows: Rows, error: Callable[[], BaseException]) -> None:
        for index in range(len(rows)):
            self._intake.tell(rows.topic, rows.partition(index), _headers(rows, index), error())


def _failure(error: ProducerError) -> Failure:
    return Failure(type(error), str(error), cause=error.__cause__)


def _highest_partition(rows: Rows) -> tuple[int | None, str]:
    """Return the highest partition that is asked for by number, and where."""
    highest = rows.highest_partition()
    if highest is None or not isinstance(rows.partitions, Sequence):
        return highest, "partition"
    return highest, f"partitions[{rows.partitions.index(highest)}]"


def _headers(rows: Rows, index: int) -> Headers:
    return () if rows.headers is None else rows.headers[index]
