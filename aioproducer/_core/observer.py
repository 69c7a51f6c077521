"""An observer of outcomes: feeds the counters and the user's interceptors."""

from __future__ import annotations

from itertools import repeat

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.interceptor_chain import InterceptorChain
from aioproducer._core.metrics.counters import Metrics
from aioproducer._core.records.record_batch import Records
from aioproducer._core.steps import step_here
from aioproducer.types import RecordMetadata, TopicPartition


class OutcomeObserver:
    """Implements the Observer of `BatchCompletion`."""

    def __init__(self, metrics: Metrics, interceptors: InterceptorChain) -> None:
        self._metrics = metrics
        self._interceptors = interceptors
        self._has_interceptors = bool(interceptors)  # read for every batch

    def delivered(self, batch: Batch, base_offset: int, log_append_time_ms: int, now: float) -> None:
        """Count the batch, acknowledged at *now*; tell the interceptors of each record."""
        latency_s = now - batch.created_at
        tally = self._metrics.topic(
            batch.topic_partition[0]
        )  # a field of a NamedTuple costs more than an index
        if now >= tally.window_ends_at:
            tally.begin_window(now)
        tally.delivered_s += latency_s
        if latency_s > tally.delivered_s_max:  # noqa: PLR1730 - max() would take as long as all the rest
            tally.delivered_s_max = latency_s
        tally.delivered_records += len(batch.columns)
        tally.delivered_batches += 1
        tally.delivered_uncompressed += batch.size
        tally.delivered_bytes += len(batch.encoded or b"")
        if not self._has_interceptors:
            return
        step_here().call(self._tell_delivered, batch, base_offset, log_append_time_ms, latency_s)

    def _tell_delivered(
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
        """Count the records; tell the interceptors of each, with an error of its own."""
        self._metrics.event(batch.topic_partition.topic).failed_records += len(records)
        if failure.reason is not None:
            self._metrics.timeouts[failure.reason] += len(records)
        if self._has_interceptors:
            latency_s = self._metrics.clock() - batch.created_at
            step_here().call(self._tell_failed, batch.topic_partition, records, failure, latency_s)

    def _tell_failed(
        self, where: TopicPartition, records: Records, failure: Failure, latency_s: float
    ) -> None:
        for headers in records.headers or repeat((), len(records)):
            self._interceptors.on_acknowledgement(None, failure.error(), where, headers, latency_s)

    def retried(self, batch: Batch) -> None:
        """Count the records, which are to be sent again."""
        self._metrics.event(batch.topic_partition.topic).retried_records += len(batch)

    def split(self, batch: Batch) -> None:
        """Count the batch, which was too large."""
        self._metrics.event(batch.topic_partition.topic).splits += 1
