"""The delivery guarantee of a write, and the transactional ids of exactly-once writes; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple
from zlib import crc32

from aioproducer._core.logfmt import escaped
from aioproducer.errors import ConfigError, ProducerError

GUARANTEE: Final = "deliveryGuarantee"
PREFIX: Final = "transactionalIdPrefix"
JOB: Final = "jobId"
ON_COMMITTED_JOB: Final = "onCommittedJob"
OPTIONS: Final = (GUARANTEE, PREFIX, JOB, ON_COMMITTED_JOB)
SKIP: Final = "skip"
FAIL: Final = "fail"

TRANSACTION_TIMEOUT_MS: Final = 15 * 60 * 1000
"""Default of `kafka.transaction.timeout.ms`: the brokers' default maximum."""


class Guarantee(StrEnum):
    """The values of `deliveryGuarantee`."""

    AT_LEAST_ONCE = "at-least-once"
    SINGLE = "exactly-once-single"
    """A batch has one task and one transaction, which contains the decision to commit the batch."""
    LOG = "exactly-once"
    """A batch has any number of tasks with one transaction each; a log lists the decided transactions."""


class DeliveryError(ProducerError):
    """A batch cannot be written or committed exactly once. Rows of the batch are invisible unless stated otherwise."""


class BatchLost(DeliveryError):
    """Part of a decided batch is lost. An operator must confirm the loss before the query continues."""


class ExactlyOnce(NamedTuple):
    """The options of an exactly-once write."""

    guarantee: Guarantee
    prefix: str
    job: str | None
    """The user's name of the job; None for a streaming query, which has an id."""
    fails_if_committed: bool = False
    """True if a write with this job fails, rather than writing nothing, once the job is committed."""

    @property
    def single_id(self) -> str:
        """The transactional id of the only task."""
        return f"{self.prefix}.s"

    @property
    def beginning_id(self) -> str:
        """Transactional id of the record that notes the first use of the prefix; used before all other ids."""
        return f"{self.prefix}.b"

    @property
    def driver_id(self) -> str:
        """The transactional id of the driver, which decides on the transactions of any number of tasks."""
        return f"{self.prefix}.d"

    def max_age_ms(self, timeout_ms: int) -> float:
        """Return the maximum age at commit of a transaction with the timeout *timeout_ms*; infinite if *timeout_ms* is -1.

        With any number of tasks, the second half of the timeout is left for a driver that takes over.
        """
        if timeout_ms < 0:
            return inf
        return timeout_ms if self.guarantee is Guarantee.SINGLE else timeout_ms / 2

    def task_ids(self, run: str = "") -> str:
        """Return the prefix of the transactional ids of tasks, of all runs or only of *run*."""
        return f"{self.prefix}.t.{run}." if run else f"{self.prefix}.t."

    def task_id(self, run: str, partition: int, lane: int) -> str:
        """Return the transactional id of an attempt of a task."""
        return f"{self.task_ids(run)}{partition}.{lane}"


class BatchId(NamedTuple):
    """Identity of a batch, equal in every attempt to write the batch."""

    name: str
    """Name of the query or job."""
    number: int
    """Number of the micro-batch; 0 outside a query."""
    run: str
    """Id of the query's run, from its start to its end; empty outside a query."""

    def __str__(self) -> str:
        """Return the batch's name in messages."""
        return f"batch {self.number} of {escaped(self.name)}"

    def run_under(self, driver: str) -> str:
        """Return a short name for this run of the query under a *driver*, which may start the query again."""
        return f"{driver}-{crc32(self.run.encode()):08x}" if self.run else driver


def exactly_once(options: Mapping[str, str]) -> ExactlyOnce | None:
    """Return the exactly-once write that *options* request; None for at least once.

    Raises: ConfigError.
    """
    given = options.get(GUARANTEE, Guarantee.AT_LEAST_ONCE)
    prefix, job = options.get(PREFIX), options.get(JOB)
    try:
        guarantee = Guarantee(given)
    except ValueError:
        raise ConfigError(f"{GUARANTEE} = {given!r}: expected one of {', '.join(Guarantee)}") from None
    if guarantee is Guarantee.AT_LEAST_ONCE:
        for name in (PREFIX, JOB, ON_COMMITTED_JOB):
            if name in options:
                raise ConfigError(f"{name} has no effect without {GUARANTEE}={Guarantee.LOG}")
        return None
    if not prefix:
        raise ConfigError(
            f"{GUARANTEE}={guarantee} needs {PREFIX}: the prefix of this write's transactional ids, unique to this write"
        )
    if job == "":
        raise ConfigError(f"{JOB} is empty; give a name by which a repeated job is recognised")
    return ExactlyOnce(guarantee, prefix, job, _fails_if_committed(options))


def _fails_if_committed(options: Mapping[str, str]) -> bool:
    given = options.get(ON_COMMITTED_JOB, SKIP)
    if given not in {SKIP, FAIL}:
        raise ConfigError(f"{ON_COMMITTED_JOB} = {given!r}: expected {SKIP} or {FAIL}")
    if ON_COMMITTED_JOB in options and JOB not in options:
        raise ConfigError(f"{ON_COMMITTED_JOB} has no effect without {JOB}")
    return given == FAIL


def batch_id(
    delivery: ExactlyOnce, query: str | None, number: str | None, run: str | None, *, streams: bool = False
) -> BatchId:
    """Return the batch of a task, from Spark's local properties; *streams* is True for a stream.

    Raises: ConfigError: the properties do not identify the batch.
    """
    if streams and number is None:
        raise ConfigError(
            f"{GUARANTEE}={delivery.guarantee} needs micro-batches: trigger(continuous=…) has none"
        )
    if delivery.job is not None:
        return BatchId(f"job {delivery.job}", int(number or 0), (number and run) or "")
    if query is None or number is None:
        raise ConfigError(
            f"{GUARANTEE}={delivery.guarantee} needs the option {JOB} here: outside of a streaming query, and in"
            " foreachBatch under Spark Connect, Spark does not identify the batch"
        )
    return BatchId(f"query {query}", int(number), run or "")
