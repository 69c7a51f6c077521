from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial

import pytest

from aioproducer.errors import (
    BrokerError,
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdNotFound,
)
from aioproducer.testing import in_virtual_time
from aioproducer.testing.coordinator import (
    LAST_EPOCH,
    MARKERS_WAIT_S,
    MAX_TIMEOUT_MS,
    Coordinator,
    Identity,
    Transaction,
    TransactionState as State,
    TransactionTimers,
)
from aioproducer.testing.faults import Refused, Target
from tests.cases import for_each


def test_states_have_kafkas_names() -> None:
    assert [state.value for state in State] == [
        *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
    ]
    assert [state for state in State if state.is_prepared] == [State.PREPARE_COMMIT, State.PREPARE_ABORT]
    assert [state for state in State if state.is_complete] == [State.COMPLETE_COMMIT, State.COMPLETE_ABORT]


@for_each(
    ("known", "identity", "behind"),
    [
        (Transaction("t", 5, epoch=3, last_epoch=2), Identity(5, 2), True),
        (Transaction("t", 5, epoch=3, last_epoch=2), Identity(5, 3), False),
        (Transaction("t", 5, epoch=3, last_epoch=2), Identity(6, 2), False),
        (Transaction("t", 5, epoch=3, last_epoch=-1), Identity(5, 2), False),
        (Transaction("t", 6, epoch=0, previous_producer_id=5), Identity(5, LAST_EPOCH), True),
        (Transaction("t", 6, epoch=0, previous_producer_id=5), Identity(5, 0), False),
        (Transaction("t", 6, epoch=1, previous_producer_id=5), Identity(5, LAST_EPOCH), False),
    ],
)
def test_previous_epoch_is_recognized_after_bump(
    known: Transaction, identity: Identity, behind: bool
) -> None:
    assert known.is_behind(identity) == behind


def test_identity_changes_while_transaction_ends() -> None:
    known = Transaction("t", 5, epoch=LAST_EPOCH + 1)
    assert known.identity == (5, LAST_EPOCH + 1)
    known.next_producer_id = 6
    assert known.identity == (6, 0)


ID = "t"
FIRST = 100
PARTITION = Target("orders", 0)


class Told(Coordinator):
    """Coordinator that completes no transaction on its own, and lists its notifications."""

    def __init__(self, transaction_version: int = 2) -> None:
        self.began: list[int] = []
        self.ended: list[State] = []
        super().__init__(
            itertools.count(FIRST).__next__,
            begun=lambda known: self.began.append(known.number),
            prepared=lambda known: self.ended.append(known.state),
        )
        self.transaction_version = transaction_version

    @property
    def known(self) -> Transaction:
        return self.transactions[ID]

    def opened(self) -> Identity:
        """Begin a transaction."""
        identity = self.init(ID, 1_000, None)
        self.add(ID, identity, partitions=[PARTITION], groups=["g"], now_ms=7)
        return identity

    def ends(self, identity: Identity, *, committed: bool = True, bumps_epoch: bool = True) -> Identity:
        following = self.end(ID, identity, committed=committed, bumps_epoch=bumps_epoch)
        if self.known.state.is_prepared:
            self.complete(self.known)
        return following


def refusal(ask: Callable[[], object]) -> int:
    with pytest.raises(Refused) as refused:
        ask()
    return refused.value.code


def check(ask: Callable[[], object], error: type[BrokerError]) -> None:
    assert refusal(ask) == error.code


