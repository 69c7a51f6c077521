from __future__ import annotations

import pytest

from aioproducer._core.idempotence import (
    MAX_EPOCH,
    BatchSequence,
    IdentityKeeper,
    PartitionSequences,
    ProducerIdentity,
    add_to_sequence,
)
from tests.cases import for_each

IDENTITY = ProducerIdentity(7, 0)
LAST_SEQUENCE = 2**31 - 1


@pytest.fixture
def keeper() -> IdentityKeeper:
    keeper = IdentityKeeper()
    keeper.assign(*IDENTITY)
    return keeper


def settled(sequences: PartitionSequences, keeper: IdentityKeeper) -> bool:
    return sequences.may_assign(keeper, unsettled=())


def unsettled(sequences: PartitionSequences, keeper: IdentityKeeper) -> bool:
    return sequences.may_assign(keeper, unsettled=["a batch"])


@for_each(
    ("sequence", "count", "after"),
    [
        (0, 1, 1),
        (LAST_SEQUENCE - 1, 1, LAST_SEQUENCE),
        (LAST_SEQUENCE, 1, 0),
        (LAST_SEQUENCE, 10, 9),
    ],
)
def test_sequence_wraps_to_0_after_the_largest_int32(sequence: int, count: int, after: int) -> None:
    assert add_to_sequence(sequence, count) == after


def test_repeated_stamp_keeps_the_identity() -> None:
    assert BatchSequence(IDENTITY, LAST_SEQUENCE).after(3) == BatchSequence(IDENTITY, 2)


def test_new_partition_has_no_gap_and_no_acknowledged_identity() -> None:
    sequences = PartitionSequences()
    assert (sequences.needs_epoch_bump, sequences.gap_at, sequences.acknowledged_here) == (False, None, False)


def test_stamp_requires_an_identity() -> None:
    sequences = PartitionSequences()
    assert not settled(sequences, IdentityKeeper())
    with pytest.raises(AssertionError, match="needs may_assign"):
        sequences.assign(1)


def test_stamps_are_consecutive_from_0(keeper: IdentityKeeper) -> None:
    sequences = PartitionSequences()
    assert settled(sequences, keeper)
    assert [sequences.assign(count).base_sequence for count in (3, 1, 5)] == [0, 3, 4]


def test_asking_again_changes_nothing(keeper: IdentityKeeper) -> None:
    sequences = PartitionSequences()
    assert settled(sequences, keeper)
    sequences.assign(3)
    assert settled(sequences, keeper)
    assert unsettled(sequences, keeper)
    assert sequences.assign(1) == BatchSequence(IDENTITY, 3)


def test_new_producer_id_starts_at_0_after_all_batches_settle(keeper: IdentityKeeper) -> None:
    sequences = PartitionSequences()
    assert settled(sequences, keeper)
    sequences.assign(3)
    keeper.assign(8, 0)  # another partition had used up its epochs
    assert not unsettled(sequences, keeper)
    assert settled(sequences, keeper)
    assert sequences.assign(1) == BatchSequence(ProducerIdentity(8, 0), 0)


def test_epoch_of_a_partition_ignores_other_partitions(keeper: IdentityKeeper) -> None:
    broken, sequences = PartitionSequences(), PartitionSequences()
    for each in (broken, sequences):
        assert settled(each, keeper)
        each.assign(3)
    broken.request_epoch_bump((1,), absent=True)
    assert settled(broken, keeper)
    assert unsettled(sequences, keeper)
    assert sequences.assign(1) == BatchSequence(IDENTITY, 3)


def test_gap_blocks_stamps_until_all_batches_settle(keeper: IdentityKeeper) -> None:
    sequences = PartitionSequences()
    assert settled(sequences, keeper)
    sequences.assign(3)
    sequences.request_epoch_bump((1,), absent=False)
    assert not unsettled(sequences, keeper)
    assert settled(sequences, keeper)
    assert sequences.assign(1) == BatchSequence(ProducerIdentity(7, 1), 0)


def test_gap_costs_one_epoch(keeper: IdentityKeeper) -> None:
    sequences = PartitionSequences()
    assert settled(sequences, keeper)
    sequences.request_epoch_bump((1,), absent=False)
    sequences.request_epoch_bump((1,), absent=False)
    assert settled(sequences, keeper)
    assert settled(sequences, keeper)
    assert sequences.assign(1) == BatchSequence(ProducerIdentity(7, 1), 0)


def test_gap_before_the_first_identity_costs_no_epoch(keeper: IdentityKeeper) -> None:
    sequences = PartitionSequences()
    sequences.request_epoch_bump((1,), absent=False)
    assert settled(sequences, keeper)
    assert sequences.assign(1) == BatchSequence(IDENTITY, 0)


