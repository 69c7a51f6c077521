"""The driver's part of a write: checks, planning, commit or abort of batches, and recovery of losses."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
import logging
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from aioproducer._core.clock import wall_ms
from aioproducer._core.transactions.transaction_types import PreparedTransaction
from aioproducer._topic_client import BACKOFF
from aioproducer.errors import (
    ProducerError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    broker_error,
)
from aioproducer.spark.decision_protocol import (
    End,
    abort_batch,
    all_decisions,
    begin,
    check_log,
    decide,
    missing,
    plan,
)
from aioproducer.spark.decision_records import Decided, Share, committed_by, decision, may_be_doubled
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
from aioproducer.spark.kafka_port import KafkaPort, commit_with
from aioproducer.spark.messages import Messages, Prepared, Shared, Skipped, log, log_slow
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.task import Task
from aioproducer.spark.worker import worker
from aioproducer.transaction_admin import TransactionAdmin

if TYPE_CHECKING:
    from aioproducer._core.protocol.metadata import MetadataResponseTopic
    from aioproducer._topic_client import Client
    from aioproducer.spark.worker import Worker


def planned(task: Task) -> Task:
    """Return *task* with the result of planning, if the write needs planning.

    `planned` checks the login and the topics before the planning.

    Raises: BatchLost, DeliveryError, ProducerError.
    """
    delivery = task.delivery
    host = worker()
    check(host, task.settings, task.topics)
    if delivery is None or task.planned is not None:
        return task
    host.submit(host.check_retention(task.settings)).result()
    if delivery.guarantee is not Guarantee.LOG:
        host.run_with_kafka(task.settings, delivery.prefix, lambda kafka: _begin_single(kafka, delivery))
        return task
    found = host.run_with_kafka(
        task.settings, delivery.prefix, lambda kafka: plan(kafka, delivery, run_name())
    )
    return replace(task, planned=found)


def commit(task: Task, messages: Messages, *, streams: bool = False) -> None:
    """Commit all rows of a batch; *streams* is True if the query writes with writeStream, else False (foreachBatch, job).

    Raises: BatchLost: a part of the batch is lost. DeliveryError: the batch cannot be committed, is committed already, or
        its outcome is unknown; the next start of the query finds the outcome.
    """
    delivery = task.delivery
    if delivery is None:
        return
    reports = list(messages)
    for each in {report.batch for report in reports if isinstance(report, Skipped)}:
        log.info("spark.batch.skipped batch=%d of=%s", each.number, each.name)
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
    # `all_decisions` raises if the decisions topic was recreated since planning, and has lost other jobs.
    if delivery.job is not None:
        worker().run_with_kafka(task.settings, delivery.prefix, lambda kafka: all_decisions(kafka, delivery))
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
            f"{batch} has an unknown outcome; start the query again, which writes the batch if it is not committed:"
            f" {type(error).__name__}: {error}"
        ) from error


def abort(task: Task, messages: Messages) -> None:
    """Abort the transactions of a failed batch. Errors are logged, because Spark would stop calling other writers.

    The batch stays committed if a commit without a response took effect.
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
            worker().run_with_kafka(
                task.settings,
                delivery.prefix,
                lambda kafka: abort_batch(kafka, delivery, first.planned, first.batch),
            )
    except ProducerError as error:
        log.warning("spark.transaction.not_aborted error=%s: %s", type(error).__name__, error)


@functools.cache
def run_name() -> str:
    """Return a short name of this driver, equal in all processes of the driver and different from other drivers' names.

    Spark gives the processes of one driver a directory with a random name.
    """
    directories = os.environ.get("SPARK_LOCAL_DIRS", "")
    if "blockmgr-" not in directories:
        return secrets.token_hex(6)  # the name of this process, which may end after an idle minute
    return hashlib.sha256(directories.encode()).hexdigest()[:12]


async def _begin_single(kafka: KafkaPort, delivery: ExactlyOnce) -> None:
    await begin(kafka, delivery)
    await all_decisions(kafka, delivery)


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
        log.log(
            level,
            "spark.batch.may_be_doubled batch=%d of=%s prefix=%s reason=%s",
            batch.number, batch.name, delivery.prefix, reason,
        )  # fmt: skip


def _decide(settings: ProducerSettings, delivery: ExactlyOnce, shared: list[Shared]) -> None:
    first = shared[0]
    if any(each.batch != first.batch or each.planned != first.planned for each in shared):
        raise DeliveryError(
            f"{first.batch} is not decided: its tasks were not planned together; start the query again"
        )
    shares = [each.share for each in shared]
    worker().run_with_kafka(
        settings,
        delivery.prefix,
        lambda kafka: decide(kafka, delivery, first.planned, first.batch, shares),
    )
    _warn_if_slow(delivery, first.batch, shares)


def _commit_single(settings: ProducerSettings, delivery: ExactlyOnce, prepared: list[Prepared]) -> None:
    """Commit the only task's transaction, which includes the decision."""
    report = prepared[0]
    if len(prepared) > 1:  # the tasks have checked the number of transactions
        raise DeliveryError(f"{report.batch} has {len(prepared)} transactions, not one")
    entries = decision(delivery.prefix, report.batch, delivery.guarantee)
    worker().submit(commit_with(report.transaction, entries, settings)).result()
    _warn_if_slow(delivery, report.batch, [report.transaction])


