"""Completion of batches: delivery, failure, retries and splits."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate, repeat
from typing import Final, Protocol

from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import RESOLVED, BatchState
from aioproducer._core.batching.partition_queue import PartitionQueue, without
from aioproducer._core.batching.topic import failure_of_missing
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.interceptor_chain import InterceptorChain
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.logfmt import Pairs
from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer._core.metrics import Metrics
from aioproducer._core.records.columns import BATCH_OVERHEAD, BOUND_SPARE, RecordColumns, Records
from aioproducer._core.steps import Log, as_step, step_here
from aioproducer.errors import ProducerClosed, TransactionAborted
from aioproducer.types import RecordMetadata, TopicPartition

log: Final = Log(__name__)

_EXPIRED_IN_FLIGHT = BatchState.EXPIRED_IN_FLIGHT  # a global: Enum members are slow before Python 3.12


class Observer(Protocol):
    """Receives every outcome before the waiting tasks continue: metrics immediately, interceptors at the end of the step.

    `OutcomeObserver` documents the methods.
    """

    def delivered(self, batch: Batch, base_offset: int, log_append_time_ms: int, now: float) -> None: ...
    def failed(self, batch: Batch, records: Records, failure: Failure) -> None: ...
    def retried(self, batch: Batch) -> None: ...
    def split(self, batch: Batch) -> None: ...


class BatchCompletion:
    """Settles, retries and splits batches, and returns their memory."""

    def __init__(
        self,
        accumulator: Accumulator,
        *,
        observer: Observer,
        on_failure: Callable[[Failure], Failure] | None = None,
        limits: LogLimits | None = None,
        passes_refusals: bool = False,
    ) -> None:
        """*on_failure* receives every failure for the transaction, and returns the failure to report.

        With *passes_refusals*, a transaction continues without the records that a broker refuses for their content. The option
        requires one batch in flight per partition: the next batch takes the sequence of a refused batch.
        """
        self.passes_refusals: Final = passes_refusals
        self._accumulator = accumulator
        self._schedule = accumulator.schedule
        self.queue: Final = accumulator.queue
        """Returns the queue of an unfinished batch."""
        self._observer = observer
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self.limits: Final = limits or LogLimits()
        self._capped: set[str] = set()
        """Topics with a batch size limit, because a broker refused larger batches."""
        self.failing_partitions: Final[set[TopicPartition]] = set()
        """Partitions with a retried batch, and without a completed batch since the retry."""

    def complete(
        self, batch: Batch, base_offset: int, log_append_time_ms: int = -1, now: float | None = None
    ) -> None:
        """Resolve the records of the acknowledged *batch*, and offer its partition to the schedule again.

        *now* is the time of the acknowledgement (loop clock); None reads the clock.
        """
        if now is None:
            now = self._loop.time()
        accumulator, at = self._accumulator, batch.topic_partition
        queue = accumulator.topics[at[0]].by_partition[at[1]]  # inlined `queue`: saves a frame
        abandoned = batch.state is _EXPIRED_IN_FLIGHT
        in_flight = queue.in_flight  # `in_flight` also has abandoned batches: no search
        queue.in_flight = () if len(in_flight) == 1 else without(in_flight, batch)
        batch.acknowledge()
        if batch.sequence is not None:
            alone = not (queue.in_flight or queue.retrying)
            count = len(batch.columns)
            queue.sequences.acknowledge(batch.sequence, batch.order, count, base_offset, alone)
        if at[0] in self._capped and not accumulator.topics[at[0]].limits.accepted(batch):
            self._capped.discard(at[0])  # batches of every size may be sent again
        if not abandoned:
            self._observer.delivered(batch, base_offset, log_append_time_ms, now)
            batch.resolve(base_offset, log_append_time_ms)
        self._accumulator.release(batch)  # last: before `release`, `fail_everything` finds the batch
        if queue.batches or queue.retrying:
            self._schedule.offer(queue, now)

    def fail(self, batch: Batch, failure: Failure) -> None:
        """Fail the waiters of *batch*, and release its sequence, if any."""
        queue = self.queue(batch)
        abandoned = batch.state is _EXPIRED_IN_FLIGHT
        passes = self.passes_refusals and failure.of_record and not failure.possibly_persisted
        queue.remove(batch)
        batch.fail()
        if batch.sequence is not None:
            self._release_sequence(queue, batch, passes=passes)
        self._forget_failing(queue)
        if not abandoned:
            self._reject(batch, failure, passes=passes)
        self._accumulator.release(batch)
        self._offer_again(queue)

    def expire_in_flight(self, batch: Batch, failure: Failure) -> None:
        """Fail the records of *batch* in flight. The response to *batch* still decides about the sequence of *batch*."""
        batch.expire()
        self._forget_failing(self.queue(batch))
        self._reject(batch, failure)
        self._accumulator.resolved(batch)

    def reenqueue(self, batch: Batch, at: float) -> None:
        """Retry *batch*, which is in flight, at *at* (loop clock) with its sequence unchanged."""
        queue = self.queue(batch)
        queue.remove(batch)
        batch.retry(at)
        self._observer.retried(batch)
        self._schedule.back_off(queue, at)
        self._send_again(queue, batch)

    def give_back(self, batch: Batch) -> None:
        """Requeue *batch*, which was drained and never written, with its sequence unchanged."""
        queue = self.queue(batch)
        queue.remove(batch)
        batch.give_back()
        self._send_again(queue, batch)

    def renumber(self, batch: Batch, at: float) -> None:
        """Retry *batch* at *at* (loop clock) under a new identity: it was refused for its sequence, and the log lacks it."""
        queue = self.queue(batch)
        queue.remove(batch)
        batch.renumber()
        batch.back_off(at)
        self._observer.retried(batch)
        queue.put_back(batch)
        queue.request_epoch_bump(batch)
        self._schedule.back_off(queue, at)
        self._offer_again(queue)

    def split(self, batch: Batch) -> None:
        """Send *batch*, refused for its size, again in two halves, or as many parts as the topic's limits require.

        A leader that does not recognise the identity would accept the second part alone. If this leader has not acknowledged
        a batch yet, each part therefore gets its sequence after the answer to the previous part. If *batch* may be in the
        log, the parts keep the sequences of *batch*.
        """
        queue, sequence = self.queue(batch), batch.sequence
        ranges = self._ranges(batch)
        certainly_absent = not batch.persistence.in_doubt
        if (
            sequence is not None
            and certainly_absent
            and (self.passes_refusals or not queue.sequences.acknowledged_here)
            and queue.is_alone(batch)
        ):
            queue.sequences.take_back(sequence)
            sequence, state, put = None, BatchState.SEALED, queue.put_back
        else:
            state, put = BatchState.BACKOFF, queue.retry
        parts = [
            batch.part(part, number, state, sequence=None if sequence is None else sequence.after(part.start))
            for number, part in enumerate(ranges)
        ]
        self._observer.split(batch)
        queue.note_gone(batch)
        self._replace(batch, parts)
        for part in parts:
            put(part)
        if queue.sequences.needs_epoch_bump:
            queue.renumber_retrying()
        self._offer_again(queue)

    def reject_records(
        self, batch: Batch, failures: Mapping[int, Failure], others: Failure | None = None
    ) -> None:
        """Fail the records in *failures*, for which the broker refused *batch*, and send the other records again.

        The other records get new sequences. Without sequences, the other records precede later batches that are sent
        again. If the transaction fails, the other records fail with *others*.
        """
        queue = self.queue(batch)
        kept = [index for index in range(len(batch)) if index not in failures]
        for index, failure in sorted(failures.items()):
            if others is not None:
                failure = self._failing(failure)  # noqa: PLW2901
            for each in batch.take_waiters([index]):
                each.fail(failure)
            self._observer.failed(batch, batch.columns.take([index]), failure)
        rest = batch.part(kept, 0, BatchState.BACKOFF if batch.sequence is None else BatchState.SEALED)
        self._replace(batch, (rest,))
        if batch.sequence is None:
            queue.retry(rest)
        else:
            queue.put_back(rest)
            self._release_sequence(queue, batch, passes=self.passes_refusals)
        if others is None:
            self._observer.retried(rest)
            self._offer_again(queue)
        else:
            self.fail(rest, others)

    def expire(self, now: float, failure_of: Callable[[Batch], Failure]) -> float:
        """Fail expired batches, postpone deadlines that batches may outlive, and return the next deadline."""
        accumulator, settings = self._accumulator, self._accumulator.settings
        due_at = accumulator.deadlines.next_due()
        if due_at > now:
            return due_at
        for batch in accumulator.deadlines.take_due(now):
            if settings.outlives_deadline_if_led and accumulator.leader(batch) != NO_LEADER:
                batch.postpone(now + settings.delivery_timeout_s)
                accumulator.deadlines.add(batch, batch.deadline)
            else:
                self.fail_or_expire(batch, failure_of(batch))
        return accumulator.deadlines.next_due()

    def fail_or_expire(self, batch: Batch, failure: Failure) -> None:
        """Fail the records of *batch* in any state."""
        if batch.persistence.attempt_is_out:
            self.expire_in_flight(batch, failure)
        else:
            self.fail(batch, failure)

    @as_step
    def fail_missing(self, topics: Collection[str], node_id: int, *, is_only_broker: bool) -> None:
        """Fail batches for deleted partitions, based on the metadata response of *node_id* for *topics*."""
        accumulator, now = self._accumulator, self._loop.time()
        for topic in [accumulator.topics[name] for name in accumulator.shrunk.intersection(topics)]:
            missing, count = topic.missing, len(topic.leaders)
            if missing is None or not missing.confirm(node_id, now, is_only_broker=is_only_broker):
                continue
            for batch in [each for queue in topic.missing_queues() for each in queue.unsent]:
                persisted = batch.possibly_persisted
                failure = failure_of_missing(batch.topic_partition, count, possibly_persisted=persisted)
                self.fail(batch, failure)

    @as_step
    def expire_waiters(
        self, batch: Batch, fail: Callable[[Failure], None], indices: range, failure: Failure
    ) -> None:
        """Call *fail* for the waiters of the records at *indices*, whose call has an earlier deadline than *batch*.

        Records of a batch that was never drained are withdrawn. Of a drained batch only the waiters fail, and the records
        may be in the log. The cost of an expiry does not depend on the size of the batch.
        """
        if batch.attempts:
            fail(self._failing(failure)._replace(possibly_persisted=True))
            self._accumulator.wake()  # without waiters, a closing producer need not wait for the batch
            return  # the observer receives the record's own outcome
        if batch.state in RESOLVED:
            return
        failure = self._failing(failure)
        fail(failure)
        records = batch.columns.take(indices)
        self._observer.failed(batch, records, failure)
        self._accumulator.memory.give_back(batch.withdraw(indices, records))
        if not len(batch):
            self.fail(batch, failure)

    @as_step
    def fail_everything(self, failure: Failure) -> int:
        """Fail every record without an outcome, and return the number of these records."""
        batches = tuple(self._accumulator.unresolved)
        for batch in batches:
            own = failure._replace(possibly_persisted=batch.possibly_persisted)
            try:
                self.fail_or_expire(batch, own)
            except Exception as bug:  # noqa: BLE001 - the waiters fail even if a bug left the batch half moved
                self.limits.log(
                    log, logging.ERROR, "", "batch.bug partition=%s", batch.topic_partition, error=bug
                )
                self.abandon(batch, own)
        return sum(len(batch) for batch in batches)

    def abandon(self, batch: Batch, failure: Failure) -> None:
        """Fail the waiters of *batch* in any state, after an internal error or an exception of a signal handler."""
        batch.abandon()
        for each in batch.stretches:
            with suppress(Exception):
                each.fail(failure)
        accumulator = self._accumulator
        ends = (
            partial(self._observer.failed, batch, batch.columns, failure),
            partial(accumulator.resolved, batch),
            partial(accumulator.release, batch),
            partial(self._take_off, batch),
        )
        for end in ends:
            with suppress(Exception):
                end()

    def _take_off(self, batch: Batch) -> None:
        queue = self.queue(batch)
        queue.discard(batch)
        self._schedule.offer_again(queue, self._loop.time())

    @staticmethod
    def _release_sequence(queue: PartitionQueue, batch: Batch, *, passes: bool) -> None:
        """Give the sequence of *batch* to the next batch if the transaction *passes* the refusal; else request an epoch bump."""
        if passes and batch.sequence is not None and not (queue.in_flight or queue.retrying):
            queue.sequences.take_back(batch.sequence)
        else:
            queue.request_epoch_bump(batch)

    def _ranges(self, batch: Batch) -> Sequence[range]:
        """Return the record ranges of the parts of *batch*, refused for its size; reduce the size limit of the topic."""
        columns, count = batch.columns, len(batch)
        # The intake measures records by upper bounds: a limit from exact sizes would be one record too small.
        spare = 0 if isinstance(columns, RecordColumns) else BOUND_SPARE
        ends = list(accumulate((size + spare for size in columns.sizes()), initial=0))
        half = max(bisect_right(ends, ends[-1] // 2) - 1, 1)
        largest_half = BATCH_OVERHEAD + max(ends[half], ends[-1] - ends[half])
        topic = self._accumulator.topics[batch.topic_partition.topic]
        topic.refused(batch, largest_half, self._loop.time())
        self._capped.intersection_update(self._accumulator.topics)  # drops topics that were deleted since
        self._capped.add(topic.name)
        most = topic.limits.cap * batch.size // topic.limits.counted(batch)
        if most >= largest_half:
            return range(half), range(half, count)
        ranges, start = [], 0
        while start < count:
            room = ends[start] + most - BATCH_OVERHEAD
            stop = max(start + 1, bisect_right(ends, room) - 1)
            ranges.append(range(start, stop))
            start = stop
        return ranges

    def _replace(self, batch: Batch, parts: Sequence[Batch]) -> None:
        """Replace *batch* by *parts*, which need a few bytes more for their own headers."""
        self.queue(batch).remove(batch)
        for part in parts:
            self._accumulator.hold(part)
        batch.split(parts)  # from here on `flush` waits for the parts, which `fail_everything` must find
        self._accumulator.release(batch)

    def _reject(self, batch: Batch, failure: Failure, *, passes: bool = False) -> None:
        if not len(batch):
            return
        if not passes:
            failure = self._failing(failure)
        # The application requested the failure, or every call has already raised DeliveryTimeout.
        is_expected = failure.kind is TransactionAborted or (
            failure.kind is ProducerClosed and batch.all_waiters_expired
        )
        for each in batch.stretches:
            each.fail(failure)
        self._observer.failed(batch, batch.columns, failure)
        kind = failure.kind.__name__
        self.limits.log(
            log,
            logging.DEBUG if is_expected else logging.WARNING,
            Pairs(topic=batch.topic_partition.topic, error=kind),
            "batch.failed partition=%s records=%d attempts=%d possibly_persisted=%s error=%s: %s",
            batch.topic_partition,
            len(batch),
            batch.attempts,
            failure.possibly_persisted,
            kind,
            failure.message,
        )

    def _forget_failing(self, queue: PartitionQueue) -> None:
        """Record a failed batch of *queue*: without another retried batch, there is no recovery to log."""
        if not queue.retrying:
            self.failing_partitions.discard(queue.topic_partition)

    def _failing(self, failure: Failure) -> Failure:
        return failure if self._on_failure is None else self._on_failure(failure)

    def _send_again(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.retry(batch)
        if queue.sequences.needs_epoch_bump:
            queue.renumber_retrying()
        self._offer_again(queue)

    def _offer_again(self, queue: PartitionQueue) -> None:
        self._schedule.offer(queue, self._loop.time())
        self._accumulator.wake()


class OutcomeObserver:
    """Observer of `BatchCompletion`: counts outcomes, and calls interceptors."""

    def __init__(self, metrics: Metrics, interceptors: InterceptorChain) -> None:
        self._metrics = metrics
        self._interceptors = interceptors
        self._has_interceptors = bool(interceptors)  # `delivered` reads the flag for every batch

    def delivered(self, batch: Batch, base_offset: int, log_append_time_ms: int, now: float) -> None:
        """Count the batch, acknowledged at *now*; call the interceptors for each record."""
        latency_s = now - batch.created_at
        counters = self._metrics.topic(batch.topic_partition[0])  # an index costs less than a tuple's field
        if now >= counters.window_ends_at:
            counters.begin_window(now)
        counters.delivered_s += latency_s
        if latency_s > counters.delivered_s_max:  # noqa: PLR1730 - max() costs as much as all other lines
            counters.delivered_s_max = latency_s
        counters.delivered_records += len(batch.columns)
        counters.delivered_batches += 1
        counters.delivered_uncompressed += batch.size
        counters.delivered_bytes += len(batch.encoded or b"")
        if not self._has_interceptors:
            return
        step_here().call(self._pass_delivered, batch, base_offset, log_append_time_ms, latency_s)

    def _pass_delivered(
        self, batch: Batch, base_offset: int, log_append_time_ms: int, latency_s: float
    ) -> None:
        log_append = log_append_time_ms >= 0
        topic, partition = where = batch.topic_partition
        columns = batch.columns
        each_with_headers = zip(columns.timestamps, columns.headers or repeat(()), strict=False)
        for index, (timestamp_ms, headers) in enumerate(each_with_headers):
            metadata = RecordMetadata(
                topic,
                partition,
                base_offset + index if base_offset >= 0 else -1,
                log_append_time_ms if log_append else timestamp_ms,
                log_append,
            )
            self._interceptors.on_acknowledgement(metadata, None, where, headers, latency_s)

    def failed(self, batch: Batch, records: Records, failure: Failure) -> None:
        """Count *records*, all or some of *batch*; call the interceptors for each record, with an error of its own."""
        self._metrics.event(batch.topic_partition.topic).failed_records += len(records)
        if failure.reason is not None:
            self._metrics.timeouts[failure.reason] += len(records)
        if self._has_interceptors:
            latency_s = self._metrics.clock() - batch.created_at
            step_here().call(self._pass_failed, batch.topic_partition, records, failure, latency_s)

    def _pass_failed(
        self, where: TopicPartition, records: Records, failure: Failure, latency_s: float
    ) -> None:
        for headers in records.headers or repeat((), len(records)):
            self._interceptors.on_acknowledgement(None, failure.error(), where, headers, latency_s)

    def retried(self, batch: Batch) -> None:
        """Count the records of a retried batch."""
        self._metrics.event(batch.topic_partition.topic).retried_records += len(batch)

    def split(self, batch: Batch) -> None:
        """Count a batch that is split because it was too large."""
        self._metrics.event(batch.topic_partition.topic).splits += 1
