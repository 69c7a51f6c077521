"""Exactly once for any number of tasks: what is asked of Kafka, and in which order. Pure: `Kafka` does it, or a model.

Each task has a transaction, and leaves it open. The driver writes in a log which transactions make the batch, in a
transaction of its own whose commit is the decision; then it ends them all, and notes that it is done. Whoever comes
after it finishes what is decided, and lets the rest be aborted.

What makes it exact:

- The epoch of the driver's id is its generation. Planning takes the next one; a driver that was replaced cannot decide.
- Ids of tasks have the run of their driver and of their query in them. What is left of an earlier run, a task or a
  commit that hung, cannot take the id of a new one.
- Decided transactions are ended before any id is fenced.
- Which ids a driver fences was listed while it was in office: a later driver's tasks are not among them.
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
"""Lanes of attempts and of their siblings do not meet: Spark does not try a task so often."""
LAST_LANE: Final = 100 * LANES

RECOVER: Final = "`aioproducer spark-recover` shows it, and lets the query go on if you say so"


class End(Enum):
    """What has become of a transaction that was to be committed."""

    COMMITTED = 1
    LOST = 2
    """It was aborted: its time had run out, or somebody has fenced it."""
    UNTOLD = 3
    """Its coordinator does not know; the log that it wrote to does."""


class Known(NamedTuple):
    """What the coordinator knows of an id."""

    producer_id: int
    epoch: int
    is_open: bool
    """Whether there is a transaction that is not ended for good."""
    takes_records: bool
    """Whether it is one that nobody has begun to end."""
    began_at_ms: int


class Plan(NamedTuple):
    """What planning on the driver tells the tasks."""

    run: str
    """A short name of the driver, from its start to its end."""
    driver: PreparedTransaction
    """Its generation: under this epoch a batch is decided, or not at all."""
    decided: Mapping[str, Decided]


class Kafka(Protocol):
    """What is asked of Kafka. Each may raise, and may have been done all the same."""

    async def take_over(self, name: str) -> PreparedTransaction:
        """Take the next epoch of an id (InitProducerId)."""
        ...

    async def succeed(self, driver: PreparedTransaction) -> bool:
        """Take the next epoch if *driver* has the id still; return whether."""
        ...

    async def decisions(self) -> Mapping[str, Decided]:
        """Return the last decision on each query or job under the prefix."""
        ...

    async def removed(self) -> int:
        """Return the offset of the log before which records were removed, as of the last `decisions`; 0: none were."""
        ...

    async def write(self, driver: PreparedTransaction, entries: Sequence[Entry]) -> PreparedTransaction:
        """Write and commit, under the epoch of *driver*; return the epoch to go on under."""
        ...

    async def commit(self, shares: Sequence[Share]) -> Mapping[Share, End]:
        """Commit transactions."""
        ...

    async def fate(self, share: Share) -> End:
        """Return what the log that *share* was written to says of it."""
        ...

    async def describe(self, names: Collection[str]) -> Mapping[str, Known | None]:
        """Return what is known of these ids; None: nothing."""
        ...

    async def ongoing(self, prefix: str) -> Sequence[str]:
        """Return the ids that begin so and have a transaction that nobody has begun to end."""
        ...

    async def fence(self, names: Collection[str]) -> None:
        """Take the next epoch of each; what they have open is aborted."""
        ...

    def now_ms(self) -> int:
        """Return the time."""
        ...


async def begin(kafka: Kafka, delivery: ExactlyOnce) -> None:
    """Write the first use of a prefix to the log, before any other transactional id of the prefix is used.

    So if a coordinator has an id of the prefix, and the log has no record of the prefix, the log was lost.

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


async def kept(kafka: Kafka, delivery: ExactlyOnce) -> dict[str, Decided]:
    """Return the last decision on each query or job. Call `begin` before.

    Raises: DeliveryError: decisions can have been lost.
    """
    decided = dict(await kafka.decisions())
    await _check_nothing_removed(kafka, delivery, decided)
    if not decided:
        raise DeliveryError(
            f"{TOPIC}: the topic has no record of {PREFIX} {delivery.prefix!r}, whose transactional ids the brokers know,"
            " so it was deleted or recreated, and committed batches would be written again;"
            f" {_to_go_on(delivery)}"
        )
    decided.pop(BEGUN, None)
    return decided


