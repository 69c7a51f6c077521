"""One task: the rows of one partition of a DataFrame, sent and acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext

from aioproducer.arrow.arrow_schema import Columns
from aioproducer.arrow.batches import IN_FLIGHT, pieces, send_batch
from aioproducer.arrow.result import Outcome
from aioproducer.intake.convoy import Convoy
from aioproducer.producer import Producer
from aioproducer.spark.messages import TaskReport
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.worker import Worker, worker


@dataclass(frozen=True, slots=True)
class Task:
    """What the tasks of a write have in common; it travels to them from the driver."""

    settings: ProducerSettings
    columns: Columns

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        """Send all rows and report once each of them is acknowledged.

        Raises:
            SendTableError: a row failed; what is in Kafka of the others stays there.
            ConnectionFailed: no broker could be reached.
        """
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        host = worker()
        with host.producer(self.settings) as producer:
            outcome = self._send(batches, producer, host)
            try:
                sent = outcome.result()
            except Exception as error:
                error.add_note(
                    f"Rows are counted from 0 in partition {context.partitionId()} of the DataFrame."
                )
                raise
        return TaskReport(
            query_id=context.getLocalProperty("sql.streaming.queryId"),
            rows=sent.rows,
            bytes=sent.bytes,
        )

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
