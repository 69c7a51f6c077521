from __future__ import annotations

from aioproducer.idempotence.identity import MAX_EPOCH, IdentityKeeper, ProducerIdentity


def test_there_is_no_identity_until_one_is_assigned() -> None:
    keeper = IdentityKeeper()
    assert keeper.current is None
    keeper.assign(7, 3)
    assert keeper.current == ProducerIdentity(producer_id=7, epoch=3)


def test_leaving_an_identity_takes_the_next_epoch_of_the_same_producer_id() -> None:
    keeper = IdentityKeeper()
    keeper.assign(7, 3)
    keeper.leave(ProducerIdentity(7, 3))
    assert keeper.current == ProducerIdentity(7, 4)


def test_many_partitions_that_leave_the_same_identity_take_one_epoch() -> None:
    keeper = IdentityKeeper()
    keeper.assign(7, 3)
    keeper.leave(ProducerIdentity(7, 3))
    keeper.leave(ProducerIdentity(7, 3))
    assert keeper.current == ProducerIdentity(7, 4)


def test_after_the_last_epoch_a_new_producer_id_has_to_be_asked_for() -> None:
    keeper = IdentityKeeper()
    keeper.assign(7, MAX_EPOCH - 1)
    keeper.leave(ProducerIdentity(7, MAX_EPOCH - 1))
    assert keeper.current == ProducerIdentity(7, MAX_EPOCH)
    keeper.leave(ProducerIdentity(7, MAX_EPOCH))
    assert keeper.current is None


def test_who_leaves_while_a_new_producer_id_is_asked_for_changes_nothing() -> None:
    keeper = IdentityKeeper()
    keeper.assign(7, MAX_EPOCH)
    keeper.leave(ProducerIdentity(7, MAX_EPOCH))
    keeper.leave(ProducerIdentity(7, MAX_EPOCH))
    assert keeper.current is None


def test_the_last_epoch_is_the_largest_int16() -> None:
    assert MAX_EPOCH == 32_767
