"""The exactly-once protocol for any number of tasks: requests to Kafka and their order, without I/O.

Each task leaves its transaction open. The driver writes the list of the batch's transactions to a log, in a transaction
whose commit is the decision. Then the driver commits the listed transactions and notes the end of the batch. A new driver
completes decided batches and aborts the remaining transactions.

The protocol is exact for these reasons:

- The epoch of the driver's id is the driver's generation. Planning takes the next epoch, so a replaced driver cannot decide.
- Ids of tasks contain the run of their driver and of their query. Tasks and commits of an earlier run cannot use the ids
  of a new run.
- Decided transactions are ended before any id is fenced.
- A driver lists the ids to fence while it is the current driver, so the list has no tasks of a later driver.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from aioproducer._core.transactions.transaction_types import PreparedTransaction
from aioproducer.errors import UnsupportedVersion
from aioproducer.spark.decision_records import BEGUN, TOPIC, Decided, Entry, Share, begun, decision, done
from aioproducer.spark.delivery import PREFIX, BatchId, BatchLost, DeliveryError, ExactlyOnce, Guarantee

LANES: Final = 100
"""Distance between the lanes of an attempt and of its siblings; above Spark's number of attempts per task."""

RECOVER: Final = "`aioproducer spark-recover` lists the losses, and with --confirm lets the query continue"


class End(Enum):
    """Outcome of the commit of a decided transaction."""

    COMMITTED = 1
    LOST = 2
    """The transaction was aborted, because it timed out or was fenced."""
    UNKNOWN = 3
    """The coordinator has no outcome; the log of the written partition may have the outcome."""


class TransactionInfo(NamedTuple):
    """The coordinator's state of a transactional id."""

    producer_id: int
    epoch: int
    is_open: bool
    """True if a transaction has not ended completely."""
    takes_records: bool
    """True if no commit or abort of the transaction has begun."""
    began_at_ms: int


class Plan(NamedTuple):
    """Result of planning on the driver, sent to the tasks."""

    run: str
    """Short name of the driver process."""
    driver: PreparedTransaction
    """The driver's generation: only this epoch can decide the batch."""
    decided: Mapping[str, Decided]


class Kafka(Protocol):
    """Requests to Kafka. A request that raised may have taken effect."""

    async def take_over(self, name: str) -> PreparedTransaction:
        """Take the next epoch of the transactional id *name* (InitProducerId)."""

    async def succeed(self, driver: PreparedTransaction) -> bool:
        """Take the next epoch and return True if *driver* still owns the id."""

    async def decisions(self) -> Mapping[str, Decided]:
        """Return the last decision on each query or job under the prefix."""

    async def removed(self) -> int:
        """Return the first offset of the log at the last `decisions`; above 0 if records were removed."""

    async def write(self, driver: PreparedTransaction, entries: Sequence[Entry]) -> PreparedTransaction:
        """Write and commit *entries* under the epoch of *driver*; return the epoch for the next write."""

    async def commit(self, shares: Sequence[Share]) -> Mapping[Share, End]:
        """Commit the transactions of *shares*; return the outcome of each transaction."""

    async def outcome_in_log(self, share: Share) -> End:
        """Return the outcome of *share* from the log of its partition."""

    async def describe(self, names: Collection[str]) -> Mapping[str, TransactionInfo | None]:
        """Return the state of each id; None for unknown ids."""

    async def ongoing(self, prefix: str) -> Sequence[str]:
        """Return the ids with *prefix* and a transaction whose end has not begun."""

    async def fence(self, names: Collection[str]) -> None:
        """Take the next epoch of each id; open transactions are aborted."""

    def now_ms(self) -> int:
        """Return the current time in milliseconds since the epoch."""


async def begin(kafka: Kafka, delivery: ExactlyOnce) -> None:
    """Write the first use of a prefix to the log, before any other transactional id of the prefix is used.

    If a coordinator has an id of the prefix, and the log has no record of the prefix, the log was therefore lost.

    Raises: DeliveryError: records of the log were removed.
    """
    known = await _known(kafka, delivery)
    if not _was_used(known, delivery):
        decided = await kafka.decisions()
        await _check_nothing_removed(kafka, delivery, decided)
        if not decided:
            registrar = await kafka.take_over(delivery.beginning_id)
            await kafka.write(registrar, begun(delivery.prefix, await kafka.removed()))
            # the broker answers after the commit marker is in the log
            await kafka.take_over(delivery.beginning_id)
            return
    beginning = known.get(delivery.beginning_id)
    if beginning is not None and beginning.takes_records:
        # a driver hung in this function, wrote after another driver, and died: an open transaction blocks readers
        await kafka.fence([delivery.beginning_id])