class TestInit:
    """Epochs and producer ids that `init` returns."""

    def test_init_bumps_the_epoch_for_each_producer(self) -> None:
        told = Told()
        assert [told.init(ID, 1, None) for _ in range(3)] == [Identity(FIRST, epoch) for epoch in range(3)]
        assert told.init("another", 1, None) == (FIRST + 1, 0)

    def test_empty_transactional_id_is_invalid(self) -> None:
        check(lambda: Told().init("", 1, None), InvalidRequest)

    @pytest.mark.parametrize("timeout_ms", [0, -1, MAX_TIMEOUT_MS + 1])
    def test_transaction_timeout_has_a_range(self, timeout_ms: int) -> None:
        check(lambda: Told().init(ID, timeout_ms, None), InvalidTransactionTimeout)
        assert Told().init(ID, MAX_TIMEOUT_MS, None) == (FIRST, 0)

    def test_init_with_an_identity_bumps_the_epoch_once(self) -> None:
        told = Told()
        first = told.init(ID, 1, None)
        assert [told.init(ID, 1, first) for _ in range(2)] == [Identity(FIRST, 1)] * 2

    def test_init_with_the_identity_of_a_predecessor_is_fenced(self) -> None:
        told = Told()
        first = told.init(ID, 1, None)
        second = told.init(ID, 1, None)
        check(lambda: told.init(ID, 1, first), ProducerFenced)
        check(lambda: told.init(ID, 1, Identity(FIRST + 5, 1)), ProducerFenced)
        assert told.init(ID, 1, second) == (FIRST, 2)

    def test_init_with_an_expired_identity_starts_at_epoch_0(self) -> None:
        assert Told().init(ID, 1, Identity(5, 3)) == (FIRST, 0)

    def test_init_after_the_last_epoch_returns_a_new_producer_id(self) -> None:
        told = Told()
        told.init(ID, 1, None)
        told.known.epoch = LAST_EPOCH
        last = Identity(FIRST, LAST_EPOCH)
        assert told.init(ID, 1, last) == (FIRST + 1, 0)
        assert told.init(ID, 1, last) == (FIRST + 1, 0), "repeated request, since the response was lost"
        assert told.init(ID, 1, None) == (FIRST + 1, 1)

    @pytest.mark.parametrize("version", [1, 2])
    def test_init_aborts_an_open_transaction_first(self, version: int) -> None:
        told = Told(version)
        told.opened()
        check(lambda: told.init(ID, 1, None), ConcurrentTransactions)
        assert told.ended == [State.PREPARE_ABORT]
        check(lambda: told.init(ID, 1, None), ConcurrentTransactions)
        told.complete(told.known)
        assert told.init(ID, 1, None) == (FIRST, 2)

    def test_init_with_an_identity_aborts_its_transaction_in_v2(self) -> None:
        told = Told(2)
        own = told.opened()
        check(lambda: told.init(ID, 1, own), ConcurrentTransactions)
        told.complete(told.known)
        assert told.init(ID, 1, own) == (FIRST, 1)

    def test_init_with_an_identity_is_fenced_in_version_1(self) -> None:
        told = Told(1)
        own = told.opened()
        check(lambda: told.init(ID, 1, own), ConcurrentTransactions)
        told.complete(told.known)
        check(lambda: told.init(ID, 1, own), ProducerFenced)

    @pytest.mark.parametrize("version", [1, 2])
    def test_old_epoch_aborts_the_open_transaction_of_a_successor(self, version: int) -> None:
        """Only the producer id is compared while a transaction is open."""
        told = Told(version)
        old, own = told.init(ID, 1, None), told.opened()
        check(lambda: told.init(ID, 1, old), ConcurrentTransactions)
        assert told.ended == [State.PREPARE_ABORT]
        check(lambda: told.end(ID, own, committed=True, bumps_epoch=False), ProducerFenced)
        told.complete(told.known)
        check(lambda: told.init(ID, 1, old), ProducerFenced)