def test_gap_in_the_last_epoch_waits_for_a_new_producer_id() -> None:
    keeper = IdentityKeeper()
    keeper.assign(7, MAX_EPOCH)
    sequences = PartitionSequences()
    assert settled(sequences, keeper)
    sequences.assign(3)
    sequences.request_epoch_bump((1,), absent=False)
    assert not settled(sequences, keeper)
    keeper.assign(8, 0)
    assert settled(sequences, keeper)
    assert sequences.assign(1) == BatchSequence(ProducerIdentity(8, 0), 0)


def test_returned_sequence_is_stamped_again(keeper: IdentityKeeper) -> None:
    sequences = PartitionSequences()
    assert settled(sequences, keeper)
    sequences.assign(3)
    refused = sequences.assign(4)
    sequences.take_back(refused)
    assert [sequences.assign(count).base_sequence for count in (2, 2)] == [3, 5]


def test_identity_is_recognised_after_an_acknowledgement(
    keeper: IdentityKeeper,
) -> None:
    sequences = PartitionSequences()
    assert settled(sequences, keeper)
    assert not sequences.acknowledged_here
    sequences.acknowledge(sequences.assign(1), (1,), 1, 0, alone=False)
    assert sequences.acknowledged_here


def test_old_stamp_does_not_prove_the_new_identity(keeper: IdentityKeeper) -> None:
    sequences = PartitionSequences()
    assert settled(sequences, keeper)
    old = sequences.assign(1)
    sequences.acknowledge(old, (1,), 1, 0, alone=False)
    sequences.request_epoch_bump((1,), absent=True)
    assert settled(sequences, keeper)
    assert sequences.acknowledged_here is False
    sequences.acknowledge(old, (1,), 1, 0, alone=False)
    assert sequences.acknowledged_here is False


