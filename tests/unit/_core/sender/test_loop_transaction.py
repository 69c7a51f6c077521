"""Calls of the sender to its transaction."""

from __future__ import annotations

import pytest

from aioproducer._core.protocol.produce import BY_NAME
from aioproducer.testing import in_virtual_time
from tests.unit._core.sender.loop_rig import LINGER_S, Rig, Told, advance
from tests.unit.floor_rig import lost


@in_virtual_time
async def test_transaction_is_checked_at_every_wakeup() -> None:
    transaction = Told()
    async with Rig(transaction=transaction, transactional_id="tx") as rig:
        looks = transaction.looks
        rig.wakeup.ring()
        await advance(0)
        assert transaction.looks == looks + 1


@pytest.mark.parametrize(("at_most", "version"), [(None, BY_NAME), (11, 11), (99, BY_NAME)])
@in_virtual_time
async def test_transaction_receives_batches_and_sets_the_version(at_most: int | None, version: int) -> None:
    transaction = Told(at_most)
    async with Rig(transaction=transaction, transactional_id="tx", request_timeout_s=1.5) as rig:
        batch = rig.fill()
        await advance(LINGER_S)
        assert transaction.written == [[batch]]
        [call] = rig.connection.calls
        assert (call.request.transactional_id, call.request.timeout_ms) == ("tx", 1_500)
        assert call.version == version


@in_virtual_time
async def test_transaction_receives_the_time_of_an_answer() -> None:
    transaction = Told()
    async with Rig(transaction=transaction, transactional_id="tx") as rig:
        await advance(1)
        rig.fill()
        await advance(LINGER_S + 0.25)
        rig.accept()
        assert transaction.took == [pytest.approx(0.25)]


@in_virtual_time
async def test_lost_connection_is_not_reported_as_an_answer() -> None:
    transaction = Told()
    async with Rig(transaction=transaction, transactional_id="tx") as rig:
        rig.fill()
        await advance(LINGER_S)
        rig.connection.answer(lost())
        assert transaction.took == []
