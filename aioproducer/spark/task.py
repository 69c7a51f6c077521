"""One task: the rows of one partition of a DataFrame, sent and acknowledged."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from aioproducer.arrow.arrow_columns import Columns
from aioproducer.arrow.result import SendTableError
from aioproducer.errors import ConfigError
from aioproducer.producer import Producer
from aioproducer.spark.decision_protocol import Plan, choose_id
from aioproducer.spark.decision_records import Share, must_skip
from aioproducer.spark.delivery import GUARANTEE, BatchId, ExactlyOnce, batch_id
from aioproducer.spark.messages import Prepared, Shared, Skipped, TaskReport, origin
from aioproducer.spark.pace import Pace, RateLimit
from aioproducer.spark.sending import Sending, Sent
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.worker import Worker, worker

CONTINUOUS: Final = "__is_continuous_processing"
"""How Spark tells tasks that their query has no micro-batches; it tells nobody on the driver."""


def no_micro_batch() -> ConfigError:
    """Return the error of a query that has none."""
    return ConfigError(
        "trigger(continuous=…) has no micro-batches, and this sink commits nothing else: take"
        " trigger(processingTime=…), or none"
    )


@dataclass(frozen=True, slots=True)
class Task:
    """What the tasks of a write have in common; it travels to them from the driver."""

    settings: ProducerSettings
    columns: Columns
    delivery: ExactlyOnce | None = None
    """None: at least once."""
    dead_letters: str | None = None
    """Where rows go that cannot be sent; None: they fail the task."""
    planned: Plan | None = None
    """Exactly once for any number of tasks: what planning has found."""
    limit: RateLimit | None = None
    """Rate limit of the job; None: no limit."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics known before a row is read: the option `topic` and the topic of dead letters."""
        return tuple(topic for topic in (self.columns.topic, self.dead_letters) if topic is not None)

    def run(self, batches: Iterable[pa.RecordBatch], *, replays: bool = True) -> WriterCommitMessage:
        """Send all rows and report once each of them is acknowledged; exactly once, in a transaction that stays open.

        Not *replays*: within one run of a query the same batch is not written again.

        Raises:
            SendTableError: a row failed; what is in Kafka of the others stays there.
            ConnectionFailed: no broker could be reached.
            ConfigError, DeliveryError: it cannot be written exactly once, or is no micro-batch.
        """
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        if context.getLocalProperty(CONTINUOUS) == "true":
            raise no_micro_batch()
        check_options(self.settings)
        if self.delivery is not None:
            return self._exactly_once(iter(batches), self.delivery, replays=replays)
        host = worker()
        with host.producer(self.settings) as producer:
            sent = self._sent(batches, producer, host)
        return TaskReport(**origin(context), **sent.fields())

    def _exactly_once(
        self, batches: Iterator[pa.RecordBatch], delivery: ExactlyOnce, *, replays: bool
    ) -> WriterCommitMessage:
        host = worker()

        def send(rows: Iterable[pa.RecordBatch], producer: Producer) -> Sent:
            return self._sent(rows, producer, host)

        if self.planned is None:
            return write_single(
                batches,
                send,
                host=host,
                settings=self.settings,
                delivery=delivery,
                replays=replays,
                passes_refusals=self.dead_letters is not None,
            )
        return write_share(
            batches,
            send,
            host=host,
            settings=self.settings,
            delivery=delivery,
            planned=self.planned,
            replays=replays,
            passes_refusals=self.dead_letters is not None,
        )

    def _sent(self, batches: Iterable[pa.RecordBatch], producer: Producer, host: Worker) -> Sent:
        window_of = partial(host.time_window, self.settings)
        pace = None
        if self.limit is not None:
            timeout_ms = producer.config.transaction_timeout_ms
            within_s = inf if self.delivery is None else self.delivery.lasts_ms(timeout_ms) / 1000
            pace = Pace(self.limit.of_task(), within_s=within_s)
        sending = Sending(producer, host, self.columns, self.dead_letters, window_of, pace)
        try:
            return sending.run(batches)
        except SendTableError as error:
            context = TaskContext.get()
            assert context is not None, "Spark calls this in a task"
            error.add_note(f"rows are counted from 0 in partition {context.partitionId()} of the DataFrame")
            raise


