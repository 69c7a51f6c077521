"""A model of Spark and Kafka for the decision protocol: processes may die, freeze and return at any step."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from aioproducer._core.transactions.transaction_types import PreparedTransaction
from aioproducer.errors import ProducerError, ProducerFenced
from aioproducer.spark.decision_protocol import (
    End,
    Plan,
    TransactionInfo,
    abort_batch,
    choose_id,
    decide,
    plan,
)
from aioproducer.spark.decision_records import Decided, Entry, Share
from aioproducer.spark.delivery import BatchId, BatchLost, ExactlyOnce, Guarantee
from tests.unit.spark.decision_log_rig import Log, read

DELIVERY: Final = ExactlyOnce(Guarantee.LOG, "p", None)
QUERY: Final = "query a"
BATCHES: Final = 2
ROWS: Final = range(6)
TIMEOUT_MS: Final = 60_000
BEFORE_INITIALISING: Final = 2
"""So many steps an attempt makes before it takes its id."""
CUTS: Final = (2, 3, 1)
"""How many tasks a batch has, from driver to driver."""
ENOUGH: Final = 3_000
"""No story takes so many steps."""


class Fault(Enum):
    """Faults that may occur between two steps."""

    CRASH = "the driver dies with all it has started; another one begins"
    FREEZE = (
        "the driver freezes; another driver begins; the first continues after the next fault, or at the end"
    )
    HANG = "as that, but in the same driver: the query is stopped while what it waits for hangs, and started again"
    THAW = "the frozen driver continues"
    FAIL = (
        "what the driver waits for fails, whether done or not; Spark aborts, and the query is started again"
    )
    TASK_DIES = "the process of a task dies, and Spark tries the task again"
    SIBLING = "another attempt of a task runs beside the first"
    LATE_SIBLING = (
        "so it does, and freezes between two requests, until the next fault: it may take an id in use"
    )
    TIMEOUT = "the coordinator aborts every transaction that is open"


class Step:
    """A moment at which something may happen."""

    def __await__(self) -> Generator[None]:
        """Let the world go on."""
        yield


class Failed(Exception):
    """A call failed with an unknown outcome."""


class TaskDied(Exception):
    """The process of a task has died."""


@dataclass
class Transaction:
    """An id at its coordinator."""

    producer_id: int
    epoch: int = -1
    is_open: bool = False
    rows: list[tuple[int, int]] = field(default_factory=list)
    ends: dict[int, End] = field(default_factory=dict)
    """How the transaction of an epoch ended."""


class Cluster:
    """Coordinators, the topic with the rows, and the log of decisions; one request at a time."""

    def __init__(self, *, version: int) -> None:
        self.version = version
        self.ids: dict[str, Transaction] = {}
        self.seen: list[tuple[int, int]] = []
        """Rows that readers of committed records have seen."""
        self.log = Log()
        self.found: set[tuple[str, int]] = set()
        """What a driver was told that is about to decide: ids and epochs."""
        self._producer_ids = itertools.count(1)

    def initialise(self, name: str) -> PreparedTransaction:
        known = self.ids.setdefault(name, Transaction(next(self._producer_ids)))
        if known.is_open:
            self._end(known, End.LOST)
        known.epoch += 1
        return self.handle(name)

    def succeed(self, driver: PreparedTransaction) -> bool:
        if self.ids[driver.transactional_id].epoch != driver.epoch:
            return False
        self.initialise(driver.transactional_id)
        return True

    def handle(self, name: str) -> PreparedTransaction:
        known = self.ids[name]
        return PreparedTransaction(name, known.producer_id, known.epoch, self.version, 0, TIMEOUT_MS)

    def begin(self, prepared: PreparedTransaction) -> Transaction:
        known = self.ids[prepared.transactional_id]
        if known.epoch != prepared.epoch or (
            not known.is_open and known.epoch in known.ends and self.version == 2
        ):
            raise ProducerFenced("somebody else has it")
        known.is_open = True
        return known

    def end(self, prepared: PreparedTransaction, wanted: End) -> End:
        known = self.ids[prepared.transactional_id]
        if known.is_open and known.epoch == prepared.epoch:
            self._end(known, wanted)
            return wanted
        if self.version == 2 and known.epoch == prepared.epoch + 1 and prepared.epoch in known.ends:
            return known.ends[prepared.epoch]
        if self.version == 1 and known.epoch == prepared.epoch and prepared.epoch in known.ends:
            return known.ends[prepared.epoch]
        return End.UNKNOWN

    def time_out(self) -> None:
        for known in self.ids.values():
            if known.is_open:
                self._end(known, End.LOST)
                known.epoch += self.version == 1

    def is_deciding(self) -> bool:
        """Whether a driver has found transactions to be open, and they are not ended yet."""
        return any(each.is_open and (name, each.epoch) in self.found for name, each in self.ids.items())

    def _end(self, known: Transaction, how: End) -> None:
        known.ends[known.epoch] = how
        if how is End.COMMITTED:
            self.seen += known.rows
        known.rows = []
        known.is_open = False
        name = next(name for name, each in self.ids.items() if each is known)
        if name in {DELIVERY.driver_id, DELIVERY.beginning_id}:
            self.log.end(known.producer_id, b"\0\0\0\1" if how is End.COMMITTED else b"\0\0\0\0")
        known.epoch += self.version == 2


class ModelKafka:
    """Kafka port of the protocol, with a step before and after each request."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def take_over(self, name: str) -> PreparedTransaction:
        await Step()
        taken = self._cluster.initialise(name)
        await Step()
        return taken

    async def succeed(self, driver: PreparedTransaction) -> bool:
        await Step()
        succeeds = self._cluster.succeed(driver)
        await Step()
        return succeeds

    async def decisions(self) -> Mapping[str, Decided]:
        await Step()
        return read(self._cluster.log, DELIVERY.prefix).all()

    async def removed(self) -> int:
        return 0

    async def write(self, driver: PreparedTransaction, entries: Sequence[Entry]) -> PreparedTransaction:
        await Step()
        known = self._cluster.begin(driver)
        self._cluster.log.write(known.producer_id, *entries)
        await Step()
        if self._cluster.end(driver, End.COMMITTED) is not End.COMMITTED:
            raise ProducerFenced("somebody else has it")
        if self._cluster.version == 1:  # sequences continue within an epoch, whichever producer uses it
            await Step()
            if not self._cluster.succeed(driver):
                raise ProducerFenced("somebody else has it")
        now = self._cluster.handle(driver.transactional_id)
        await Step()
        return now

    async def commit(self, shares: Sequence[Share]) -> Mapping[Share, End]:
        ends = {}
        for share in shares:
            await Step()
            ends[share] = self._cluster.end(share.prepared, End.COMMITTED)
        await Step()
        return ends

    async def outcome_in_log(self, share: Share) -> End:
        await Step()
        return self._cluster.ids[share.transactional_id].ends.get(share.epoch, End.UNKNOWN)

    async def describe(self, names: Collection[str]) -> Mapping[str, TransactionInfo | None]:
        await Step()
        found = {name: self._cluster.ids.get(name) for name in names}
        if DELIVERY.driver_id not in names:
            self._cluster.found |= {(name, each.epoch) for name, each in found.items() if each is not None}
        return {
            name: None
            if each is None
            else TransactionInfo(each.producer_id, each.epoch, each.is_open, each.is_open, 0)
            for name, each in found.items()
        }

    async def ongoing(self, prefix: str) -> Sequence[str]:
        await Step()
        return [name for name, each in self._cluster.ids.items() if name.startswith(prefix) and each.is_open]

    async def fence(self, names: Collection[str]) -> None:
        for name in names:
            await Step()
            self._cluster.initialise(name)

    def now_ms(self) -> int:
        return 0


