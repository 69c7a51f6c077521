"""One task: the rows of one partition of a DataFrame, sent and acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from aioproducer.arrow.arrow_schema import Columns
from aioproducer.arrow.result import SendTableError
from aioproducer.errors import ConfigError
from aioproducer.producer import Producer
from aioproducer.spark.arrival import check_options
from aioproducer.spark.decision_protocol import Plan
from aioproducer.spark.delivery import ExactlyOnce
from aioproducer.spark.messages import TaskReport, origin
from aioproducer.spark.pace import Pace, RateLimit
from aioproducer.spark.sending import Sending, Sent
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.transactional_task import write_share, write_single
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