class TestAdd:
    """Partitions and groups of a transaction."""

    def test_first_part_begins_the_transaction(self) -> None:
        told = Told()
        own = told.opened()
        assert (told.known.state, told.known.started_ms, told.began) == (State.ONGOING, 7, [1])
        told.add(ID, own, partitions=[Target("orders", 1)], now_ms=9)
        assert (told.known.started_ms, told.began) == (7, [1])
        assert told.known.partitions == {PARTITION, Target("orders", 1)}

    def test_verify_refuses_parts_that_were_not_added(self) -> None:
        told = Told()
        own = told.opened()
        told.verify(ID, own, PARTITION)
        told.verify(ID, own, "g")
        check(lambda: told.verify(ID, own, Target("orders", 1)), TransactionAbortable)
        check(lambda: told.verify(ID, own, "h"), TransactionAbortable)
        told.ends(own, bumps_epoch=False)
        check(lambda: told.verify(ID, own, PARTITION), TransactionAbortable)

    def test_add_by_another_producer_is_refused(self) -> None:
        told = Told()
        own = told.opened()
        for ask in (told.add, told.verify):
            told_of = (PARTITION,) if ask == told.verify else ()
            check(lambda a=ask, t=told_of: a("u", own, *t), InvalidProducerIdMapping)  # type: ignore[misc]
            check(lambda a=ask, t=told_of: a(ID, Identity(5, 0), *t), InvalidProducerIdMapping)  # type: ignore[misc]
            check(lambda a=ask, t=told_of: a(ID, Identity(FIRST, 1), *t), ProducerFenced)  # type: ignore[misc]

    def test_next_transaction_begins_after_the_end_of_the_last(self) -> None:
        told = Told()
        own = told.opened()
        told.end(ID, own, committed=True, bumps_epoch=False)
        check(lambda: told.add(ID, own), ConcurrentTransactions)
        check(lambda: told.verify(ID, own, PARTITION), ConcurrentTransactions)
        told.complete(told.known)
        told.add(ID, own)
        assert told.began == [1, 2]
        assert told.known.partitions == set()


class TestEnd:
    """The table of a commit or abort by state."""

    @pytest.mark.parametrize("committed", [True, False])
    def test_end_is_decided_at_once_and_complete_with_its_markers(self, committed: bool) -> None:
        told = Told()
        own = told.opened()
        assert told.end(ID, own, committed=committed, bumps_epoch=True) == (FIRST, 1)
        assert told.ended == [State.PREPARE_COMMIT if committed else State.PREPARE_ABORT]
        assert told.known.partitions == {PARTITION}
        told.complete(told.known)
        assert told.known.state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
        assert not told.known.partitions
        assert not told.known.groups

    @for_each("bumps_epoch", [True, False])
    @for_each("committed", [True, False])
    def test_repeated_end_succeeds_once_the_markers_are_written(
        self, committed: bool, bumps_epoch: bool
    ) -> None:
        told = Told()
        own = told.opened()
        following = told.end(ID, own, committed=committed, bumps_epoch=bumps_epoch)
        again = partial(told.end, ID, own, committed=committed, bumps_epoch=bumps_epoch)
        other = partial(told.end, ID, own, committed=not committed, bumps_epoch=bumps_epoch)
        check(again, ConcurrentTransactions)
        check(other, ConcurrentTransactions)
        told.complete(told.known)
        assert again() == following == (FIRST, 1 if bumps_epoch else 0)
        check(other, InvalidTxnState)

    def test_late_retry_of_end_is_fenced_after_an_epoch_bump(self) -> None:
        told = Told()
        own = told.opened()
        told.add(ID, told.ends(own))
        check(lambda: told.ends(own), ProducerFenced)
        assert told.known.state is State.ONGOING

    @pytest.mark.parametrize("committed", [True, False])
    def test_next_epoch_waits_until_the_markers_are_written(self, committed: bool) -> None:
        told = Told()
        following = told.end(ID, told.opened(), committed=True, bumps_epoch=True)
        check(lambda: told.ends(following, committed=committed), ConcurrentTransactions)
        told.complete(told.known)
        assert told.ends(following, committed=False) == (FIRST, 2)

    @pytest.mark.parametrize(
        ("bumps_epoch", "refused"), [(True, ConcurrentTransactions), (False, InvalidProducerIdMapping)]
    )
    def test_end_by_another_producer_during_markers_is_refused(
        self, bumps_epoch: bool, refused: type[BrokerError]
    ) -> None:
        told = Told()
        told.end(ID, told.opened(), committed=True, bumps_epoch=True)
        check(lambda: told.end(ID, Identity(5, 0), committed=True, bumps_epoch=bumps_epoch), refused)

    def test_late_retry_ends_the_next_transaction_without_a_bump(self) -> None:
        told = Told()
        own = told.opened()
        told.ends(own, bumps_epoch=False)
        told.add(ID, own)
        told.ends(own, bumps_epoch=False)
        assert told.known.state is State.COMPLETE_COMMIT

    @pytest.mark.parametrize("done", [None, True, False])
    def test_abort_of_an_empty_transaction_bumps_the_epoch(self, done: bool | None) -> None:
        told = Told()
        own = told.init(ID, 1, None) if done is None else told.opened()
        if done is not None:
            own = told.ends(own, committed=done)
        check(lambda: told.ends(own), InvalidTxnState)
        assert told.ends(own, committed=False) == (FIRST, own.epoch + 1)

    @pytest.mark.parametrize("committed", [True, False])
    def test_end_of_an_empty_transaction_is_refused_without_a_bump(self, committed: bool) -> None:
        told = Told()
        own = told.init(ID, 1, None)
        check(lambda: told.ends(own, committed=committed, bumps_epoch=False), InvalidTxnState)

    def test_end_with_an_old_epoch_is_fenced(self) -> None:
        told = Told()
        own = told.init(ID, 1, None)
        told.init(ID, 1, own)
        check(lambda: told.ends(own, committed=False), ProducerFenced)

    def test_end_by_another_producer_is_refused(self) -> None:
        told = Told()
        told.opened()
        check(lambda: told.ends(Identity(5, 0)), InvalidProducerIdMapping)
        check(lambda: told.ends(Identity(FIRST, 1)), ProducerFenced)
        check(
            lambda: told.end("u", Identity(FIRST, 0), committed=True, bumps_epoch=True),
            InvalidProducerIdMapping,
        )

    def test_end_in_the_last_epoch_returns_a_new_producer_id(self) -> None:
        told = Told()
        told.opened()
        told.known.epoch = LAST_EPOCH
        last = Identity(FIRST, LAST_EPOCH)
        assert told.end(ID, last, committed=True, bumps_epoch=True) == (FIRST + 1, 0)
        assert (told.known.producer_id, told.known.epoch) == (FIRST, LAST_EPOCH + 1), "for the markers"
        check(lambda: told.ends(last), ConcurrentTransactions)
        told.complete(told.known)
        assert told.ends(last) == (FIRST + 1, 0)
        told.add(ID, Identity(FIRST + 1, 0))