class Spark:
    """Successive drivers, frozen ones included, and the contents of a checkpoint."""

    def __init__(self, faults: Mapping[int, Fault], *, version: int) -> None:
        self.cluster = Cluster(version=version)
        self.kafka = ModelKafka(self.cluster)
        self.committed = 0
        """Of the checkpoint: so many batches are done."""
        self.lost: BatchLost | None = None
        self.may_lose = False
        """Whether the coordinator, or a sibling, has aborted something when it was too late not to decide on it."""
        self.steps = 0
        self._faults = dict(faults)
        self._runs = itertools.count()
        self._queries = itertools.count()
        self._frozen: list[Coroutine[Any, Any, None]] = []
        self._others: list[Coroutine[Any, Any, None]] = []
        """What runs besides: siblings, and drivers that were frozen."""
        self._task: tuple[Plan, int, BatchId] | None = None
        """The task that runs."""

    def play(self) -> None:
        """Continue until all batches are done or one is lost, and no driver is left."""
        self._start(next(self._runs))
        while self.steps < ENOUGH:
            error = self._happens(self._faults.pop(self.steps, None))
            self.steps += 1
            self._others = [each for each in self._others if not self._over(each)]
            try:
                self._main.throw(error) if error is not None else self._main.send(None)
            except StopIteration:
                break
            except BatchLost as lost:
                self.lost = lost
                break
            except (Failed, TaskDied, ProducerError):  # the query has failed and is restarted
                self._start(self._run)
        self._others += self._frozen
        while self._others and self.steps < ENOUGH:
            self.steps += 1
            self._others = [each for each in self._others if not self._over(each)]
        assert self.steps < ENOUGH, "it comes to no end"

    def _start(self, run: int) -> None:
        self._run = run
        self._main = self._query(run)

    def _happens(self, fault: Fault | None) -> Exception | None:
        """Apply *fault*; return the report that the driver receives."""
        if fault not in {None, Fault.FREEZE, Fault.HANG}:
            self._others += self._frozen
            self._frozen = []
        match fault:
            case Fault.CRASH | Fault.FREEZE:
                self._replace_driver(freezes=fault is Fault.FREEZE)
            case Fault.HANG:
                self._frozen.append(self._main)
                self._start(self._run)
            case Fault.FAIL:
                return Failed()
            case Fault.TASK_DIES if self._task is not None:
                return TaskDied()
            case Fault.SIBLING | Fault.LATE_SIBLING if self._task is not None:
                self._start_sibling(self._sibling(*self._task), late=fault is Fault.LATE_SIBLING)
            case Fault.TIMEOUT:
                self.may_lose |= self.cluster.is_deciding()
                self.cluster.time_out()
            case _:
                pass
        return None

    def _replace_driver(self, *, freezes: bool) -> None:
        if freezes:
            self._frozen.append(self._main)
        else:
            for each in (self._main, *self._others):
                each.close()
            self._others = []
        self._start(next(self._runs))

    def _start_sibling(self, sibling: Coroutine[Any, Any, None], *, late: bool) -> None:
        if not late:
            self._others.append(sibling)
        elif not any(self._over(sibling) for _ in range(BEFORE_INITIALISING)):
            self._frozen.append(sibling)
            self.may_lose = True

    def plan_once_more(self) -> None:
        """Plan as the next driver does first."""
        process = plan(self.kafka, DELIVERY, "last")
        try:
            while True:
                process.send(None)
        except StopIteration:
            pass

    def _over(self, process: Coroutine[Any, Any, None]) -> bool:
        try:
            process.send(None)
        except (StopIteration, Failed, TaskDied, ProducerError):
            return True
        return False

    async def _query(self, run: int) -> None:
        cut = CUTS[run % len(CUTS)]
        query = str(next(self._queries))
        while self.committed < BATCHES:
            number = self.committed
            batch = BatchId(QUERY, number, query)
            planned = await plan(self.kafka, DELIVERY, str(run))
            reports: list[Share] = []
            for partition in range(cut):
                report = await self._task_of(planned, partition, cut, batch)
                if report is not None:
                    reports.append(report)
            if reports:
                try:
                    await decide(self.kafka, DELIVERY, planned, batch, reports)
                except (Failed, ProducerError):
                    await abort_batch(self.kafka, DELIVERY, planned, batch)
                    raise
            self.committed = max(self.committed, number + 1)
            await Step()

    async def _task_of(self, planned: Plan, partition: int, cut: int, batch: BatchId) -> Share | None:
        for attempt in range(4):
            self._task = planned, cut, batch
            try:
                return await self._attempt(planned, partition, cut, batch, attempt)
            except TaskDied:
                continue
            finally:
                self._task = None
        raise Failed

    async def _attempt(
        self, planned: Plan, partition: int, cut: int, batch: BatchId, attempt: int
    ) -> Share | None:
        last = planned.decided.get(batch.name)
        if last is not None and batch.number <= last.number:
            return None
        name = await choose_id(self.kafka, DELIVERY, planned, batch, partition=partition, attempt=attempt)
        prepared = await self.kafka.take_over(name)
        for row in ROWS[partition::cut]:
            self.cluster.begin(prepared).rows.append((batch.number, row))
            await Step()
        return Share(*prepared, "rows", 0, 0)

    async def _sibling(self, planned: Plan, cut: int, batch: BatchId) -> None:
        await self._attempt(planned, 0, cut, batch, 0)
