from __future__ import annotations

from aioproducer._core.idempotence import MAX_EPOCH, IdentityKeeper, ProducerIdentity
from aioproducer.types import TopicPartition


def keeper_of(producer_id: int, epoch: int) -> IdentityKeeper:
    keeper = IdentityKeeper()
    keeper.assign(producer_id, epoch)
    return keeper


def test_identity_is_unset_until_assigned() -> None:
    assert IdentityKeeper().current is None
    assert keeper_of(7, 3).current == ProducerIdentity(producer_id=7, epoch=3)


def test_partition_bumps_its_epoch_alone() -> None:
    keeper = keeper_of(7, 3)
    assert keeper.after(ProducerIdentity(7, 3)) == ProducerIdentity(7, 4)
    assert keeper.after(ProducerIdentity(7, 4)) == ProducerIdentity(7, 5)
    assert keeper.current == ProducerIdentity(7, 3)


def test_last_epoch_requires_a_new_producer_id() -> None:
    keeper = keeper_of(7, 0)
    assert keeper.after(ProducerIdentity(7, MAX_EPOCH - 1)) == ProducerIdentity(7, MAX_EPOCH)
    assert keeper.after(ProducerIdentity(7, MAX_EPOCH)) is None
    assert keeper.current is None


def test_bump_during_init_producer_id_has_no_identity() -> None:
    keeper = keeper_of(7, 0)
    _ = keeper.after(ProducerIdentity(7, MAX_EPOCH))
    assert keeper.after(ProducerIdentity(7, 5)) is None


def test_bump_of_a_former_producer_id_takes_the_current_one() -> None:
    keeper = keeper_of(8, 2)
    assert keeper.after(ProducerIdentity(7, MAX_EPOCH)) == ProducerIdentity(8, 2)
    assert keeper.current == ProducerIdentity(8, 2)


def test_start_after_an_identity_uses_a_later_epoch() -> None:
    keeper = keeper_of(7, 3)
    keeper.begin_after(ProducerIdentity(7, 5))
    assert keeper.current == ProducerIdentity(7, 6)
    keeper.begin_after(ProducerIdentity(7, 4))
    assert keeper.current == ProducerIdentity(7, 6)


def test_start_after_the_last_epoch_needs_a_new_producer_id() -> None:
    keeper = keeper_of(7, 3)
    keeper.begin_after(ProducerIdentity(7, MAX_EPOCH))
    assert keeper.current is None


def test_former_producer_id_does_not_affect_current_epochs() -> None:
    keeper = keeper_of(8, 0)
    keeper.begin_after(ProducerIdentity(7, 9))
    assert keeper.current == ProducerIdentity(8, 0)


def test_identity_of_a_left_cluster_is_dropped() -> None:
    keeper = keeper_of(7, 3)
    keeper.leave_cluster()
    assert keeper.current is None


def test_last_epoch_is_the_largest_int16() -> None:
    assert MAX_EPOCH == 32_767


def test_partition_is_admitted_once_an_identity_exists() -> None:
    where = TopicPartition("orders", 0)
    assert not IdentityKeeper().admits(where)
    keeper = keeper_of(7, 3)
    keeper.want(where)
    assert keeper.admits(where)
    assert keeper.bumps_partitions


def test_sequences_need_not_be_kept_without_transactions() -> None:
    keeper = keeper_of(7, 3)
    assert not keeper.keeps(keeper.current)
    assert not keeper.keeps(None)