class TestProof:
    """A batch is in the log if one behind it is: brokers leave no gaps."""

    @staticmethod
    def acknowledged(keeper: IdentityKeeper, *batches: tuple[int, int, int]) -> PartitionSequences:
        """Return those of a partition in which *batches* are acknowledged, each as place, records and base offset."""
        sequences = PartitionSequences()
        assert settled(sequences, keeper)
        for place, count, base_offset in batches:
            sequences.acknowledge(sequences.assign(count), (place,), count, base_offset, alone=False)
        return sequences

    def test_later_batch_proves_an_earlier_one(self, keeper: IdentityKeeper) -> None:
        sequences = self.acknowledged(keeper, (1, 10, 100), (3, 5, 113))
        assert sequences.confirms((2,), 3)
        assert not sequences.confirms((4,), 1)

    def test_later_batch_at_an_unknown_offset_is_proof(self, keeper: IdentityKeeper) -> None:
        assert self.acknowledged(keeper, (1, 10, 100), (3, 5, -1)).confirms((2,), 3)

    @pytest.mark.parametrize(("base_offset", "proved"), [(0, False), (112, False), (113, True), (500, True)])
    def test_proof_requires_room_for_the_batch(
        self, keeper: IdentityKeeper, base_offset: int, proved: bool
    ) -> None:
        """Otherwise the log was truncated or recreated, and the leader accepted the later batch first."""
        assert self.acknowledged(keeper, (1, 10, 100), (3, 5, base_offset)).confirms((2,), 3) is proved

    @pytest.mark.parametrize(("base_offset", "proved"), [(2, False), (3, True)])
    def test_room_begins_at_0_if_none_before_it_is_known(
        self, keeper: IdentityKeeper, base_offset: int, proved: bool
    ) -> None:
        assert self.acknowledged(keeper, (3, 5, base_offset)).confirms((2,), 3) is proved

    def test_earlier_batch_at_offset_0_takes_room(self, keeper: IdentityKeeper) -> None:
        assert not self.acknowledged(keeper, (1, 10, 0), (3, 5, 12)).confirms((2,), 3)
        assert self.acknowledged(keeper, (1, 10, 0), (3, 5, 13)).confirms((2,), 3)

    @pytest.mark.parametrize(("base_offset", "proved"), [(1, False), (3, True)])
    def test_earlier_batch_at_an_unknown_offset_takes_no_room(
        self, keeper: IdentityKeeper, base_offset: int, proved: bool
    ) -> None:
        assert self.acknowledged(keeper, (1, 10, -1), (3, 5, base_offset)).confirms((2,), 3) is proved

    def test_batch_does_not_prove_itself(self, keeper: IdentityKeeper) -> None:
        assert not self.acknowledged(keeper, (2, 3, -1)).confirms((2,), 3)
        assert self.acknowledged(keeper, (2, 3, 100), (3, 5, 101)).confirms((2,), 3)

    def test_proof_covers_the_last_16_batches(self, keeper: IdentityKeeper) -> None:
        sequences = self.acknowledged(keeper, (3, 5, -1), *[(1, 1, -1)] * 15)
        assert sequences.confirms((2,), 3)
        sequences.acknowledge(sequences.assign(1), (1,), 1, -1, alone=False)
        assert not sequences.confirms((2,), 3)

    def test_end_before_a_batch_without_predecessors_is_remembered(self, keeper: IdentityKeeper) -> None:
        for base_offset, proved in ((112, False), (113, True)):
            sequences = self.acknowledged(keeper, (1, 10, 100))
            sequences.acknowledge(sequences.assign(5), (2,), 5, -1, alone=True)
            assert len(sequences._acknowledged) == 1
            sequences.acknowledge(sequences.assign(1), (4,), 1, base_offset, alone=False)
            assert sequences.confirms((3,), 3) is proved

    def test_newest_predecessor_has_the_end_after_the_log_shrank(self, keeper: IdentityKeeper) -> None:
        assert self.acknowledged(keeper, (1, 1, 100), (2, 1, 0), (4, 1, 2)).confirms((3,), 1)
        assert not self.acknowledged(keeper, (1, 1, 100), (2, 1, 0), (4, 1, 1)).confirms((3,), 1)

    def test_end_of_a_lone_batch_replaces_that_of_a_longer_log(self, keeper: IdentityKeeper) -> None:
        sequences = self.acknowledged(keeper, (1, 1, 100))
        sequences.acknowledge(sequences.assign(1), (2,), 1, 0, alone=True)
        sequences.acknowledge(sequences.assign(1), (4,), 1, 2, alone=False)
        assert sequences.confirms((3,), 1)

    def test_end_of_the_newest_batch_outlives_an_older_lone_batch(self, keeper: IdentityKeeper) -> None:
        sequences = self.acknowledged(keeper, (2, 1, 100))
        sequences.acknowledge(sequences.assign(1), (1,), 1, 99, alone=True)
        sequences.acknowledge(sequences.assign(1), (4,), 1, 101, alone=False)
        assert not sequences.confirms((3,), 1)

    def test_known_end_stays_when_the_newest_batch_has_no_offset(self, keeper: IdentityKeeper) -> None:
        sequences = self.acknowledged(keeper, (2, 1, -1))
        sequences.acknowledge(sequences.assign(1), (1,), 1, 99, alone=True)
        sequences.acknowledge(sequences.assign(1), (4,), 1, 100, alone=False)
        assert not sequences.confirms((3,), 1)

    def test_proof_requires_room_behind_a_batch_at_an_unknown_offset(self, keeper: IdentityKeeper) -> None:
        assert not self.acknowledged(keeper, (1, 1, -1), (3, 1, 0)).confirms((2,), 1)
        assert self.acknowledged(keeper, (1, 1, -1), (3, 1, 1)).confirms((2,), 1)

    def test_part_of_a_batch_stands_where_the_batch_stood(self, keeper: IdentityKeeper) -> None:
        sequences = self.acknowledged(keeper, (3, 5, -1))
        assert sequences.confirms((2, 1), 1)
        assert not sequences.confirms((3, 0), 1)

    def test_proof_requires_the_same_log(self, keeper: IdentityKeeper) -> None:
        sequences = self.acknowledged(keeper, (3, 5, 113))
        sequences.forget_log()
        assert not sequences.confirms((2,), 3)
        assert sequences.acknowledged_here is False

    def test_late_response_of_the_old_log_is_no_proof(self, keeper: IdentityKeeper) -> None:
        sequences = self.acknowledged(keeper)
        sequences.forget_log(in_flight=(3,))
        for order, counts in ((2,), False), ((3,), False), ((4,), True):
            sequences.acknowledge(sequences.assign(5), order, 5, 100, alone=False)
            assert sequences.acknowledged_here is counts
            assert sequences.confirms((1,), 1) is counts

    def test_acknowledgement_of_another_identity_is_no_proof(self, keeper: IdentityKeeper) -> None:
        sequences = self.acknowledged(keeper, (3, 5, 113))
        sequences.request_epoch_bump((1,), absent=True)
        assert settled(sequences, keeper)
        assert not sequences.confirms((2,), 3)


def test_new_partition_confirms_no_batch() -> None:
    assert not PartitionSequences().confirms((1,), 1)


