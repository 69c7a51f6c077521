"""The driver's part of a batch that is written in transactions: it plans, and decides, or lets go."""

from __future__ import annotations

import functools
import hashlib
import os
import secrets
from dataclasses import replace

from aioproducer.errors import ProducerError
from aioproducer.spark.decision_protocol import decide, give_up, plan
from aioproducer.spark.decision_records import decision
from aioproducer.spark.decision_topic import commit_with
from aioproducer.spark.delivery import BatchLost, DeliveryError, ExactlyOnce, Guarantee
from aioproducer.spark.messages import (
    Messages,
    Prepared,
    Shared,
    Skipped,
    log_not_aborted,
    log_skipped,
)
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.task import Task
from aioproducer.spark.worker import worker
from aioproducer.transaction_admin import TransactionAdmin
from aioproducer.transactions.prepared_transaction import PreparedTransaction


def planned(task: Task) -> Task:
    """Return *task* with what planning has found, if it has to plan and has not yet.

    Raises: BatchLost, DeliveryError, ProducerError.
    """
    delivery = task.delivery
    if delivery is None or delivery.guarantee is not Guarantee.LOG or task.planned is not None:
        return task
    found = worker().ask(task.settings, delivery.prefix, lambda kafka: plan(kafka, delivery, run_name()))
    return replace(task, planned=found)


def commit(task: Task, messages: Messages) -> None:
    """Let all of a batch be seen.

    Raises: BatchLost: part of it is lost. DeliveryError: it cannot be seen, or nobody knows; who starts the query again
        finds out.
    """
    delivery = task.delivery
    if delivery is None:
        return
    reports = list(messages)
    for each in {report.batch for report in reports if isinstance(report, Skipped)}:
        log_skipped(each)
    prepared = [each for each in reports if isinstance(each, Prepared)]
    shared = [each for each in reports if isinstance(each, Shared)]
    if not prepared and not shared:
        return
    batch = shared[0].batch if shared else prepared[0].batch
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


def _commit_single(settings: ProducerSettings, delivery: ExactlyOnce, prepared: list[Prepared]) -> None:
    """Commit the transaction of the one task with the decision in it, so that one commit is both."""
    report = prepared[0]
    if len(prepared) > 1:  # tasks say so first
        raise DeliveryError(f"{report.batch} has {len(prepared)} transactions, not one")
    entries = decision(delivery.prefix, report.batch, delivery.guarantee)
    worker().submit(commit_with(report.transaction, entries, settings)).result()


async def _abort(settings: ProducerSettings, transaction: PreparedTransaction) -> None:
    async with TransactionAdmin.from_config(settings.config()) as admin:
        await admin.end(transaction, commit=False)
