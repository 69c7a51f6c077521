"""Callers who wait for an end, give up, or are cancelled: the end goes on, and there is always a way out."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.errors import (
    CommitFailed,
    TransactionOutcomeUnknown,
    TransactionStateError,
    TransactionTimeout,
)
from aioproducer.testing import in_virtual_time
from aioproducer.transactions.reactions import Api
from tests.unit.floor_rig import settle
from tests.unit.transactions.transactions_rig import refused, rig


async def gives_up(task: asyncio.Task[None]) -> None:
    """Cancel *task*, which waits."""
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class TestOutcomeUnknown:
    @in_virtual_time
    async def test_a_commit_may_fail_after_that(self) -> None:
        async with rig() as made:
            made.manager.asked()
            with pytest.raises(TransactionOutcomeUnknown):
                await made.transactions.commit(5)
            await made.answers(refused(48))
            with pytest.raises(CommitFailed, match="refused with 48"):
                await made.transactions.commit(5)
            await made.answered(made.transactions.abort(None))
            await made.transactions.begin()

    @in_virtual_time
    async def test_nothing_turns_it_round(self) -> None:
        async with rig() as made:
            made.manager.asked()
            with pytest.raises(TransactionOutcomeUnknown):
                await made.transactions.commit(5)
            with pytest.raises(TransactionStateError, match="commit was called; call it again"):
                await made.transactions.abort(None)
            await made.answers()
            await made.transactions.commit(None)

    @pytest.mark.parametrize("commit", [True, False])
    @in_virtual_time
    async def test_cancelled_it_goes_on_and_the_next_begin_waits_for_it(self, commit: bool) -> None:
        async with rig() as made:
            made.manager.asked()
            end = made.transactions.commit if commit else made.transactions.abort
            await gives_up(asyncio.create_task(end(None)))
            beginning = asyncio.create_task(made.transactions.begin())
            await settle()
            assert not beginning.done()
            await made.answers()
            await beginning
            assert made.transactions.number == 2


class TestCommitInTime:
    @in_virtual_time
    async def test_what_is_not_acknowledged_in_time_is_not_committed(self) -> None:
        async with rig() as made:
            batch, _ = made.sent_out()
            with pytest.raises(TransactionTimeout, match="cannot commit within 5 s"):
                await made.transactions.commit(5)
            assert made.transactions.has_failed
            made.completion.complete(batch, 0)
            await settle()
            assert Api.COMMIT not in made.coordinators.seen
            with pytest.raises(
                (TransactionTimeout, CommitFailed), match=r"cannot begin a transaction: .*abort it"
            ):
                await made.transactions.begin()
            await made.answered(made.transactions.abort(None))
            await made.transactions.begin()

    @in_virtual_time
    async def test_a_coordinator_that_cannot_be_asked_in_time_has_not_committed_it(self) -> None:
        async with rig() as made:
            made.manager.asked()
            made.coordinators.reachable = False
            with pytest.raises(TransactionTimeout):
                await made.transactions.commit(5)
            await settle()
            assert made.coordinators.asked == []
            assert made.transactions.has_failed


class TestAtTheSameTime:
    @in_virtual_time
    async def test_what_is_cancelled_while_nobody_waits_is_no_warning(self) -> None:
        async with rig() as made:
            made.manager.asked()
            await gives_up(asyncio.create_task(made.transactions.commit(None)))
            await made.answers(refused(48))
            assert made.transactions.has_failed
