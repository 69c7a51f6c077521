"""Preparation of `send_many` records before their append, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Final, cast

from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.bulk import Rows, SendManyCall
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.batching.topic import TopicQueues
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.intake.appending import Begun, PendingAppend, no_such_partition
from aioproducer._core.intake.intake import Intake
from aioproducer._core.intake.serializing import Contents, InContext, SerializerAwaits, serialized
from aioproducer._core.partitioning import chooses_columns
from aioproducer._core.records.columns import sizes
from aioproducer.errors import ProducerError, RecordTooLarge, SerializationError
from aioproducer.types import Headers

Group = tuple[PartitionQueue | None, Rows]
"""Rows, and their queue; None in place of the queue means the sticky partition."""

USER_CODE_SLICE_S: Final = 0.004
"""Maximum time of user code for consecutive records before the call yields to the event loop, in seconds."""
CHECK_EVERY: Final = 8
"""Number of records between two reads of the clock."""


class Preparing:
    """Passes the rows of `send_many` calls through interceptors, serializers and partitioners. Each row fails alone.

    With user code per record, a method processes as many rows as `USER_CODE_SLICE_S` allows, and returns their number.
    """

    def __init__(self, intake: Intake, *, accumulator: Accumulator) -> None:
        self._intake = intake
        self._accumulator = accumulator
        self._interceptors = intake.settings.interceptors
        self._partitioner = intake.settings.partitioner
        self._chooses_columns = chooses_columns(self._partitioner)
        self.begun: Begun | None = None
        """Record after the rows processed by the last call of `prepared`, if the record's serializer returned an awaitable."""

    def prepared(self, rows: Rows, call: SendManyCall) -> tuple[Rows, int]:
        """Intercept, serialize and measure the first of *rows*; return the valid rows and the number of processed rows."""
        taken, self.begun = len(rows), None
        if self._interceptors:
            rows, taken = self._intercepted(rows, call)
        elif self._intake.in_context is not None:
            rows, taken = self._serialized_in_context(self._intake.in_context, rows, call)
        elif self._intake.value_serializer is not None or self._intake.key_serializer is not None:
            rows, taken = self._serialized(rows, call)
        return self.measured(rows, call), taken

    def intercepted(self, rows: Rows, index: int) -> PendingAppend:
        """Return a row after the interceptors. Raises: ProducerError, after notifying the interceptors."""
        pending = self._intake.check(
            rows.topic,
            rows.values[index],
            None if rows.keys is None else rows.keys[index],
            rows.partition(index),
            _headers(rows, index),
            rows.timestamps_ms if isinstance(rows.timestamps_ms, int) else rows.timestamps_ms[index],
        )
        if pending.topic != rows.topic:
            error = ProducerError(
                f"an interceptor moved a record from {rows.topic!r} to {pending.topic!r};"
                " send_many writes to one topic"
            )
            self._intake.report_refused(rows.topic, pending.partition, pending.headers, error)
            raise error
        return pending

    def measured(self, rows: Rows, call: SendManyCall) -> Rows:
        """Return serialized *rows* with their sizes; rows that are too large fail and are left out."""
        rows = replace(rows, sizes=sizes(rows.values, rows.keys, rows.headers))
        if max(rows.sizes, default=0) > self._accumulator.settings.largest_record:
            rows = self._without_too_large(rows, call)
        return rows

    def grouped(self, queues: TopicQueues, rows: Rows, call: SendManyCall) -> tuple[list[Group], int]:
        """Return the first of *rows* grouped by queue, in order within each group, and the number of processed rows."""
        if not rows:  # all rows have failed
            return [], 0
        if rows.partitions is None and rows.keys is None and self._partitioner.keyless_is_sticky:
            return [(None, rows)], len(rows)
        if isinstance(rows.partitions, int):
            return [(queues[rows.partitions], rows)], len(rows)
        asked = rows.partitions
        if (
            asked is not None
            and None not in asked
            and max(cast("Sequence[int]", asked)) < len(queues.leaders)
        ):
            return _in_queues(queues, rows, cast("Sequence[int]", asked)), len(rows)
        may_lack_keys = self._partitioner.keyless_is_sticky
        if self._chooses_columns and asked is None and rows.keys and (may_lack_keys or None not in rows.keys):
            return self._by_key(queues, rows, rows.keys, call), len(rows)
        return self._one_by_one(queues, rows, call)

    def fail(self, rows: Rows, error: ProducerError, call: SendManyCall) -> None:
        """Fail *rows*, which interceptors have seen, before their append."""
        why = Failure.of(error)
        for index, position in enumerate(rows.positions):
            error = why.error()
            self._intake.report_refused(rows.topic, rows.partition(index), _headers(rows, index), error)
            call.failed([position], Failure.of(error))  # `report_refused` has set `fatal` or `abortable`

    def report_refused(self, rows: Rows, error: Callable[[], BaseException]) -> None:
        """Count each of *rows* as failed, and notify the interceptors of its *error*."""
        for index in range(len(rows)):
            self._intake.report_refused(rows.topic, rows.partition(index), _headers(rows, index), error())

    def _in_time(self, records: int) -> Iterator[int]:
        """Yield 0, 1, 2, … up to *records* - 1, and stop early after `USER_CODE_SLICE_S`."""
        now = self._intake.loop.time
        until = now() + USER_CODE_SLICE_S
        for start in range(0, records, CHECK_EVERY):
            if start and now() >= until:
                return
            yield from range(start, min(start + CHECK_EVERY, records))

    def _intercepted(self, rows: Rows, call: SendManyCall) -> tuple[Rows, int]:
        taken = 0
        kept: list[int] = []
        checked: list[PendingAppend] = []
        for index in self._in_time(len(rows)):
            taken = index + 1
            try:
                pending = self._check(rows, index)
            except ProducerError as error:  # `_check` has notified the interceptors
                call.failed([rows.positions[index]], Failure.of(error))
                continue
            except SerializerAwaits:  # `_check` keeps the awaitable
                taken = index
                break
            kept.append(index)
            checked.append(pending)
        return with_contents(_kept(rows, kept, taken), checked), taken

    def _check(self, rows: Rows, index: int) -> PendingAppend:
        """Return a row after interceptors and serializers.

        Raises: ProducerError, after notifying the interceptors; SerializerAwaits, with the row in `begun`.
        """
        pending = self.intercepted(rows, index)
        try:
            return self._with_contents(pending, rows.positions[index])
        except SerializerAwaits as waits:
            self.begun = Begun(pending, waits)
            raise
        except ProducerError as error:
            self._intake.report_refused(rows.topic, pending.partition, pending.headers, error)
            raise

    def _with_contents(self, pending: PendingAppend, position: int) -> PendingAppend:
        intake, topic, key, value = self._intake, pending.topic, pending.key, pending.value
        if intake.in_context is not None:
            key, value, pending.headers = intake.in_context(topic, pending.headers, key, value, position)
        else:
            key = serialized("key", intake.key_serializer, topic, key, position)
            try:
                value = serialized("value", intake.value_serializer, topic, value, position)
            except SerializerAwaits as waits:
                waits.key = key
                raise
        pending.key, pending.value = key, value
        return pending

    def _serialized(self, rows: Rows, call: SendManyCall) -> tuple[Rows, int]:
        of_key, of_value = self._intake.key_serializer, self._intake.value_serializer
        taken, topic = 0, rows.topic
        kept: list[int] = []
        keys: list[bytes | None] = []
        values: list[Any] = []
        for index in self._in_time(len(rows)):
            taken, value = index + 1, rows.values[index]
            try:
                if of_key is not None:
                    key = None if rows.keys is None else rows.keys[index]
                    keys.append(serialized("key", of_key, topic, key, rows.positions[index]))
                if of_value is not None:
                    value = serialized("value", of_value, topic, value, rows.positions[index])
            except SerializationError as error:
                del keys[len(kept) :]
                self.fail(rows.take([index]), error, call)
                continue
            except SerializerAwaits as waits:
                if len(keys) > len(kept):
                    waits.key = keys.pop()
                elif rows.keys is not None:
                    waits.key = rows.keys[index]
                taken = self._begin(rows, index, waits)
                break
            kept.append(index)
            values.append(value)
        rows = _kept(rows, kept, taken)
        return replace(rows, values=values, keys=rows.keys if of_key is None else keys), taken

    def _serialized_in_context(
        self, serialize: InContext, rows: Rows, call: SendManyCall
    ) -> tuple[Rows, int]:
        taken = 0
        kept: list[int] = []
        contents: list[Contents] = []
        for index in self._in_time(len(rows)):
            taken = index + 1
            key, headers = None if rows.keys is None else rows.keys[index], _headers(rows, index)
            try:
                made = serialize(rows.topic, headers, key, rows.values[index], rows.positions[index])
            except SerializationError as error:
                self.fail(rows.take([index]), error, call)
                continue
            except SerializerAwaits as waits:
                taken = self._begin(rows, index, waits)
                break
            kept.append(index)
            contents.append(made)
        serialized_rows = replace(
            _kept(rows, kept, taken),
            values=[each.value for each in contents],
            keys=[each.key for each in contents],
            headers=[each.headers for each in contents],
        )
        return serialized_rows, taken

    def _begin(self, rows: Rows, index: int, waits: SerializerAwaits) -> int:
        """Note that the serializer of the row at *index* returned an awaitable, and return *index*."""
        self.begun = Begun(self.intercepted(rows, index), waits)
        return index

    def _without_too_large(self, rows: Rows, call: SendManyCall) -> Rows:
        kept: list[int] = []
        for index, size in enumerate(rows.sizes):
            try:
                self._accumulator.settings.check_size(rows.topic, size)
            except RecordTooLarge as error:
                self.fail(rows.take([index]), error, call)
                continue
            kept.append(index)
        return rows.take(kept)

    def _one_by_one(self, queues: TopicQueues, rows: Rows, call: SendManyCall) -> tuple[list[Group], int]:
        taken, existing = 0, len(queues.leaders)
        indices: dict[PartitionQueue | None, list[int]] = {}
        keys = rows.keys if rows.keys is not None else repeat(None)
        partitions = rows.partitions if isinstance(rows.partitions, Sequence) else repeat(None)
        asks = partitions is not rows.partitions or None in partitions
        numbers = self._in_time(len(rows)) if asks else range(len(rows))
        for index, key, partition in zip(numbers, keys, partitions):  # noqa: B905 - `repeat` is endless
            taken = index + 1
            try:
                if partition is None:
                    queue = self._intake.choose(queues, key)
                elif partition < existing:
                    queue = queues[partition]
                else:  # an interceptor chose the partition; the caller's partitions are already checked
                    raise ProducerError(str(no_such_partition("partition", rows.topic, partition, existing)))  # noqa: TRY301
            except ProducerError as error:
                self.fail(rows.take([index]), error, call)
                continue
            try:
                indices[queue].append(index)
            except KeyError:
                indices[queue] = [index]
        if None in indices and len(indices) > 1:
            # Keyless records must keep their order, so all keyless records get one partition.
            free = indices.pop(None)
            queue = queues.switch()
            indices[queue] = sorted(indices.get(queue, []) + free)
        return [(queue, rows.take(of_queue)) for queue, of_queue in indices.items()], taken

    def _by_key(
        self, queues: TopicQueues, rows: Rows, keys: Sequence[bytes | None], call: SendManyCall
    ) -> list[Group]:
        """Group records by one call of the partitioner. Keyless records share one partition, to keep their order."""
        given = [key for key in keys if key is not None] if None in keys else keys
        if not given:
            return [(None, rows)]
        try:
            chosen = self._intake.choose_column(queues, cast("Sequence[bytes]", given))
        except ProducerError as error:
            self.fail(rows, error, call)
            return []
        if given is not keys:
            free, of_keys = queues.switch().partition, iter(chosen)
            chosen = [free if key is None else next(of_keys) for key in keys]
        return _in_queues(queues, rows, chosen)


def _in_queues(queues: TopicQueues, rows: Rows, chosen: Sequence[int]) -> list[Group]:
    return [(queues[partition], group) for partition, group in rows.by_partition(chosen).items()]


def with_contents(rows: Rows, records: Sequence[PendingAppend]) -> Rows:
    """Return *rows* with the contents of *records*, one per row."""
    partitions = [each.partition for each in records]
    return replace(
        rows,
        values=[each.value for each in records],
        keys=[each.key for each in records],
        headers=[each.headers for each in records],
        timestamps_ms=[each.timestamp_ms for each in records],
        partitions=partitions if partitions.count(None) < len(partitions) else None,
    )


def _kept(rows: Rows, kept: Sequence[int], taken: int) -> Rows:
    return rows.slice(0, taken) if len(kept) == taken else rows.take(kept)


def _headers(rows: Rows, index: int) -> Headers:
    return () if rows.headers is None else rows.headers[index]