def _warn_if_slow(
    delivery: ExactlyOnce, batch: BatchId, transactions: Iterable[Share | PreparedTransaction]
) -> None:
    """Log a warning if *batch* took more than half of the time after which a batch fails."""
    oldest = min(transactions, key=attrgetter("began_at_ms"))
    age_ms, max_age_ms = wall_ms() - oldest.began_at_ms, delivery.max_age_ms(oldest.timeout_ms)
    if age_ms > max_age_ms / 2:
        log_slow(batch, age_ms / 1000, max_age_ms / 1000)


async def _abort(settings: ProducerSettings, transaction: PreparedTransaction) -> None:
    async with TransactionAdmin.from_config(settings.config()) as admin:
        await admin.end(transaction, commit=False)


ANSWER_S: Final = 5.0
"""Maximum time for a first answer: tasks wait longer for slow brokers, so a late answer is no error."""
CREATION_S: Final = 3.0
"""Maximum time for brokers to create a topic (`auto.create.topics.enable`), or to list a topic created a moment ago."""
MAY_WRITE: Final = 1 << 4
"""Bit of AclOperation.WRITE in the authorized operations of a topic (KIP-430)."""


# `check` runs once per process: Spark plans each micro-batch twice, and ends a process after an idle minute.
@lru_cache(maxsize=16)
def check(host: Worker, settings: ProducerSettings, topics: tuple[str, ...]) -> None:
    """Check that brokers accept the login, have *topics*, and authorize the login to write to *topics*.

    Without an answer the driver logs a WARNING, and the tasks start: executors may reach brokers that the driver cannot.

    Raises: AuthenticationFailed, TopicAuthorizationFailed, UnknownTopicOrPartition; ProducerError: another refusal.
    """
    try:
        host.run_with_client(settings, partial(_check, topics), within_s=ANSWER_S + CREATION_S)
    except UnknownTopicOrPartition:
        raise
    except TimeoutError:
        reason = f"the brokers did not answer in {ANSWER_S + CREATION_S:g} s"
        log.warning("spark.driver.unchecked reason=%s", reason)
    except ProducerError as error:
        if not error.retriable:
            raise
        log.warning("spark.driver.unchecked reason=%s", f"{type(error).__name__}: {error}")


async def _check(topics: tuple[str, ...], client: Client) -> None:
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + CREATION_S
    for count in itertools.count():
        answer = await client.describe(topics, for_writing=True)
        missing = [topic.name for topic in answer.topics if _is_missing(topic)]
        if not missing:
            return
        delay_s = BACKOFF.delay_s(count)
        if loop.time() + delay_s > ends_at:
            raise UnknownTopicOrPartition(
                f"topic {missing[0]!r}: the brokers do not have it, and did not create it within {CREATION_S:g} s;"
                " create it, or correct its name"
            )
        await asyncio.sleep(delay_s)


def _is_missing(topic: MetadataResponseTopic) -> bool:
    """Return True if *topic* does not exist. Raises: ProducerError: *topic* cannot be written to."""
    code = topic.error_code
    if code == UnknownTopicOrPartition.code:
        return True
    # If `topic_authorized_operations` is 0 or less, the broker reports no operations.
    if code == TopicAuthorizationFailed.code or (
        not code
        and topic.topic_authorized_operations > 0
        and not topic.topic_authorized_operations & MAY_WRITE
    ):
        raise TopicAuthorizationFailed(
            f"topic {topic.name!r}: the login may not write to it; grant it Write on the topic"
        )
    if code:
        error = broker_error(code)
        if not error.retriable:
            raise error(f"topic {topic.name!r}: {(error.__doc__ or error.__name__).splitlines()[0]}")
    return False


END_TEXTS: Mapping[End, str] = {End.LOST: "lost", End.UNKNOWN: "possibly lost, outcome unknown"}


def recover(options: Mapping[str, str], prefix: str, *, confirm: bool) -> tuple[str, bool]:
    """Return a description of losses of queries and jobs under *prefix*, and True if queries and jobs may continue.

    Raises: ConfigError, DeliveryError, ProducerError.
    """
    settings = ProducerSettings(tuple(sorted(options.items())))
    settings.config()
    delivery = ExactlyOnce(Guarantee.LOG, prefix, None)
    reason, found = worker().run_with_kafka(
        settings, prefix, lambda kafka: _losses(kafka, delivery, confirm=confirm)
    )
    if not found and not reason:
        return "nothing is lost", True
    lines = [reason] if reason else []
    for name, (number, ends) in found.items():
        lines.append(f"batch {number} of {name}: {len(ends)} transactions are not committed")
        lines += [
            f"  {share.transactional_id}: {END_TEXTS[end]}: {share.topic}-{share.partition} up to offset"
            f" {share.last_offset}, and its other partitions"
            for share, end in ends.items()
        ]
    lines.append(
        "confirmed: the query continues after the batch"
        if confirm
        else "--confirm lets the query continue after the batch"
    )
    return "\n".join(lines), confirm


async def _losses(
    kafka: KafkaPort, delivery: ExactlyOnce, *, confirm: bool
) -> tuple[str, Mapping[str, tuple[int, Mapping[Share, End]]]]:
    """Return the reason for a possible loss of decisions (or ""), and the uncommitted transactions."""
    reason = ""
    try:
        await check_log(kafka, delivery)
    except DeliveryError as error:
        reason = str(error)
    return reason, await missing(kafka, delivery, confirm=confirm)