async def all_decisions(kafka: Kafka, delivery: ExactlyOnce) -> dict[str, Decided]:
    """Return the last decision on each query or job. Call `begin` before `all_decisions`.

    Raises: DeliveryError: decisions can have been lost.
    """
    decided = dict(await kafka.decisions())
    await _check_nothing_removed(kafka, delivery, decided)
    if not decided:
        raise DeliveryError(
            f"{TOPIC}: the topic has no record of {PREFIX} {delivery.prefix!r}, whose transactional ids the brokers know,"
            " so it was deleted or recreated, and committed batches would be written again;"
            f" {_recovery_hint(delivery)}"
        )
    decided.pop(BEGUN, None)
    return decided


async def check_log(kafka: Kafka, delivery: ExactlyOnce) -> None:
    """Check the log as `plan` does, and write nothing. Raises: DeliveryError: decisions can have been lost."""
    if _was_used(await _known(kafka, delivery), delivery):
        await all_decisions(kafka, delivery)
    else:
        await _check_nothing_removed(kafka, delivery, await kafka.decisions())


async def plan(kafka: Kafka, delivery: ExactlyOnce, run: str) -> Plan:
    """Take over as the driver: complete decided batches, and abort other transactions.

    Raises: BatchLost: a part of a decided batch is lost. DeliveryError: another driver has replaced this driver, or the
        log has lost decisions.
    """
    await begin(kafka, delivery)
    driver = await kafka.take_over(delivery.driver_id)
    decided = await all_decisions(kafka, delivery)
    for name, last in decided.items():
        if last.guarantee is Guarantee.LOG and not last.is_done:
            await _commit_decided(kafka, name, last)
            driver = await kafka.write(driver, [done(delivery.prefix, name, last.number)])
    leftovers = await kafka.ongoing(delivery.task_ids())
    known = (await kafka.describe([delivery.driver_id]))[delivery.driver_id]
    if known is None or (known.producer_id, known.epoch) != (driver.producer_id, driver.epoch):
        raise _replaced(delivery)
    await kafka.fence(leftovers)
    # tasks need only the number of the last decided batch
    return Plan(run, driver, {name: last._replace(shares=()) for name, last in decided.items()})


async def choose_id(
    kafka: Kafka, delivery: ExactlyOnce, planned: Plan, batch: BatchId, *, partition: int, attempt: int
) -> str:
    """Return the transactional id for an attempt of a task; no sibling attempt writes under this id.

    Spark may run an attempt twice: after a fetch failure a stage runs again beside its old tasks.

    Raises: DeliveryError: the batch is over, or another driver has taken over.
    """
    for lane in range(attempt, 100 * LANES, LANES):
        name = delivery.task_id(batch.run_under(planned.run), partition, lane)
        known = await kafka.describe([delivery.driver_id, name])
        driver, own = known[delivery.driver_id], known[name]
        if driver is None or (driver.producer_id, driver.epoch) != planned.driver[1:3]:
            raise _replaced(delivery)
        if own is None or not own.is_open:
            return name
    raise DeliveryError(f"all transactional ids for task {partition} are in use")


async def decide(
    kafka: Kafka, delivery: ExactlyOnce, planned: Plan, batch: BatchId, shares: Sequence[Share]
) -> None:
    """Decide that *batch* consists of *shares*, and commit *shares*.

    Raises: BatchLost: the batch is decided, and a part of the batch is lost. After other errors the decision is missing
        or unknown; the next planning determines the decision.
    """
    await _check_open(kafka, batch, shares)
    driver = await kafka.write(planned.driver, decision(delivery.prefix, batch, Guarantee.LOG, shares))
    await _commit_decided(kafka, batch.name, Decided(batch.number, Guarantee.LOG, batch.run, tuple(shares)))
    await kafka.write(driver, [done(delivery.prefix, batch.name, batch.number)])
    await _fence_run(kafka, delivery, planned, batch)  # aborts losing attempts, which block readers


async def abort_batch(kafka: Kafka, delivery: ExactlyOnce, planned: Plan, batch: BatchId) -> None:
    """Abort a failed batch, unless it is decided or another driver has taken over."""
    if not await kafka.succeed(planned.driver):
        return
    last = (await kafka.decisions()).get(batch.name)
    if last is None or last.number < batch.number:
        await _fence_run(kafka, delivery, planned, batch)


async def not_committed(kafka: Kafka, last: Decided) -> dict[Share, End]:
    """Commit the decided transactions (repeatable). Return the transactions that are lost or have an unknown outcome."""
    ends = dict(await kafka.commit(last.shares))
    for share, end in ends.items():
        if end is End.UNKNOWN:
            ends[share] = await kafka.outcome_in_log(share)
    return {share: end for share, end in ends.items() if end is not End.COMMITTED}


