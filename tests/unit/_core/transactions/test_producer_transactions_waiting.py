"""Callers that time out or are cancelled: the end continues, and the producer stays usable."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.transactions.transaction_manager import Api, TransactionState as State
from aioproducer.errors import (
    CommitFailed,
    ProducerClosed,
    TopicAuthorizationFailed,
    TransactionOutcomeUnknown,
    TransactionStateError,
    TransactionTimeout,
)
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit._core.transactions.transactions_rig import TransactionsRig, refused, rig
from tests.unit.floor_rig import settle


async def gives_up(task: asyncio.Task[None]) -> None:
    """Cancel *task*, which waits."""
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class TestOutcomeUnknown:
    @pytest.mark.parametrize("commit", [True, False])
    @in_virtual_time
    async def test_end_without_an_answer_is_unknown_and_may_be_repeated(self, commit: bool) -> None:
        async with rig() as made:
            made.manager.request_written()
            end = made.transactions.commit if commit else made.transactions.abort
            made.coordinators.last_error = refused(7)
            what = "commit" if commit else "abort"
            with pytest.raises(
                TransactionOutcomeUnknown,
                match=rf"^{what}: no answer .* within 5 s .*RequestTimedOut: refused with 7$",
            ) as raised:
                await end(5)
            assert raised.value.__cause__ is made.coordinators.last_error
            assert (raised.value.abortable, raised.value.fatal) == (False, False)
            waiting = asyncio.create_task(end(5))
            await made.answers()
            await waiting
            assert made.coordinators.seen.count(Api.COMMIT if commit else Api.ABORT) == 1
            assert made.manager.state is State.READY

    @in_virtual_time
    async def test_commit_without_an_answer_may_still_fail(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            with pytest.raises(TransactionOutcomeUnknown):
                await made.transactions.commit(5)
            await made.answers(refused(48))
            with pytest.raises(CommitFailed, match="refused with 48"):
                await made.transactions.commit(5)
            await made.answered(made.transactions.abort(None))
            await made.transactions.begin()

    @in_virtual_time
    async def test_commit_without_an_answer_cannot_be_aborted(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            with pytest.raises(TransactionOutcomeUnknown):
                await made.transactions.commit(5)
            with pytest.raises(TransactionStateError, match="commit was called; call it again"):
                await made.transactions.abort(None)
            await made.answers()
            await made.transactions.commit(None)

    @pytest.mark.parametrize("commit", [True, False])
    @in_virtual_time
    async def test_cancelled_end_continues_and_the_next_begin_waits(self, commit: bool) -> None:
        async with rig() as made:
            made.manager.request_written()
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
    async def test_commit_fails_without_acknowledgements_in_time(self) -> None:
        async with rig() as made:
            batch, _ = made.sent_out()
            made.coordinators.last_error = refused(7)
            with pytest.raises(TransactionTimeout, match=r"^cannot commit within 5 s .*: refused with 7$"):
                await made.transactions.commit(5)
            assert made.transactions.has_failed
            assert not made.transactions.is_outcome_pending
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
    async def test_commit_without_a_timeout_waits_for_max_block(self) -> None:
        async with rig(max_block_s=5.0) as made:
            made.sent_out()
            with pytest.raises(TransactionTimeout):
                await made.transactions.commit(None)
            assert made.loop.time() == 5

    @in_virtual_time
    async def test_commit_fails_when_the_coordinator_is_not_asked_in_time(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            made.coordinators.reachable = False
            with pytest.raises(TransactionTimeout):
                await made.transactions.commit(5)
            await settle()
            assert made.coordinators.asked == []
            assert made.transactions.has_failed

    @in_virtual_time
    async def test_timeout_of_one_commit_fails_the_other_commit(self) -> None:
        async with rig() as made:
            made.sent_out()
            patient = asyncio.create_task(made.transactions.commit(50))
            with pytest.raises(TransactionTimeout):
                await made.transactions.commit(5)
            with pytest.raises(CommitFailed, match="cannot commit within 5 s"):
                await patient

    @for_each("later", range(6))
    @in_virtual_time
    async def test_commit_cancelled_at_its_timeout_can_be_recovered(self, later: int) -> None:
        async with rig() as made:
            batch, _ = made.sent_out()
            committing = asyncio.create_task(made.transactions.commit(5))
            until = made.loop.time() + 5
            await asyncio.sleep(5)
            assert made.loop.time() == until
            for _ in range(later):
                await asyncio.sleep(0)
            committing.cancel()
            await asyncio.wait([committing])
            made.completion.complete(batch, 0)
            await made.out_of_it()

    @in_virtual_time
    async def test_empty_transaction_keeps_waiting_for_its_epoch(self) -> None:
        """The feature was switched: nothing is to be committed, but there is no next transaction without an epoch."""
        async with rig(version=1) as made:
            made.coordinators.transaction_version = 2
            with pytest.raises(TransactionTimeout):
                await made.transactions.commit(5)
            beginning = asyncio.create_task(made.transactions.begin())
            await made.answers()
            await beginning
            assert made.manager.version == 2


class TestAtTheSameTime:
    @for_each("later", range(4))
    @in_virtual_time
    async def test_abort_waits_for_a_failed_commit(self, later: int) -> None:
        async with rig() as made:
            first, _ = made.sent_out()
            second, _ = made.sent_out(partition=1)
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            made.fail(first, TopicAuthorizationFailed)
            for _ in range(later):
                await asyncio.sleep(0)
            aborting = [asyncio.create_task(made.transactions.abort(None))]
            await settle()
            aborting.append(asyncio.create_task(made.transactions.abort(None)))
            await settle()
            assert Api.ABORT not in made.coordinators.seen
            made.completion.complete(second, 0)
            with pytest.raises(CommitFailed, match="TopicAuthorizationFailed"):
                await committing
            await made.answers()
            await asyncio.gather(*aborting)
            assert Api.COMMIT not in made.coordinators.seen
            assert made.manager.state is State.READY

    @in_virtual_time
    async def test_abort_right_after_a_failure_leaves_the_commit_its_error(self) -> None:
        async with rig() as made:
            batch = made.fill()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            made.fail(batch, TopicAuthorizationFailed)
            await made.transactions.abort(None)
            with pytest.raises(CommitFailed, match="TopicAuthorizationFailed"):
                await committing
            assert made.coordinators.seen == [Api.INIT_PRODUCER_ID]

    @in_virtual_time
    async def test_commit_is_not_joined_by_a_begin_that_waited(self) -> None:
        """Of two waiting begins one succeeds; its commit does not affect the other."""
        async with rig() as made:
            made.manager.request_written()
            await gives_up(asyncio.create_task(made.transactions.abort(None)))

            async def begin_and_commit() -> None:
                await made.transactions.begin()
                made.manager.request_written()
                with pytest.raises(TransactionOutcomeUnknown):
                    await made.transactions.commit(5)

            working = asyncio.create_task(begin_and_commit())
            await settle()
            other = asyncio.create_task(made.transactions.begin())
            await made.answers()
            with pytest.raises((TransactionStateError, TransactionOutcomeUnknown)):
                await other
            await working
            await made.answered(made.transactions.commit(5))
            assert made.manager.state is State.READY

    @in_virtual_time
    async def test_fatal_answer_is_raised_by_an_abort(self) -> None:
        async with rig() as made:
            batch, _ = made.sent_out()
            aborting = asyncio.create_task(made.transactions.abort(None))
            await settle()
            made.fail(batch, TransactionsRig.END)
            with pytest.raises(TransactionsRig.END, match=r"^cannot abort: .*close this producer") as raised:
                await aborting
            assert raised.value.fatal
            assert Api.ABORT not in made.coordinators.seen

    @in_virtual_time
    async def test_failed_end_without_a_waiting_caller_is_no_warning(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            await gives_up(asyncio.create_task(made.transactions.commit(None)))
            await made.answers(refused(48))
            assert made.transactions.has_failed


class TestFailedBefore:
    @in_virtual_time
    async def test_commit_after_a_failure_raises_it(self) -> None:
        """The failure may occur before the call or during the call."""
        async with rig() as made:
            batch, _ = made.sent_out()
            made.fail(batch, TopicAuthorizationFailed)
            for _ in range(2):
                with pytest.raises(CommitFailed, match="TopicAuthorizationFailed: failed") as raised:
                    await made.transactions.commit(None)
                assert isinstance(raised.value.__cause__, TopicAuthorizationFailed)
                assert raised.value.abortable

    @in_virtual_time
    async def test_prepare_after_a_failure_raises_it(self) -> None:
        async with rig() as made:
            batch, _ = made.sent_out()
            made.fail(batch, TopicAuthorizationFailed)
            with pytest.raises(CommitFailed, match="TopicAuthorizationFailed: failed"):
                await made.transactions.prepare(None)


class TestGivenUp:
    """The sender has ended because of a bug or with its event loop."""

    @in_virtual_time
    async def test_give_up_ends_all_calls_with_its_error(self) -> None:
        async with rig() as made:
            made.sent_out()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            made.transactions.give_up(ProducerClosed("the sender is gone"))
            with pytest.raises(ProducerClosed):
                await committing
            assert made.manager.state is State.FATAL
            with pytest.raises(ProducerClosed, match="the sender is gone"):
                await made.transactions.begin()