def test_partition_restarts_at_0_in_another_cluster(keeper: IdentityKeeper) -> None:
    sequences = PartitionSequences()
    assert settled(sequences, keeper)
    sequences.acknowledge(sequences.assign(5), (3,), 5, 100, alone=False)
    sequences.leave_cluster()
    assert sequences.identity is None
    assert not sequences.confirms((2,), 1)
    assert sequences.behind_gap((1,)), "a batch in flight was lost with the log"
    keeper.assign(*IDENTITY)
    assert settled(sequences, keeper)
    assert sequences.assign(1) == BatchSequence(IDENTITY, 0)
    assert not sequences.behind_gap((1,))


def test_retired_partition_keeps_its_identity(
    keeper: IdentityKeeper,
) -> None:
    """The next writer must not begin at 0 under the same identity."""
    never_written_to, sequences = PartitionSequences(), PartitionSequences()
    assert settled(sequences, keeper)
    never_written_to.retire(keeper)
    assert keeper.current == IDENTITY
    sequences.retire(keeper)
    assert keeper.current == ProducerIdentity(7, 1)


def test_first_gap_counts_until_the_identity_changes(keeper: IdentityKeeper) -> None:
    sequences = PartitionSequences()
    assert settled(sequences, keeper)
    assert not sequences.behind_gap((4,))
    for place in ((3,), (2, 1), (2, 2)):
        sequences.request_epoch_bump(place, absent=True)
    sequences.request_epoch_bump((1,), absent=False)
    assert sequences.gap_at == (2, 1)
    assert [sequences.behind_gap(place) for place in ((2,), (2, 1), (2, 2))] == [False, False, True]
    assert settled(sequences, keeper)
    assert sequences.gap_at is None


class OneForAll(IdentityKeeper):
    """Has one epoch for all partitions, as a transaction has."""

    def __init__(self) -> None:
        super().__init__(bumps_partitions=False)

    def keeps(self, identity: ProducerIdentity | None) -> bool:
        return identity == self.current


class FromZero(OneForAll):
    """Leaders accept only sequence 0 first (KIP-890)."""

    leaders_begin_at_zero = True


class TestOneEpochForAll:
    @pytest.fixture
    def one(self) -> OneForAll:
        one = OneForAll()
        one.assign(*IDENTITY)
        return one

    def test_sequences_go_on_while_it_stays(self, one: OneForAll) -> None:
        sequences = PartitionSequences()
        assert settled(sequences, one)
        assert sequences.assign(3) == BatchSequence(IDENTITY, 0)
        assert unsettled(sequences, one)
        assert sequences.assign(1) == BatchSequence(IDENTITY, 3)

    @pytest.mark.parametrize("keeper_of", [OneForAll, FromZero])
    def test_several_batches_may_start_where_the_leader_accepts_0(self, keeper_of: type[OneForAll]) -> None:
        keeper, sequences = keeper_of(), PartitionSequences()
        keeper.assign(*IDENTITY)
        assert settled(sequences, keeper)
        assert sequences.acknowledged_here is keeper.leaders_begin_at_zero

    def test_stamp_requires_the_shared_epoch(self, one: OneForAll) -> None:
        one.current = None
        assert not settled(PartitionSequences(), one)

    def test_partition_never_bumps_a_shared_epoch(self, one: OneForAll) -> None:
        sequences = PartitionSequences()
        assert settled(sequences, one)
        _ = sequences.assign(3)
        sequences.request_epoch_bump((1,), absent=True)
        assert not settled(sequences, one)
        assert sequences.needs_epoch_bump
        assert one.current == IDENTITY

    def test_next_shared_epoch_starts_after_all_batches_settle(self, one: OneForAll) -> None:
        sequences = PartitionSequences()
        assert settled(sequences, one)
        _ = sequences.assign(3)
        sequences.request_epoch_bump((1,), absent=True)
        one.assign(7, 1)
        assert not unsettled(sequences, one)
        assert settled(sequences, one)
        assert (sequences.needs_epoch_bump, sequences.gap_at) == (False, None)
        assert sequences.assign(1) == BatchSequence(ProducerIdentity(7, 1), 0)

    def test_sequences_are_kept_while_the_epoch_is_in_use(
        self, one: OneForAll, keeper: IdentityKeeper
    ) -> None:
        sequences = PartitionSequences()
        assert not sequences.is_kept(one)
        assert settled(sequences, one)
        assert sequences.is_kept(one)
        assert not sequences.is_kept(keeper)
        one.assign(7, 1)
        assert not sequences.is_kept(one)
