"""The driver's part of a batch that is written in transactions: it plans, and decides, or lets go."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import secrets
from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter

from aioproducer._core.clock import wall_ms
from aioproducer._core.transactions.transaction_types import PreparedTransaction
from aioproducer.errors import ProducerError
from aioproducer.spark.decision_protocol import begin, decide, give_up, kept, plan
from aioproducer.spark.decision_records import Decided, Share, committed_by, decision, may_be_doubled
from aioproducer.spark.decision_topic import commit_with
from aioproducer.spark.delivery import (
    JOB,
    ON_COMMITTED_JOB,
    PREFIX,
    SKIP,
    BatchId,
    BatchLost,
    DeliveryError,
    ExactlyOnce,
    Guarantee,
)
from aioproducer.spark.driver_check import check
from aioproducer.spark.kafka_port import KafkaPort
from aioproducer.spark.messages import (
    Messages,
    Prepared,
    Shared,
    Skipped,
    log_may_be_doubled,
    log_not_aborted,
    log_skipped,
    log_slow,
)
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.task import Task
from aioproducer.spark.worker import worker
from aioproducer.transaction_admin import TransactionAdmin


def planned(task: Task) -> Task:
    """Return *task* with what planning has found, if it has to plan and has not yet.

    The login and the topics are checked first.

    Raises: BatchLost, DeliveryError, ProducerError.
    """
    delivery = task.delivery
    host = worker()
    check(host, task.settings, task.topics)
    if delivery is None or task.planned is not None:
        return task
    host.submit(host.check_kept(task.settings)).result()
    if delivery.guarantee is not Guarantee.LOG:
        host.ask(task.settings, delivery.prefix, lambda kafka: _begin_single(kafka, delivery))
        return task
    found = host.ask(task.settings, delivery.prefix, lambda kafka: plan(kafka, delivery, run_name()))
    return replace(task, planned=found)


def commit(task: Task, messages: Messages, *, streams: bool = False) -> None:
    """Commit all rows of a batch; *streams*: the query writes with this sink alone, not in foreachBatch.

    Raises: BatchLost: a part of the batch is lost. DeliveryError: the batch cannot be committed, is committed already, or
        its outcome is unknown; the next start of the query finds the outcome.
    """
    delivery = task.delivery
    if delivery is None:
        return
    reports = list(messages)
    for each in {report.batch for report in reports if isinstance(report, Skipped)}:
        log_skipped(each)
        if delivery.fails_if_committed and not each.run and not streams:
            raise DeliveryError(
                f"{each.name}: the job is committed under {PREFIX} {delivery.prefix!r}, so nothing is written again; give"
                f" another {JOB}, or {ON_COMMITTED_JOB}={SKIP}"
            )
    prepared = [each for each in reports if isinstance(each, Prepared)]
    shared = [each for each in reports if isinstance(each, Shared)]
    if not prepared and not shared:
        return
    first = shared[0] if shared else prepared[0]
    batch = first.batch
    if (
        delivery.job is not None
    ):  # a topic recreated since planning would have this job alone, and no other job
        worker().ask(task.settings, delivery.prefix, lambda kafka: kept(kafka, delivery))
    _check_not_moved(task.settings, delivery, batch, first.last, streams=streams)
    try:
        if shared:
            _decide(task.settings, delivery, shared)
        else:
            _commit_single(task.settings, delivery, prepared)
    except BatchLost:
        raise
    except ProducerError as error:
        raise DeliveryError(
            f"{batch} was not seen to be committed; start the query again, which writes it if it is not there:"
            f" {type(error).__name__}: {error}"
        ) from error


def abort(task: Task, messages: Messages) -> None:
    """End the transactions of a batch that failed; raise nothing: Spark would call nobody any more.

    It may be committed, by a commit that had no answer: then there is nothing to abort.
    """
    delivery = task.delivery
    if delivery is None:
        return
    reports = [each for each in messages if isinstance(each, Prepared | Shared)]
    if not reports:
        return
    first = reports[0]
    try:
        if isinstance(first, Prepared):
            worker().submit(_abort(task.settings, first.transaction)).result()
        else:
            worker().ask(
                task.settings,
                delivery.prefix,
                lambda kafka: give_up(kafka, delivery, first.planned, first.batch),
            )
    except ProducerError as error:
        log_not_aborted(error)


@functools.cache
def run_name() -> str:
    """Return a short name of this driver, the same for all of its processes, and never that of another.

    Spark gives its processes a directory of its own for each start, whose name is random.
    """
    directories = os.environ.get("SPARK_LOCAL_DIRS", "")
    if "blockmgr-" not in directories:
        return secrets.token_hex(6)  # of this process, then, which may be gone after a minute without work
    return hashlib.sha256(directories.encode()).hexdigest()[:12]


async def _begin_single(kafka: KafkaPort, delivery: ExactlyOnce) -> None:
    await begin(kafka, delivery)
    await kept(kafka, delivery)


def _check_not_moved(
    settings: ProducerSettings, delivery: ExactlyOnce, batch: BatchId, last: Decided | None, *, streams: bool
) -> None:
    """Check, at the first batch of a query's run, that the batch was not written under another guarantee or prefix.

    Raises: DeliveryError: the batch is committed under another prefix.
    """
    if delivery.job is not None or (last is not None and batch.run and last.run == batch.run):
        return
    host = worker()
    view = host.submit(host.decisions(settings, delivery.prefix)).result()
    elsewhere = view.elsewhere(batch.name)
    if streams and (other := committed_by(elsewhere, batch)) is not None:
        raise DeliveryError(
            f"{batch}: the batch is committed under {PREFIX} {other!r}, and under {delivery.prefix!r} it would be written"
            f" twice; start the query with {other!r} until it has committed a batch, stop it, and then change the prefix"
        )
    if (reason := may_be_doubled(last, elsewhere, batch)) is not None:
        level = logging.WARNING if last is None else logging.INFO
        log_may_be_doubled(batch, delivery.prefix, reason, level=level)


def _decide(settings: ProducerSettings, delivery: ExactlyOnce, shared: list[Shared]) -> None:
    first = shared[0]
    if any(each.batch != first.batch or each.planned != first.planned for each in shared):
        raise DeliveryError(f"{first.batch} is not decided: its tasks were not planned together")
    shares = [each.share for each in shared]
    worker().ask(
        settings,
        delivery.prefix,
        lambda kafka: decide(kafka, delivery, first.planned, first.batch, shares),
    )
    _warn_if_slow(delivery, first.batch, shares)


def _commit_single(settings: ProducerSettings, delivery: ExactlyOnce, prepared: list[Prepared]) -> None:
    """Commit the transaction of the one task with the decision in it, so that one commit is both."""
    report = prepared[0]
    if len(prepared) > 1:  # tasks say so first
        raise DeliveryError(f"{report.batch} has {len(prepared)} transactions, not one")
    entries = decision(delivery.prefix, report.batch, delivery.guarantee)
    worker().submit(commit_with(report.transaction, entries, settings)).result()
    _warn_if_slow(delivery, report.batch, [report.transaction])


def _warn_if_slow(
    delivery: ExactlyOnce, batch: BatchId, transactions: Iterable[Share | PreparedTransaction]
) -> None:
    """Log a warning if *batch* took more than half of the time after which such a batch fails."""
    oldest = min(transactions, key=attrgetter("began_at_ms"))
    age_ms, lasts_ms = wall_ms() - oldest.began_at_ms, delivery.lasts_ms(oldest.timeout_ms)
    if age_ms > lasts_ms / 2:
        log_slow(batch, age_ms / 1000, lasts_ms / 1000)


async def _abort(settings: ProducerSettings, transaction: PreparedTransaction) -> None:
    async with TransactionAdmin.from_config(settings.config()) as admin:
        await admin.end(transaction, commit=False)