async def check_log(kafka: Kafka, delivery: ExactlyOnce) -> None:
    """Check the log as planning does, and write nothing. Raises: DeliveryError: decisions can have been lost."""
    if _was_used(await _known(kafka, delivery), delivery):
        await kept(kafka, delivery)
    else:
        await _check_nothing_removed(kafka, delivery, await kafka.decisions())


async def plan(kafka: Kafka, delivery: ExactlyOnce, run: str) -> Plan:
    """Come into office: finish what is decided, and let what is not be aborted.

    Raises: BatchLost: a part of a decided batch is lost. DeliveryError: another driver has replaced this one, or the log
        has lost decisions.
    """
    await begin(kafka, delivery)
    driver = await kafka.take_over(delivery.driver_id)
    decided = await kept(kafka, delivery)
    for name, last in decided.items():
        if last.guarantee is Guarantee.LOG and not last.is_done:
            await _carry_out(kafka, name, last)
            driver = await kafka.write(driver, [done(delivery.prefix, name, last.number)])
    leftovers = await kafka.ongoing(delivery.task_ids())
    known = (await kafka.describe([delivery.driver_id]))[delivery.driver_id]
    if known is None or (known.producer_id, known.epoch) != (driver.producer_id, driver.epoch):
        raise _replaced(delivery)
    await kafka.fence(leftovers)
    # what was decided long ago tells the tasks no more than its number
    return Plan(run, driver, {name: last._replace(shares=()) for name, last in decided.items()})


async def choose_id(
    kafka: Kafka, delivery: ExactlyOnce, planned: Plan, batch: BatchId, *, partition: int, attempt: int
) -> str:
    """Return the id for an attempt of a task: one that no sibling writes under.

    Spark may run an attempt twice: after a fetch failure a stage runs again beside its old tasks.

    Raises: DeliveryError: the batch is over, or another driver is in office.
    """
    for lane in range(attempt, LAST_LANE, LANES):
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
    """Decide that *batch* is what was written in *shares*, and let it be seen.

    Raises: BatchLost: it is decided, and part of it is lost. Else nothing is, or nobody knows: planning finds out.
    """
    await _check_all_there(kafka, batch, shares)
    driver = await kafka.write(planned.driver, decision(delivery.prefix, batch, Guarantee.LOG, shares))
    await _carry_out(kafka, batch.name, Decided(batch.number, Guarantee.LOG, batch.run, tuple(shares)))
    await kafka.write(driver, [done(delivery.prefix, batch.name, batch.number)])
    await _fence_run(kafka, delivery, planned, batch)  # losers: readers wait for them


async def give_up(kafka: Kafka, delivery: ExactlyOnce, planned: Plan, batch: BatchId) -> None:
    """Let everything of a batch that failed be aborted, unless it is decided, or another driver is in office."""
    if not await kafka.succeed(planned.driver):
        return
    last = (await kafka.decisions()).get(batch.name)
    if last is None or last.number < batch.number:
        await _fence_run(kafka, delivery, planned, batch)


async def not_committed(kafka: Kafka, last: Decided) -> dict[Share, End]:
    """Commit what is decided, again if need be, and return what is lost, or untold."""
    ends = dict(await kafka.commit(last.shares))
    for share, end in ends.items():
        if end is End.UNTOLD:
            ends[share] = await kafka.fate(share)
    return {share: end for share, end in ends.items() if end is not End.COMMITTED}


