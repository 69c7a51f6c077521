from __future__ import annotations

from aioproducer._core.idempotence import MAX_EPOCH, IdentityKeeper, ProducerIdentity
from aioproducer.types import TopicPartition


def keeper_of(producer_id: int, epoch: int) -> IdentityKeeper:
    keeper = IdentityKeeper()
    keeper.assign(producer_id, epoch)
    return keeper


def test_there_is_no_identity_until_one_is_assigned() -> None:
    assert IdentityKeeper().current is None
    assert keeper_of(7, 3).current == ProducerIdentity(producer_id=7, epoch=3)


def test_a_partition_that_leaves_its_identity_takes_the_next_epoch_alone() -> None:
    keeper = keeper_of(7, 3)
    assert keeper.after(ProducerIdentity(7, 3)) == ProducerIdentity(7, 4)
    assert keeper.after(ProducerIdentity(7, 4)) == ProducerIdentity(7, 5)
    assert keeper.current == ProducerIdentity(7, 3)


def test_after_the_last_epoch_a_new_producer_id_has_to_be_asked_for() -> None:
    keeper = keeper_of(7, 0)
    assert keeper.after(ProducerIdentity(7, MAX_EPOCH - 1)) == ProducerIdentity(7, MAX_EPOCH)
    assert keeper.after(ProducerIdentity(7, MAX_EPOCH)) is None
    assert keeper.current is None


def test_who_leaves_an_identity_while_a_new_producer_id_is_asked_for_has_none_yet() -> None:
    keeper = keeper_of(7, 0)
    _ = keeper.after(ProducerIdentity(7, MAX_EPOCH))
    assert keeper.after(ProducerIdentity(7, 5)) is None


def test_who_leaves_a_former_producer_id_takes_the_one_in_force() -> None:
    keeper = keeper_of(8, 2)
    assert keeper.after(ProducerIdentity(7, MAX_EPOCH)) == ProducerIdentity(8, 2)
    assert keeper.current == ProducerIdentity(8, 2)


def test_who_begins_after_an_identity_does_so_in_a_later_epoch() -> None:
    keeper = keeper_of(7, 3)
    keeper.begin_after(ProducerIdentity(7, 5))
    assert keeper.current == ProducerIdentity(7, 6)
    keeper.begin_after(ProducerIdentity(7, 4))
    assert keeper.current == ProducerIdentity(7, 6)


def test_who_begins_after_the_last_epoch_needs_a_new_producer_id() -> None:
    keeper = keeper_of(7, 3)
    keeper.begin_after(ProducerIdentity(7, MAX_EPOCH))
    assert keeper.current is None


def test_a_former_producer_id_says_nothing_of_the_epochs_of_the_one_in_force() -> None:
    keeper = keeper_of(8, 0)
    keeper.begin_after(ProducerIdentity(7, 9))
    assert keeper.current == ProducerIdentity(8, 0)


def test_the_last_epoch_is_the_largest_int16() -> None:
    assert MAX_EPOCH == 32_767


def test_without_transactions_a_partition_is_admitted_once_there_is_an_identity() -> None:
    where = TopicPartition("orders", 0)
    assert not IdentityKeeper().admits(where)
    keeper = keeper_of(7, 3)
    keeper.want(where)
    assert keeper.admits(where)
    assert keeper.bumps_partitions


def test_without_transactions_no_sequences_need_to_be_kept() -> None:
    keeper = keeper_of(7, 3)
    assert not keeper.keeps(keeper.current)
    assert not keeper.keeps(None)