async def missing(
    kafka: Kafka, delivery: ExactlyOnce, *, confirm: bool
) -> dict[str, tuple[int, dict[Share, End]]]:
    """Commit decided transactions. Return the uncommitted transactions by query or job, with the number of the batch.

    With *confirm* the log notes these batches, and the records that the log has lost, as accepted by the operator. The
    present driver is replaced.
    """
    driver = await kafka.take_over(delivery.driver_id) if confirm else None
    found = {}
    for name, last in (await kafka.decisions()).items():
        if last.guarantee is Guarantee.LOG and not last.is_done:
            ends = await not_committed(kafka, last)
            if driver is not None:
                driver = await kafka.write(driver, [done(delivery.prefix, name, last.number)])
            if ends:
                found[name] = last.number, ends
    if driver is not None:
        await kafka.write(driver, begun(delivery.prefix, await kafka.removed()))
        await kafka.take_over(delivery.driver_id)  # waits for the commit marker of the write
    return found


async def _known(kafka: Kafka, delivery: ExactlyOnce) -> Mapping[str, TransactionInfo | None]:
    """Return the brokers' state of the ids of drivers, of single tasks, and of the first use of the prefix."""
    try:
        return await kafka.describe([delivery.driver_id, delivery.single_id, delivery.beginning_id])
    except UnsupportedVersion:  # a broker before 3.0, which exactly-once-single supports
        return {}


def _was_used(known: Mapping[str, TransactionInfo | None], delivery: ExactlyOnce) -> bool:
    """Return True if a driver or a single task has used the prefix before."""
    return any(known.get(name) for name in (delivery.driver_id, delivery.single_id))


async def _check_nothing_removed(kafka: Kafka, delivery: ExactlyOnce, decided: Mapping[str, Decided]) -> None:
    removed = await kafka.removed()
    accepted = decided[BEGUN].number if BEGUN in decided else 0
    if removed > accepted:
        raise DeliveryError(
            f"{TOPIC}: records before offset {removed} were removed, decisions under {PREFIX} {delivery.prefix!r} may be"
            f" among them, and committed batches would be written again; {_recovery_hint(delivery)}"
        )


def _recovery_hint(delivery: ExactlyOnce) -> str:
    return (
        "compare the written topic with the source, and run `aioproducer spark-recover"
        f" {delivery.prefix} --confirm` to go on"
    )


async def _commit_decided(kafka: Kafka, name: str, last: Decided) -> None:
    ends = await not_committed(kafka, last)
    lost = [share for share, end in ends.items() if end is End.LOST]
    if ends and not lost:
        raise DeliveryError(
            f"batch {last.number} of {name} was decided, and the outcome of these transactions is unknown: {_listed(ends)};"
            f" start the query again, and if the error persists: {RECOVER}"
        )
    if lost:
        raise BatchLost(
            f"batch {last.number} of {name} was decided, and part of it is lost: its transactions were aborted, as their"
            f" time (transaction.timeout.ms) ran out before they were committed: {_listed(lost)}. The rest of it is"
            f" visible, so it is not written again. {RECOVER}"
        )


async def _fence_run(kafka: Kafka, delivery: ExactlyOnce, planned: Plan, batch: BatchId) -> None:
    """Abort all open transactions of this run's tasks. A call that hangs cannot fence tasks of a later run."""
    await kafka.fence(await kafka.ongoing(delivery.task_ids(batch.run_under(planned.run))))


async def _check_open(kafka: Kafka, batch: BatchId, shares: Sequence[Share]) -> None:
    names = {share.transactional_id for share in shares}
    if len(names) < len(shares):
        raise DeliveryError(
            f"{batch} is not decided: two tasks have written under one transactional id; start the query again"
        )
    known = await kafka.describe(names)
    now_ms = kafka.now_ms()
    for share in shares:
        found = known[share.transactional_id]
        if (
            found is None
            or not found.takes_records
            or (found.producer_id, found.epoch) != (share.producer_id, share.epoch)
        ):
            raise DeliveryError(
                f"{batch} is not decided, and none of its rows are visible: the transaction of"
                f" {share.transactional_id!r} is no longer open; it timed out, or another task has taken the id"
            )
        age_ms = now_ms - min(found.began_at_ms, share.began_at_ms)
        if share.timeout_ms >= 0 and age_ms > share.timeout_ms / 2:
            raise DeliveryError(
                f"{batch} is not decided, and none of its rows are visible: {share.transactional_id!r} began"
                f" {age_ms / 1000:.0f} s ago, more than half of kafka.transaction.timeout.ms ({share.timeout_ms});"
                " raise this timeout (and the brokers' transaction.max.timeout.ms) or maxBytesPerSecond, if set, or write"
                " smaller batches"
            )


def _listed(shares: Iterable[Share]) -> str:
    return ", ".join(
        f"{share.transactional_id} (including {share.topic}-{share.partition} up to offset {share.last_offset})"
        for share in shares
    )


def _replaced(delivery: ExactlyOnce) -> DeliveryError:
    return DeliveryError(
        f"another driver has taken over under transactionalIdPrefix {delivery.prefix!r} since the batch was planned, or"
        " the batch is over"
    )