Send = Callable[[Iterable[pa.RecordBatch], Producer], Sent]
"""Sends all rows; raises if one fails."""


def write_single(
    batches: Iterator[pa.RecordBatch],
    send: Send,
    *,
    host: Worker,
    settings: ProducerSettings,
    delivery: ExactlyOnce,
    replays: bool,
    passes_refusals: bool = False,
) -> WriterCommitMessage:
    """Write the rows of the one task of a batch, unless that is committed already.

    The order counts: first the transactional id is taken, which ends whatever others have begun under it. Only then is
    the log read: another decision is either in it, or cannot be made any more.

    Raises: ConfigError, DeliveryError; as *send*.
    """
    context = _context()
    if context.partitionId() > 0:
        raise ConfigError(
            f"{GUARANTEE}={delivery.guarantee} takes batches of one task, and this one has more: write coalesce(1)"
        )
    batch = _batch_id(context, delivery, streams=replays)
    first = next((each for each in batches if each.num_rows), None)
    if first is None:  # nothing to decide
        return TaskReport(**origin(context), rows=0, bytes=0)
    rows = chain([first], batches)
    del first  # a batch is up to gigabytes: it must be free once its rows are sent
    with host.transactional(settings, delivery.single_id, passes_refusals=passes_refusals) as producer:
        last = host.submit(host.decisions(settings, delivery.prefix)).result().last(batch.name)
        if must_skip(last, batch, delivery.guarantee, replays=replays):
            for _ in batches:  # Spark wants its rows read
                pass
            return Skipped(batch)
        transaction = host.submit(producer.begin_transaction()).result()
        sent = send(rows, producer)
        prepared = host.submit(transaction.prepare()).result()
    return Prepared(**origin(context), **sent.fields(), batch=batch, transaction=prepared, last=last)


def write_share(
    batches: Iterator[pa.RecordBatch],
    send: Send,
    *,
    host: Worker,
    settings: ProducerSettings,
    delivery: ExactlyOnce,
    planned: Plan,
    replays: bool,
    passes_refusals: bool = False,
) -> WriterCommitMessage:
    """Write the rows of one of any number of tasks, unless the batch is decided, as it was *planned*.

    Raises: ConfigError, DeliveryError; as *send*.
    """
    context = _context()
    batch = _batch_id(context, delivery, streams=replays)
    last = planned.decided.get(batch.name)
    if must_skip(last, batch, delivery.guarantee, replays=replays):
        for _ in batches:  # Spark wants its rows read
            pass
        return Skipped(batch)
    first = next((each for each in batches if each.num_rows), None)
    if first is None:
        return TaskReport(**origin(context), rows=0, bytes=0)
    name = host.ask(
        settings,
        delivery.prefix,
        lambda kafka: choose_id(
            kafka,
            delivery,
            planned,
            batch,
            partition=context.partitionId(),
            attempt=context.attemptNumber(),
        ),
    )
    rows = chain([first], batches)
    del first  # a batch is up to gigabytes: it must be free once its rows are sent
    with host.transactional(settings, name, passes_refusals=passes_refusals) as producer:
        transaction = host.submit(producer.begin_transaction()).result()
        sent = send(rows, producer)
        prepared = host.submit(transaction.prepare()).result()
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


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls this in a task"
    return context


def _batch_id(context: TaskContext, delivery: ExactlyOnce, *, streams: bool) -> BatchId:
    return batch_id(
        delivery,
        query=context.getLocalProperty("sql.streaming.queryId"),
        number=context.getLocalProperty("streaming.sql.batchId"),
        run=context.getLocalProperty("spark.jobGroup.id"),
        streams=streams,
    )


def check_options(settings: ProducerSettings) -> None:
    """Check that this executor accepts the options that the driver has accepted.

    Raises: ConfigError: a package of an extra, a file or a module is missing here.
    """
    try:
        settings.config()
    except ConfigError as error:
        raise ConfigError(
            f"executor on {socket.gethostname()}: {error}; the driver accepts the option: give all executors the driver's"
            f" packages, files and variables (Python: {sys.executable})"
        ) from None