class TestTimeout:
    """Transactions that are open for too long."""

    def test_expired_transaction_may_be_aborted_in_version_2(
        self,
    ) -> None:
        told = Told(2)
        own = told.opened()
        told.expire(told.known, 1)
        told.complete(told.known)
        check(lambda: told.ends(own), InvalidTxnState)
        assert told.ends(own, committed=False) == (FIRST, 1)
        assert told.init(ID, 1, own) == (FIRST, 1)

    def test_expired_transaction_fences_its_producer_in_version_1(self) -> None:
        told = Told(1)
        own = told.opened()
        told.expire(told.known, 1)
        told.complete(told.known)
        for committed in (True, False):
            check(lambda c=committed: told.ends(own, committed=c, bumps_epoch=False), ProducerFenced)  # type: ignore[misc]
        check(lambda: told.init(ID, 1, own), ProducerFenced)

    def test_timer_of_a_transaction_does_not_end_the_next(self) -> None:
        told = Told()
        told.add(ID, told.ends(told.opened()))
        told.expire(told.known, 1)
        assert told.ended == [State.PREPARE_COMMIT]
        told.expire(told.known, 2)
        assert told.ended == [State.PREPARE_COMMIT, State.PREPARE_ABORT]


def test_unknown_id_is_not_described() -> None:
    told = Told()
    told.init(ID, 1, None)
    assert told.described(ID) is told.known
    check(lambda: told.described("u"), TransactionalIdNotFound)


