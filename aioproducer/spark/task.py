"""One task: the rows of one partition of a DataFrame, sent and acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from aioproducer.arrow.arrow_schema import Columns
from aioproducer.arrow.batches import IN_FLIGHT, pieces, send_batch
from aioproducer.arrow.result import Outcome, TableResult
from aioproducer.intake.convoy import Convoy
from aioproducer.producer import Producer
from aioproducer.spark.decision_protocol import Plan
from aioproducer.spark.delivery import ExactlyOnce
from aioproducer.spark.messages import TaskReport
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.transactional_task import write_share, write_single
from aioproducer.spark.worker import Worker, worker


@dataclass(frozen=True, slots=True)
class Task:
    """What the tasks of a write have in common; it travels to them from the driver."""

    settings: ProducerSettings
    columns: Columns
    delivery: ExactlyOnce | None = None
    """None: at least once."""
    planned: Plan | None = None
    """Exactly once for any number of tasks: what planning has found."""

    def run(self, batches: Iterable[pa.RecordBatch], *, replays: bool = True) -> WriterCommitMessage:
        """Send all rows and report once each of them is acknowledged; exactly once, in a transaction that stays open.

        Not *replays*: within one run of a query the same batch is not written again.

        Raises:
            SendTableError: a row failed; what is in Kafka of the others stays there.
            ConnectionFailed: no broker could be reached.
            ConfigError, DeliveryError: it cannot be written exactly once.
        """
        if self.delivery is not None:
            return self._exactly_once(iter(batches), self.delivery, replays=replays)
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        host = worker()
        with host.producer(self.settings) as producer:
            sent = self._sent(batches, producer, host)
        return TaskReport(
            query_id=context.getLocalProperty("sql.streaming.queryId"),
            rows=sent.rows,
            bytes=sent.bytes,
        )

    def _exactly_once(
        self, batches: Iterator[pa.RecordBatch], delivery: ExactlyOnce, *, replays: bool
    ) -> WriterCommitMessage:
        host = worker()

        def send(rows: Iterable[pa.RecordBatch], producer: Producer) -> TableResult:
            return self._sent(rows, producer, host)

        if self.planned is None:
            return write_single(
                batches, send, host=host, settings=self.settings, delivery=delivery, replays=replays
            )
        return write_share(
            batches,
            send,
            host=host,
            settings=self.settings,
            delivery=delivery,
            planned=self.planned,
            replays=replays,
        )

    def _sent(self, batches: Iterable[pa.RecordBatch], producer: Producer, host: Worker) -> TableResult:
        outcome = self._send(batches, producer, host)
        try:
            return outcome.result()
        except Exception as error:
            context = TaskContext.get()
            assert context is not None, "Spark calls this in a task"
            error.add_note(f"Rows are counted from 0 in partition {context.partitionId()} of the DataFrame.")
            raise

    def _send(self, batches: Iterable[pa.RecordBatch], producer: Producer, host: Worker) -> Outcome:
        """Return what has become of all rows, or of those that were read until one failed.

        Spark's rows come through a socket, which blocks: so this thread reads them, and the event loop is on another.
        """
        convoy = Convoy()

        async def send(piece: pa.RecordBatch, first_row: int) -> Outcome:
            return await send_batch(producer, piece, self.columns, convoy=convoy, first_row=first_row)

        outcome, row = Outcome(), 0
        in_flight: deque[Future[Outcome]] = deque()
        for piece in chain.from_iterable(pieces(batch, self.columns) for batch in batches):
            while in_flight and (len(in_flight) == IN_FLIGHT or in_flight[0].done()):
                outcome.add(in_flight.popleft().result())
            if outcome.failed:
                break
            in_flight.append(host.submit(send(piece, row)))
            row += piece.num_rows
        for each in in_flight:
            outcome.add(each.result())
        return outcome
