"""Messages of tasks to the driver, and the driver's log events about these messages."""

from __future__ import annotations

import functools
import logging
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql.datasource import WriterCommitMessage

from aioproducer._core.logfmt import Pairs
from aioproducer._core.metrics import Traffic
from aioproducer._core.steps import Log
from aioproducer._core.transactions.transaction_types import PreparedTransaction
from aioproducer.spark.decision_protocol import Plan
from aioproducer.spark.decision_records import Decided, Share
from aioproducer.spark.delivery import BatchId

if TYPE_CHECKING:
    from pyspark import TaskContext

logger: Final = logging.getLogger("aioproducer.spark")

Messages: TypeAlias = Iterable[WriterCommitMessage | None]


LISTED: Final = 100
"""Maximum number of partitions of a task, and of a log line, whose offsets are listed: 24 bytes per partition."""
NAME_CHARS: Final = 100
CONNECT_PREFIX: Final = "Spark Connect - "
"""Beginning of the description that Spark Connect gives to a job, with the plan and without a name."""


@dataclass(frozen=True)
class BadRows:
    """Rows that a task cannot send, and in place of which the task has sent dead letters."""

    rows: int
    topic: str
    """Topic of the dead letters."""
    reason: str
    """Reason why the first bad row cannot be sent."""


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """Report of one attempt of a task whose rows are all acknowledged.

    Spark fails a job whose reports exceed `spark.driver.maxResultSize`, after the rows are written. A report therefore lists
    the offsets of at most `LISTED` partitions.
    """

    query_id: str | None
    """Id of the streaming query, unchanged by restarts from its checkpoint; None for a batch."""
    rows: int
    bytes: int
    """Size of keys and values, in bytes."""
    bad: BadRows | None = field(default=None, kw_only=True)
    """Rows that cannot be sent; None without bad rows."""
    unchecked: tuple[str, ...] = field(default=(), kw_only=True)
    """Topic, and the error of reading its time limits; empty if the limits were read."""
    name: str = field(default="", kw_only=True)
    """Name of the query, or description of the job; empty without a name."""
    number: str = field(default="", kw_only=True)
    """Number of the micro-batch; empty outside a stream."""
    execution: str = field(default="", kw_only=True)
    """Id of the query in the SQL tab of Spark's UI; empty if Spark sets none."""
    traffic: Traffic = field(default=Traffic(), kw_only=True)
    partitions: int = field(default=0, kw_only=True)
    """Number of partitions written to, dead letters included."""
    offsets: Mapping[str, array[int]] = field(default_factory=dict, kw_only=True)
    """Partition, first and last offset in turn, by topic; empty with more than `LISTED` partitions."""


@dataclass(frozen=True)
class _OpenReport(TaskReport):
    """Report of a task whose transaction is open."""

    batch: BatchId
    last: Decided | None = field(default=None, kw_only=True)
    """The last decision on the query or job before this batch."""


@dataclass(frozen=True)
class Prepared(_OpenReport):
    """Report of a task with an open transaction; the task is the only task of its batch."""

    transaction: PreparedTransaction


@dataclass(frozen=True)
class Shared(_OpenReport):
    """Report of a task with an open transaction; its batch may have any number of tasks."""

    share: Share
    planned: Plan
    """Plan of the batch, for a driver process that commits and has not planned."""


@dataclass(frozen=True)
class Skipped(WriterCommitMessage):
    """Report of a task that wrote nothing because the batch is committed."""

    batch: BatchId


def origin(context: TaskContext) -> dict[str, Any]:
    """Return the fields of a `TaskReport` about the query and job of a task, from Spark's local properties.

    Spark describes the jobs of a query in lines: the name, if the query has one, `id = …`, `runId = …`, `batch = …`. The
    separator depends on Spark's version: a line feed (4.2), or `<br/>`.
    """
    described = context.getLocalProperty("spark.job.description") or ""
    name = described.replace("<br/>", "\n").partition("\n")[0].strip()
    query = context.getLocalProperty("sql.streaming.queryId")
    if name.startswith(CONNECT_PREFIX) or (query and name.startswith("id = ")):
        name = ""
    return {
        "query_id": query,
        "name": name[:NAME_CHARS],
        "number": context.getLocalProperty("streaming.sql.batchId") or "",
        "execution": context.getLocalProperty("spark.sql.execution.id") or "",
    }


class _DriverLog(Log):
    """Log that configures its logger before an event, so that log lines reach the driver's standard error or Spark's log.

    Spark runs a data source in its own process, where users cannot configure logging, so INFO would be lost. If Spark
    collects the log (spark.sql.pyspark.worker.logging.enabled), Spark adds a handler without a level.
    """

    __slots__ = ()

    def log(self, level: int, message: str, *arguments: object, stacklevel: int = 1, **options: Any) -> None:
        """Log at *level*."""
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
        if not logger.hasHandlers():
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
            logger.addHandler(handler)
        super().log(level, message, *arguments, stacklevel=stacklevel + 1, **options)


