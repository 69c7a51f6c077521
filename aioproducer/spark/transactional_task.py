"""One task that writes in a transaction, and leaves it open: the driver decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from aioproducer.errors import ConfigError
from aioproducer.producer import Producer
from aioproducer.spark.decision_protocol import Plan, choose_id
from aioproducer.spark.decision_records import Share, must_skip
from aioproducer.spark.delivery import GUARANTEE, BatchId, ExactlyOnce, batch_id
from aioproducer.spark.messages import Prepared, Shared, Skipped, TaskReport, origin
from aioproducer.spark.sending import Sent
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.worker import Worker

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
