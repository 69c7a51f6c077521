"""Who hears of every outcome besides the one who waits for it: the counters, and the user's interceptors."""

from __future__ import annotations

from aioproducer.batching.batch import Batch
from aioproducer.batching.failure import Failure
from aioproducer.interceptors import InterceptorChain
from aioproducer.metrics import Metrics
from aioproducer.types import RecordMetadata, TopicPartition


class OutcomeObserver:
    """Implements the settler's Observer."""

    def __init__(self, metrics: Metrics, interceptors: InterceptorChain) -> None:
        self._metrics = metrics
        self._interceptors = interceptors

    def delivered(self, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        """Count the batch; tell the interceptors of each record."""
        counters = self._metrics.topic(batch.queue.topic)
        counters.records_delivered += len(batch)
        counters.batches_delivered += 1
        counters.bytes_before_compression += batch.size
        counters.bytes_delivered += len(batch.encoded or b"")
        if not self._interceptors:
            return
        log_append = log_append_time_ms >= 0
        topic, partition = where = TopicPartition(batch.queue.topic, batch.queue.partition)
        for index, timestamp_ms in enumerate(batch.columns.timestamps):
            metadata = RecordMetadata(
                topic,
                partition,
                base_offset + index if base_offset >= 0 else -1,
                log_append_time_ms if log_append else timestamp_ms,
                log_append,
            )
            self._interceptors.on_acknowledgement(metadata, None, where)

    def failed(self, batch: Batch, count: int, failure: Failure) -> None:
        """Count the records; tell the interceptors of each, with an error of its own."""
        self._metrics.topic(batch.queue.topic).records_failed += count
        if self._interceptors:
            where = TopicPartition(batch.queue.topic, batch.queue.partition)
            for _ in range(count):
                self._interceptors.on_acknowledgement(None, failure.error(), where)