async def missing(
    kafka: Kafka, delivery: ExactlyOnce, *, confirm: bool
) -> dict[str, tuple[int, dict[Share, End]]]:
    """Commit what is decided, and return what is not committed, by query or job, with the number of the batch.

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
        await kafka.take_over(delivery.driver_id)  # as in `begin`: the next planning reads the record
    return found


async def _known(kafka: Kafka, delivery: ExactlyOnce) -> Mapping[str, Known | None]:
    """Return the brokers' state of the ids of drivers, of single tasks, and of the first use of the prefix."""
    try:
        return await kafka.describe([delivery.driver_id, delivery.single_id, delivery.beginning_id])
    except UnsupportedVersion:  # a broker before 3.0, which exactly-once-single does not need otherwise
        return {}


def _was_used(known: Mapping[str, Known | None], delivery: ExactlyOnce) -> bool:
    """Return True if a driver or a single task has used the prefix before."""
    return any(known.get(name) for name in (delivery.driver_id, delivery.single_id))


async def _check_nothing_removed(kafka: Kafka, delivery: ExactlyOnce, decided: Mapping[str, Decided]) -> None:
    removed = await kafka.removed()
    accepted = decided[BEGUN].number if BEGUN in decided else 0
    if removed > accepted:
        raise DeliveryError(
            f"{TOPIC}: records before offset {removed} were removed, decisions under {PREFIX} {delivery.prefix!r} may be"
            f" among them, and committed batches would be written again; {_to_go_on(delivery)}"
        )


def _to_go_on(delivery: ExactlyOnce) -> str:
    return (
        "compare the written topic with the source, and run `aioproducer spark-recover"
        f" {delivery.prefix} --confirm` to go on"
    )


async def _carry_out(kafka: Kafka, name: str, last: Decided) -> None:
    ends = await not_committed(kafka, last)
    lost = [share for share, end in ends.items() if end is End.LOST]
    if ends and not lost:
        raise DeliveryError(
            f"batch {last.number} of {name} was decided, and nobody can tell whether this is committed: {_listed(ends)}."
            f" If it stays so when the query is started again: {RECOVER}"
        )
    if lost:
        raise BatchLost(
            f"batch {last.number} of {name} was decided, and part of it is lost: its transactions were aborted, as their"
            f" time (transaction.timeout.ms) ran out before they were committed: {_listed(lost)}. The rest of it is to"
            f" be seen, so it is not written again. {RECOVER}"
        )


async def _fence_run(kafka: Kafka, delivery: ExactlyOnce, planned: Plan, batch: BatchId) -> None:
    """Let everything that tasks of this run have open be aborted. Whoever hangs here fences nobody of a later run."""
    await kafka.fence(await kafka.ongoing(delivery.task_ids(batch.run_under(planned.run))))


async def _check_all_there(kafka: Kafka, batch: BatchId, shares: Sequence[Share]) -> None:
    names = {share.transactional_id for share in shares}
    if len(names) < len(shares):
        raise DeliveryError(f"{batch} is not decided: two tasks have written under one transactional id")
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
                f"{batch} is not decided, nothing of it is to be seen: the transaction of"
                f" {share.transactional_id!r} is not open any more; its time ran out, or somebody has the id now"
            )
        age_ms = now_ms - min(found.began_at_ms, share.began_at_ms)
        if share.timeout_ms >= 0 and age_ms > share.timeout_ms / 2:
            raise DeliveryError(
                f"{batch} is not decided, nothing of it is to be seen: {share.transactional_id!r} began"
                f" {age_ms / 1000:.0f} s ago, more than half of kafka.transaction.timeout.ms ({share.timeout_ms});"
                " raise this timeout (and the brokers' transaction.max.timeout.ms) or maxBytesPerSecond, if set, or write"
                " smaller batches"
            )


def _listed(shares: Iterable[Share]) -> str:
    return ", ".join(
        f"{share.transactional_id} (among it {share.topic}-{share.partition} up to offset {share.last_offset})"
        for share in shares
    )


def _replaced(delivery: ExactlyOnce) -> DeliveryError:
    return DeliveryError(
        f"another driver has come into office under transactionalIdPrefix {delivery.prefix!r} since this was planned, or"
        " the batch is over"
    )
