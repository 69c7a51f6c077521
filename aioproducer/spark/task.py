"""One task: the rows of one partition of a DataFrame, sent and acknowledged."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from aioproducer._core.transactions.transaction_types import PreparedTransaction
from aioproducer.arrow.arrow_columns import Columns
from aioproducer.arrow.batches import SendTableError
from aioproducer.errors import ConfigError
from aioproducer.producer import Producer
from aioproducer.spark.decision_protocol import Plan, choose_id
from aioproducer.spark.decision_records import Share, must_skip
from aioproducer.spark.delivery import GUARANTEE, BatchId, ExactlyOnce, batch_id
from aioproducer.spark.messages import Prepared, Shared, Skipped, TaskReport, origin
from aioproducer.spark.rate_limit import RateLimit, RateLimiter
from aioproducer.spark.sending import Sending, Sent
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.worker import worker

CONTINUOUS: Final = "__is_continuous_processing"
"""Local property of tasks whose query has no micro-batches. The driver has no such property."""


def no_micro_batch() -> ConfigError:
    """Return the error of a query without micro-batches."""
    return ConfigError(
        "trigger(continuous=…) is not supported: this sink commits per micro-batch; use"
        " trigger(processingTime=…) or no trigger"
    )


@dataclass(frozen=True, slots=True)
class Task:
    """Common state of the tasks of a write, sent from the driver."""

    settings: ProducerSettings
    columns: Columns
    delivery: ExactlyOnce | None = None
    """Exactly-once settings; None for at least once."""
    dead_letters: str | None = None
    """Topic of rows that cannot be sent; None: such rows fail the task."""
    planned: Plan | None = None
    """Result of planning, for exactly once with any number of tasks."""
    limit: RateLimit | None = None
    """Rate limit of the job; None: no limit."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics known before a row is read: the option `topic` and the topic of dead letters."""
        return tuple(topic for topic in (self.columns.topic, self.dead_letters) if topic is not None)

    def run(self, batches: Iterable[pa.RecordBatch], *, replays: bool = True) -> WriterCommitMessage:
        """Send all rows, and report acknowledged rows. With exactly-once delivery, the transaction stays open.

        If *replays* is False, Spark rewrites a batch only in another run of the query.

        Raises:
            SendTableError: a row failed; records of other rows stay in Kafka.
            ConnectionFailed: no broker is reachable.
            ConfigError, DeliveryError: the rows cannot be written exactly once, or the query has no micro-batches.
        """
        context = _context()
        if context.getLocalProperty(CONTINUOUS) == "true":
            raise no_micro_batch()
        check_options(self.settings)
        if self.delivery is None:
            with worker().producer(self.settings) as producer:
                return TaskReport(**origin(context), **self._sent(batches, producer).fields())
        batch = batch_id(
            self.delivery,
            query=context.getLocalProperty("sql.streaming.queryId"),
            number=context.getLocalProperty("streaming.sql.batchId"),
            run=context.getLocalProperty("spark.jobGroup.id"),
            streams=replays,
        )
        if self.planned is None:
            return self._write_single(iter(batches), self.delivery, batch, replays=replays)
        return self._write_share(iter(batches), self.delivery, self.planned, batch, replays=replays)

    def _write_single(
        self, batches: Iterator[pa.RecordBatch], delivery: ExactlyOnce, batch: BatchId, *, replays: bool
    ) -> WriterCommitMessage:
        """Write the rows of the only task of *batch*, unless the batch is committed.

        Before the task reads the log, it initializes the transactional id, which ends all earlier transactions of the id. The
        log then has every decision.
        """
        context = _context()
        if context.partitionId() > 0:
            raise ConfigError(
                f"{GUARANTEE}={delivery.guarantee} needs batches of one task, and this batch has several; use coalesce(1)"
            )
        rows = _without_empty(batches)
        if rows is None:  # an empty batch gets no decision
            return TaskReport(**origin(context), rows=0, bytes=0)
        host = worker()
        with self._transactional(delivery.single_id) as producer:
            last = host.submit(host.decisions(self.settings, delivery.prefix)).result().last(batch.name)
            if must_skip(last, batch, delivery.guarantee, replays=replays):
                return _skipped(rows, batch)
            sent, prepared = self._prepared(rows, producer)
        return Prepared(**origin(context), **sent.fields(), batch=batch, transaction=prepared, last=last)

    def _write_share(
        self,
        batches: Iterator[pa.RecordBatch],
        delivery: ExactlyOnce,
        planned: Plan,
        batch: BatchId,
        *,
        replays: bool,
    ) -> WriterCommitMessage:
        """Write the rows of this task, one of any number of tasks, unless *batch* is decided."""
        context = _context()
        last = planned.decided.get(batch.name)
        if must_skip(last, batch, delivery.guarantee, replays=replays):
            return _skipped(batches, batch)
        rows = _without_empty(batches)
        if rows is None:
            return TaskReport(**origin(context), rows=0, bytes=0)
        attempt = partial(choose_id, partition=context.partitionId(), attempt=context.attemptNumber())
        name = worker().run_with_kafka(
            self.settings, delivery.prefix, lambda kafka: attempt(kafka, delivery, planned, batch)
        )
        with self._transactional(name) as producer:
            sent, prepared = self._prepared(rows, producer)
        (topic, partition), offsets = next(iter(sent.offsets.items()))
        share = Share(*prepared, topic, partition, offsets.last)
        return Shared(
            **origin(context),
            **sent.fields(),
            batch=batch,
            share=share,
            planned=planned._replace(decided={}),
            last=last,
        )

    def _transactional(self, name: str) -> AbstractContextManager[Producer]:
        return worker().transactional(self.settings, name, passes_refusals=self.dead_letters is not None)

    def _prepared(
        self, rows: Iterable[pa.RecordBatch], producer: Producer
    ) -> tuple[Sent, PreparedTransaction]:
        """Send *rows* in a transaction, and leave the transaction open."""
        host = worker()
        transaction = host.submit(producer.begin_transaction()).result()
        sent = self._sent(rows, producer)
        return sent, host.submit(transaction.prepare()).result()

    def _sent(self, batches: Iterable[pa.RecordBatch], producer: Producer) -> Sent:
        host = worker()
        window_of = partial(host.time_window, self.settings)
        limiter = None
        if self.limit is not None:
            timeout_ms = producer.config.transaction_timeout_ms
            within_s = inf if self.delivery is None else self.delivery.max_age_ms(timeout_ms) / 1000
            limiter = RateLimiter(self.limit.of_task(), within_s=within_s)
        sending = Sending(producer, host, self.columns, self.dead_letters, window_of, limiter)
        try:
            return sending.run(batches)
        except SendTableError as error:
            error.add_note(
                f"rows are counted from 0 in partition {_context().partitionId()} of the DataFrame"
            )
            raise


def _without_empty(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch] | None:
    """Return *batches* from the first batch with rows on; None if all batches are empty."""
    first = next((each for each in batches if each.num_rows), None)
    # the chain frees a batch, up to gigabytes, once its rows are sent
    return None if first is None else chain([first], batches)


def _skipped(batches: Iterable[pa.RecordBatch], batch: BatchId) -> Skipped:
    for _ in batches:  # Spark requires that the rows are read
        pass
    return Skipped(batch)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls this in a task"
    return context


def check_options(settings: ProducerSettings) -> None:
    """Check that this executor accepts the options that the driver has accepted.

    Raises: ConfigError: a package of an extra, a file or a module is missing on the executor.
    """
    try:
        settings.config()
    except ConfigError as error:
        raise ConfigError(
            f"executor on {socket.gethostname()}: {error}; the driver accepts the option: give all executors the driver's"
            f" packages, files and variables (Python: {sys.executable})"
        ) from None