class Rig:
    """Timers over markers that can be written, or not."""

    def __init__(self, *, marker_delay_s: float = 0.0) -> None:
        self.can_write = True
        self.written: list[tuple[float, State]] = []
        self.timers = TransactionTimers(itertools.count(100).__next__, self._write)
        self.timers.marker_delay_s = marker_delay_s

    def _write(self, known: Transaction) -> bool:
        if self.can_write:
            self.written.append((asyncio.get_running_loop().time(), known.state))
        return self.can_write

    @property
    def state(self) -> State:
        return self.timers.coordinator.transactions[ID].state

    def begin(self, timeout_ms: int = 1_000) -> Identity:
        identity = self.timers.coordinator.init(ID, timeout_ms, None)
        self.timers.coordinator.add(ID, identity, partitions=[Target("orders", 0)])
        return identity

    def commit(self, identity: Identity) -> Identity:
        return self.timers.coordinator.end(ID, identity, committed=True, bumps_epoch=True)


@in_virtual_time
async def test_markers_are_written_at_once() -> None:
    rig = Rig()
    rig.commit(rig.begin())
    assert (rig.written, rig.state) == ([(0.0, State.PREPARE_COMMIT)], State.COMPLETE_COMMIT)


@in_virtual_time
async def test_markers_are_written_after_delay() -> None:
    rig = Rig(marker_delay_s=3)
    rig.commit(rig.begin())
    assert (rig.written, rig.state) == ([], State.PREPARE_COMMIT)
    await asyncio.sleep(3.1)
    assert (rig.written, rig.state) == ([(3.0, State.PREPARE_COMMIT)], State.COMPLETE_COMMIT)


@in_virtual_time
async def test_transaction_is_aborted_after_timeout() -> None:
    rig = Rig()
    rig.begin(timeout_ms=2_500)
    await asyncio.sleep(2.4)
    assert rig.state is State.ONGOING
    await asyncio.sleep(0.2)
    assert (rig.written, rig.state) == ([(2.5, State.PREPARE_ABORT)], State.COMPLETE_ABORT)


@in_virtual_time
async def test_timeout_applies_to_one_transaction() -> None:
    rig = Rig()
    following = rig.commit(rig.begin())
    await asyncio.sleep(0.9)
    rig.timers.coordinator.add(ID, following)
    await asyncio.sleep(0.9)
    assert rig.written == [(0.0, State.PREPARE_COMMIT)]
    await asyncio.sleep(0.2)
    assert rig.written[1:] == [(1.9, State.PREPARE_ABORT)]


@in_virtual_time
async def test_markers_that_cannot_be_written_are_written_later() -> None:
    rig = Rig()
    rig.can_write = False
    rig.commit(rig.begin())
    rig.timers.retry()
    assert rig.state is State.PREPARE_COMMIT
    rig.can_write = True
    rig.timers.retry()
    rig.timers.retry()
    assert (len(rig.written), rig.state) == (1, State.COMPLETE_COMMIT)


@in_virtual_time
async def test_settled_waits_for_the_end() -> None:
    rig = Rig(marker_delay_s=MARKERS_WAIT_S / 2)
    await rig.timers.wait_until_complete("nobody")
    identity = rig.begin()
    await rig.timers.wait_until_complete(ID)
    assert asyncio.get_running_loop().time() == 0
    rig.commit(identity)
    await rig.timers.wait_until_complete(ID)
    assert rig.state is State.COMPLETE_COMMIT
    assert asyncio.get_running_loop().time() == MARKERS_WAIT_S / 2


@in_virtual_time
async def test_settled_waits_for_limited_time() -> None:
    rig = Rig(marker_delay_s=60)
    following = rig.commit(rig.begin())
    await rig.timers.wait_until_complete(ID)
    assert asyncio.get_running_loop().time() == MARKERS_WAIT_S
    with pytest.raises(Refused) as refused:
        rig.timers.coordinator.add(ID, following)
    assert refused.value.code == ConcurrentTransactions.code
    rig.timers.stop()


@in_virtual_time
async def test_stop_cancels_timers() -> None:
    rig = Rig(marker_delay_s=1)
    rig.commit(rig.begin())
    rig.timers.stop()
    await asyncio.sleep(2)
    assert rig.written == []
