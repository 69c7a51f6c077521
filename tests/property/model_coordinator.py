"""A transaction coordinator and the logs behind it, as Apache Kafka 4.3 behaves: the model of `test_transaction_machine`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from aioproducer._core.idempotence import ProducerIdentity

STARTING, COMPLETING, BUSY = 14, 51, 51
EPOCH_TOO_OLD, WRONG_STATE, OUT_OF_ORDER, FENCED = 47, 48, 45, 90


class Phase(Enum):
    EMPTY = auto()
    ONGOING = auto()
    PREPARED = auto()
    """It is decided, and the markers are being written."""
    COMPLETE = auto()


@dataclass
class Written:
    """A record in a log."""

    value: bytes
    number: int
    """The client's number of the transaction that it was sent in."""
    transaction: int
    """The coordinator's."""


@dataclass
class Log:
    epoch: int = -1
    next_sequence: int = 0
    records: list[Written] = field(default_factory=list)


@dataclass
class ModelCoordinator:
    """One transactional id. Numbers of the client's transactions are there to be compared only."""

    identity: ProducerIdentity = field(default_factory=lambda: ProducerIdentity(7, -1))
    phase: Phase = Phase.EMPTY
    commits: bool = False
    """Which way the last end went."""
    partitions: set[int] = field(default_factory=set)
    members: set[int] = field(default_factory=set)
    """The client's numbers of the transactions whose requests have joined the open one."""
    transaction: int = 0
    version: int = 2
    """What the open one was begun with: its client's, or that of a request of an earlier one, which came late."""
    committed: set[int] = field(default_factory=set)
    logs: dict[int, Log] = field(default_factory=dict)
    bumped_from: ProducerIdentity | None = None
    is_fencing: bool = False
    """Whether the client may be told that it is at its end."""
    has_successor: bool = False
    """Whether another producer has taken the id."""
    is_successors: bool = False
    """Whether the open transaction is the successor's."""

    # --- what happens to it --------------------------------------------------------------------------------------

    def markers_land(self) -> None:
        if self.phase is Phase.PREPARED:
            self.phase = Phase.COMPLETE
            if self.commits:
                self.committed.add(self.transaction)

    def time_runs_out(self) -> None:
        """Abort the open transaction with a new epoch, which fences the client."""
        if self.phase is Phase.ONGOING and not self.is_successors:
            self._fence()
            self.markers_land()

    def another_one_takes_over(self) -> None:
        if self.phase is Phase.ONGOING:
            self.is_successors = False
            self._fence()
        self.markers_land()
        self._bump()
        self.phase, self.bumped_from, self.is_fencing, self.has_successor = Phase.EMPTY, None, True, True

    def the_successor_begins(self) -> None:
        self.markers_land()
        self.phase, self.is_successors = Phase.ONGOING, True
        self.transaction += 1

    def the_successor_commits(self) -> None:
        """End the successor's transaction: with another epoch, as from version 2 on, or the same."""
        self.is_successors = False
        self._end(commit=True)
        if self.version >= 2:
            self._bump()
        self.markers_land()

    @property
    def may_begin_as_successor(self) -> bool:
        return self.has_successor and self.phase in {Phase.EMPTY, Phase.COMPLETE}

    def describe(self) -> tuple[ProducerIdentity, str]:
        """Return the response to DescribeTransactions."""
        way = "Commit" if self.commits else "Abort"
        names = {Phase.EMPTY: "Empty", Phase.ONGOING: "Ongoing", Phase.PREPARED: f"Prepare{way}"}
        return self.identity, names.get(self.phase, f"Complete{way}")

    def visible(self) -> list[Written]:
        return [
            each for log in self.logs.values() for each in log.records if each.transaction in self.committed
        ]

    # --- what it is asked ----------------------------------------------------------------------------------------

    def init_producer_id(self, own: ProducerIdentity) -> tuple[int, ProducerIdentity]:
        if self.phase is Phase.PREPARED:
            return BUSY, own
        if self.phase is Phase.ONGOING:  # of any producer: the epoch is compared later
            self._fence()
            return BUSY, own
        if own.producer_id >= 0 and self.bumped_from == own:
            return 0, self.identity  # again: the answer was lost
        if own.producer_id >= 0 and own != self.identity:
            return FENCED, own
        self.bumped_from = own
        self._bump()
        self.phase = Phase.EMPTY
        return 0, self.identity

    def add_partitions(self, own: ProducerIdentity, partitions: list[int], number: int) -> int:
        if own != self.identity:
            return FENCED
        if self.phase is Phase.PREPARED:
            return BUSY
        self._join(number, version=1)
        self.partitions.update(partitions)
        return 0

    def end(
        self, own: ProducerIdentity, *, commit: bool, version: int, number: int
    ) -> tuple[int, ProducerIdentity]:
        code = (
            self._end_in_two(own, commit, number) if version >= 2 else self._end_in_one(own, commit, number)
        )
        return code, self.identity

    def produce(
        self,
        own: ProducerIdentity,
        partition: int,
        sequence: int,
        values: list[bytes],
        number: int,
        version: int,
    ) -> int:
        if own != self.identity:
            return EPOCH_TOO_OLD
        if self.phase is Phase.PREPARED:
            return BUSY
        if version < 2 and (self.phase is not Phase.ONGOING or partition not in self.partitions):
            return WRONG_STATE
        self._join(number, version)
        self.partitions.add(partition)
        log = self.logs.setdefault(partition, Log())
        if log.epoch != own.epoch:
            log.epoch, log.next_sequence = own.epoch, 0
        if sequence > log.next_sequence:
            return OUT_OF_ORDER
        if sequence == log.next_sequence:
            log.next_sequence += len(values)
            log.records += [Written(value, number, self.transaction) for value in values]
        return 0

    def _end_in_one(self, own: ProducerIdentity, commit: bool, number: int) -> int:
        if own != self.identity:
            return FENCED
        if self.phase is Phase.ONGOING:
            self._end_by(number, commit=commit)
            return 0
        if self.phase is Phase.EMPTY or commit is not self.commits:
            return WRONG_STATE
        return BUSY if self.phase is Phase.PREPARED else 0

    def _end_in_two(self, own: ProducerIdentity, commit: bool, number: int) -> int:
        is_last = own == self.identity._replace(epoch=self.identity.epoch - 1)
        if own == self.identity and self.phase is Phase.ONGOING:
            self._end_by(number, commit=commit)
            self.bumped_from = own
            self._bump()
            return 0
        if own == self.identity and self.phase is not Phase.PREPARED:
            if commit:
                return WRONG_STATE
            self._end(commit=False)
            self.bumped_from = own
            self._bump()
            self.phase = Phase.COMPLETE
            return 0
        if not is_last or self.phase in {Phase.EMPTY, Phase.ONGOING}:
            return FENCED
        if commit is not self.commits:
            return WRONG_STATE
        return BUSY if self.phase is Phase.PREPARED else 0

    def _end_by(self, number: int, *, commit: bool) -> None:
        assert self.members <= {number}, f"transaction {self.members} is ended by the EndTxn of {number}"
        self._end(commit=commit)

    def _fence(self) -> None:
        """Abort the open transaction with a new epoch; from version 2 on the client may learn the epoch."""
        self.bumped_from = self.identity if self.version >= 2 else None
        self.is_fencing = self.is_fencing or self.version < 2
        self._end(commit=False)
        self._bump()

    def _end(self, *, commit: bool) -> None:
        assert not self.is_successors, (
            "the transaction of a successor is ended by the producer that it has fenced"
        )
        self.phase, self.commits = Phase.PREPARED, commit
        self.partitions.clear()
        self.members.clear()

    def _join(self, number: int, version: int) -> None:
        if self.phase is not Phase.ONGOING:
            self.phase, self.version = Phase.ONGOING, version
            self.transaction += 1
        self.members.add(number)

    def _bump(self) -> None:
        self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
