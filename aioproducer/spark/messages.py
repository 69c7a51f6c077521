"""Messages of tasks to the driver, and what the driver logs about them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from pyspark.sql.datasource import WriterCommitMessage

from aioproducer.spark.decision_protocol import Plan
from aioproducer.spark.decision_records import Decided, Share
from aioproducer.spark.delivery import BatchId
from aioproducer.transactions.prepared_transaction import PreparedTransaction

log: Final = logging.getLogger("aioproducer.spark")

Messages: TypeAlias = Iterable[WriterCommitMessage | None]


@dataclass(frozen=True)
class BadRows:
    """Rows of a task that cannot be sent: dead letters were sent in their place."""

    rows: int
    topic: str
    """Where the letters are."""
    reason: str
    """Why the first of these rows cannot be sent."""


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """What one attempt of one task has written: every row of it is acknowledged.

    The driver holds those of all tasks, and Spark fails a job whose results are too large for it, after the rows are
    written: so this has the same size however many partitions the rows went to.
    """

    query_id: str | None
    """The streaming query, the same over restarts from its checkpoint; None for a batch."""
    rows: int
    bytes: int
    """Of keys and values."""
    bad: BadRows | None = field(default=None, kw_only=True)
    """None: there were none."""
    unchecked: str = field(default="", kw_only=True)
    """Topic, and the reason why its time limits could not be read; empty if they were."""


@dataclass(frozen=True)
class Prepared(TaskReport):
    """What one attempt of one task has written in a transaction, which is open."""

    batch: BatchId
    transaction: PreparedTransaction
    last: Decided | None = field(default=None, kw_only=True)
    """The decision before this batch, under the same prefix."""


@dataclass(frozen=True)
class Shared(TaskReport):
    """What one attempt of one of any number of tasks has written in a transaction, which is open."""

    batch: BatchId
    share: Share
    planned: Plan
    """What it was planned by; whoever commits has not planned."""
    last: Decided | None = field(default=None, kw_only=True)
    """The decision before this batch, under the same prefix."""


@dataclass(frozen=True)
class Skipped(WriterCommitMessage):
    """The batch was committed before: nothing is written."""

    batch: BatchId


def log_skipped(batch: BatchId) -> None:
    """Say that Spark has replayed a batch that is committed, and that nothing of it was written again."""
    _be_heard()
    log.info("spark.batch.skipped batch=%d of=%r", batch.number, batch.name)


def log_not_aborted(error: BaseException) -> None:
    """Say that the transaction of a batch that failed was not aborted: it could not be now, or is committed."""
    _be_heard()
    log.warning("spark.transaction.not_aborted error=%s: %s", type(error).__name__, error)


@functools.cache  # once in each process: every micro-batch is planned
def log_topic_unchecked(topic: str, reason: str) -> None:
    """Log that the settings of the topic of decisions could not be checked."""
    _be_heard()
    log.warning("spark.decision_topic.unchecked topic=%s reason=%r", topic, reason)


def log_may_be_doubled(batch: BatchId, prefix: str, reason: str, *, level: int) -> None:
    """Log that rows of a batch may be in the topic twice, as its query has changed guarantee or prefix."""
    _be_heard()
    log.log(
        level,
        "spark.batch.may_be_doubled batch=%d of=%r prefix=%r reason=%r",
        batch.number, batch.name, prefix, reason,
    )  # fmt: skip


def log_committed(messages: Messages, batch_id: int | None = None) -> None:
    """Say that all tasks of a batch have written their rows, and how many of these are dead letters."""
    _be_heard()
    reports = _reports(messages)
    log.info("spark.batch.committed %s", _told(reports, batch_id))
    for reason in dict.fromkeys(each.unchecked for each in reports if each.unchecked):
        _log_unchecked(reason)
    if bad := [each.bad for each in reports if each.bad]:
        rows = sum(each.rows for each in bad)
        log.warning(
            "spark.batch.bad_rows %s rows=%d topic=%r reason=%r",
            _which(reports, batch_id), rows, bad[0].topic, bad[0].reason,
        )  # fmt: skip


@lru_cache(maxsize=16)
def _log_unchecked(reason: str) -> None:
    """Log, once per process, that rows of a topic were sent without a check of their times."""
    log.warning("spark.timestamps.unchecked %s", reason)


def log_aborted(messages: Messages, batch_id: int | None = None) -> None:
    """Say that a batch failed, and how much of it is in Kafka all the same; Spark may write that again."""
    _be_heard()
    log.warning("spark.batch.aborted %s", _told(_reports(messages), batch_id))


def log_source_option(name: str) -> None:
    """Say that an option is one of Spark's Kafka source, and does nothing in the sink."""
    _be_heard()
    log.warning("spark.source_option.without_effect name=%s", name)


def log_unchecked(reason: str) -> None:
    """Log that the driver had no answer about the login and the topics of a write; the tasks find out."""
    _be_heard()
    log.warning("spark.driver.unchecked reason=%r", reason)


def _reports(messages: Messages) -> list[TaskReport]:
    return [each for each in messages if isinstance(each, TaskReport)]  # None stands for a task that failed


def _told(reports: Sequence[TaskReport], batch_id: int | None) -> str:
    rows = sum(each.rows for each in reports)
    size = sum(each.bytes for each in reports)
    return f"{_which(reports, batch_id)} rows={rows} bytes={size} tasks={len(reports)}"


def _which(reports: Sequence[TaskReport], batch_id: int | None) -> str:
    query = next((each.query_id for each in reports if each.query_id), "-")
    return f"query={query} batch={'-' if batch_id is None else batch_id}"


def _be_heard() -> None:
    """Let our lines reach the driver's standard error, or who else listens.

    A data source runs in a process of Spark's beside the driver, in which nobody has configured logging, nor can:
    what is below a warning would be lost. If Spark collects the log (spark.sql.pyspark.worker.logging.enabled), it has
    a handler there, and no level.
    """
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.addHandler(handler)