log: Final = _DriverLog(logger.name)


@functools.cache  # logs once per process: every micro-batch is planned
def log_topic_unchecked(topic: str, reason: str) -> None:
    """Log that the settings of the topic of decisions could not be checked."""
    log.warning("spark.decision_topic.unchecked topic=%s reason=%s", topic, reason)


_slow: Final[set[str]] = set()
"""Queries and jobs whose first slow batch was logged in this process."""


def log_slow(batch: BatchId, age_s: float, lasts_s: float) -> None:
    """Log that *batch* took *age_s* seconds, and that batches fail after *lasts_s* seconds; once per query."""
    if batch.name in _slow:
        return
    _slow.add(batch.name)
    log.warning(
        "spark.batch.slow batch=%d of=%s seconds=%.0f fails_after=%.0f",
        batch.number,
        batch.name,
        age_s,
        lasts_s,
    )


def log_committed(messages: Messages, batch_id: int | None = None, name: str = "") -> None:
    """Log that all tasks of a batch have written their rows, and the number of dead letters.

    *name* is the option `queryName`, for a batch without a report.
    """
    reports = _reports(messages)
    log.info("spark.batch.committed %s", _summary(reports, batch_id, name))
    for topic, error in dict.fromkeys(each.unchecked for each in reports if each.unchecked):
        _log_unchecked(topic, error)
    if bad := [each.bad for each in reports if each.bad]:
        rows = sum(each.rows for each in bad)
        log.warning(
            "spark.batch.bad_rows %s rows=%d topic=%s reason=%s",
            Pairs(**_batch_fields(reports, batch_id)), rows, bad[0].topic, bad[0].reason,
        )  # fmt: skip


@lru_cache(maxsize=16)
def _log_unchecked(topic: str, error: str) -> None:
    """Log, once per process, that rows of a topic were sent without a check of their times."""
    log.warning("spark.timestamps.unchecked topic=%s error=%s", topic, error)


def log_aborted(messages: Messages, batch_id: int | None = None, name: str = "") -> None:
    """Log that a batch failed, and its rows that are in Kafka; Spark may write these rows again.

    *name* is the option `queryName`, for a batch without a report.
    """
    log.warning("spark.batch.aborted %s", _summary(_reports(messages), batch_id, name))


def _reports(messages: Messages) -> list[TaskReport]:
    return [each for each in messages if isinstance(each, TaskReport)]  # None stands for a task that failed


def _summary(reports: Sequence[TaskReport], batch_id: int | None, name: str) -> Pairs:
    rows = sum(each.rows for each in reports)
    size = sum(each.bytes for each in reports)
    name = next((each.name for each in reports if each.name), name) or "-"
    execution = next((each.execution for each in reports if each.execution), "-")
    traffic = [sum(column) for column in zip(Traffic(), *(each.traffic for each in reports), strict=True)]
    retries, throttle_ms, sent_bytes, plain_bytes = traffic
    rate = round(sent_bytes / plain_bytes, 3) if plain_bytes else "-"
    partitions, offsets = _written(reports)
    return Pairs(
        **_batch_fields(reports, batch_id), rows=rows, bytes=size, tasks=len(reports), name=name, execution=execution,
        retries=retries, throttle_ms=throttle_ms, compression_rate=rate, partitions=partitions, offsets=offsets,
    )  # fmt: skip


def _written(reports: Sequence[TaskReport]) -> tuple[int, str]:
    """Return the number of partitions, and their offsets: `orders-0:17-203,…`, or `-` for too many partitions.

    The number is a lower limit if a task has written to more than `LISTED` partitions.
    """
    ranges: dict[tuple[str, int], tuple[int, int]] = {}
    for topic, listed in (item for each in reports for item in each.offsets.items()):
        for partition, first, last in zip(*[iter(listed)] * 3, strict=True):
            if first >= 0:  # acks=0: the broker returns no offset
                known = ranges.get((topic, partition), (first, last))
                ranges[topic, partition] = min(known[0], first), max(known[1], last)
    partitions = max([len(ranges), *(each.partitions for each in reports)])
    if not partitions == len(ranges) <= LISTED or not ranges:
        return partitions, "-"
    listing = (
        f"{topic}-{partition}:{first}-{last}" for (topic, partition), (first, last) in sorted(ranges.items())
    )
    return partitions, ",".join(listing)


def _batch_fields(reports: Sequence[TaskReport], batch_id: int | None) -> dict[str, object]:
    query = next((each.query_id for each in reports if each.query_id), "-")
    number = next((each.number for each in reports if each.number), "-")
    return {"query": query, "batch": number if batch_id is None else batch_id}
