"""Commit and abort: their waits, their failures, and the effect of each answer."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.idempotence import ProducerIdentity
from aioproducer._core.transactions.transaction_manager import Api, TransactionState as State
from aioproducer.errors import (
    CommitFailed,
    ProducerFenced,
    TopicAuthorizationFailed,
    TransactionAborted,
    TransactionOutcomeUnknown,
    TransactionStateError,
)
from aioproducer.testing import in_virtual_time
from tests.unit._core.transactions.transactions_rig import refused, rig
from tests.unit.floor_rig import settle


class TestCommit:
    @pytest.mark.parametrize(("version", "epoch"), [(0, 0), (1, 0), (2, 1)])
    @in_virtual_time
    async def test_commit_waits_for_all_acknowledgements(self, version: int, epoch: int) -> None:
        async with rig(version=version) as made:
            batch = made.written()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            assert Api.COMMIT not in made.coordinators.seen
            made.completion.complete(batch, 0)
            assert (await made.answers()).api is Api.COMMIT
            await committing
            assert (made.manager.state, made.manager.current) == (State.READY, ProducerIdentity(7, epoch))

    @in_virtual_time
    async def test_commit_ends_lingering(self) -> None:
        async with rig() as made:
            future = made.append()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            [batch] = made.drain()
            made.records.write([batch])
            batch.persistence.written()
            made.completion.complete(batch, 0)
            await made.answers()
            await committing
            assert future.done()

    @in_virtual_time
    async def test_commit_raises_an_unawaited_failure_and_commits_nothing(self) -> None:
        async with rig() as made:
            batch, future = made.sent_out()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            made.fail(batch, TopicAuthorizationFailed)
            with pytest.raises(CommitFailed, match="the transaction of 'tx' is not committed") as raised:
                await committing
            assert isinstance(raised.value.__cause__, TopicAuthorizationFailed)
            assert (raised.value.abortable, raised.value.fatal) == (True, False)
            assert Api.COMMIT not in made.coordinators.seen
            assert made.transactions.has_failed
            failed = future.exception()
            assert isinstance(failed, TopicAuthorizationFailed)
            assert failed.abortable
            await made.answered(made.transactions.abort(None))
            assert made.coordinators.seen[-1] is Api.ABORT

    @in_virtual_time
    async def test_commit_refused_by_the_coordinator_can_be_aborted(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            committing = asyncio.create_task(made.transactions.commit(None))
            await made.answers(refused(48))
            with pytest.raises(CommitFailed, match="refused with 48"):
                await committing
            await made.answered(made.transactions.abort(None))
            assert made.manager.current == ProducerIdentity(7, 1)
            await made.transactions.begin()

    @in_virtual_time
    async def test_refused_for_good(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            committing = asyncio.create_task(made.transactions.commit(None))
            await made.answers(refused(90, fatal=True))
            with pytest.raises(ProducerFenced) as raised:
                await committing
            assert raised.value.fatal
            assert [type(each) for each in made.fatal] == [ProducerFenced]
            for call in (made.transactions.commit, made.transactions.abort, made.transactions.prepare):
                with pytest.raises(
                    ProducerFenced,
                    match=rf"^cannot {call.__name__}: the transaction of 'tx' .*close this producer",
                ):
                    await call(None)
            with pytest.raises(ProducerFenced, match="close this producer"):
                await made.transactions.begin()

    @in_virtual_time
    async def test_fatal_failure_of_a_record_is_raised_by_commit(self) -> None:
        async with rig() as made:
            batch, future = made.sent_out()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            made.fail(batch, ProducerFenced)
            with pytest.raises(ProducerFenced, match=r"^cannot commit: the transaction of 'tx'") as raised:
                await committing
            assert raised.value.fatal
            failed = future.exception()
            assert isinstance(failed, ProducerFenced)
            assert failed.fatal

    @in_virtual_time
    async def test_delayed_produce_leads_to_a_pause_after_a_commit(self) -> None:
        """The time of EndTxn tells a delay from a slow network."""
        async with rig() as made:
            batch, _ = made.sent_out()
            await asyncio.sleep(10)
            made.completion.complete(batch, 0)
            committing = asyncio.create_task(made.transactions.commit(None))
            await asyncio.sleep(0.1)
            await made.answers()
            await committing
            assert not made.manager.held
            await made.transactions.begin()
            batch, _ = made.sent_out()
            made.records.answered(0.3)
            made.completion.complete(batch, 0)
            await made.answered(made.transactions.commit(None))
            assert made.manager.held

    @in_virtual_time
    async def test_commit_is_uncertain_when_fenced_after_a_lost_answer(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            made.coordinators.asked[0].on_uncertain()
            await made.answers(refused(90, fatal=True))
            with pytest.raises(TransactionOutcomeUnknown, match="the outcome is unknown") as raised:
                await committing
            assert (raised.value.fatal, type(raised.value.__cause__)) == (True, ProducerFenced)
            with pytest.raises(TransactionOutcomeUnknown, match="cannot begin a transaction"):
                await made.transactions.begin()

    @in_virtual_time
    async def test_commit_raises_fenced_without_a_lost_answer(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            committing = asyncio.create_task(made.transactions.commit(None))
            await made.answers(refused(90, fatal=True))
            with pytest.raises(ProducerFenced):
                await committing


class TestAbort:
    @in_virtual_time
    async def test_abort_fails_unwritten_records_and_awaits_written_ones(self) -> None:
        async with rig() as made:
            batch, sent = made.sent_out()
            unsent = made.append(partition=1)
            aborting = asyncio.create_task(made.transactions.abort(None))
            await settle()
            failed = unsent.exception()
            assert isinstance(failed, TransactionAborted)
            assert not failed.possibly_persisted
            assert Api.ABORT not in made.coordinators.seen
            made.completion.complete(batch, 0)
            assert (await made.answers()).api is Api.ABORT
            await aborting
            assert sent.result()
            assert (made.manager.state, made.manager.current) == (State.READY, ProducerIdentity(7, 1))

    @in_virtual_time
    async def test_abort_fails_records_in_backoff(self) -> None:
        async with rig() as made:
            batch, future = made.sent_out()
            made.completion.reenqueue(batch, made.loop.time() + 100)
            await made.answered(made.transactions.abort(None))
            assert isinstance(future.exception(), TransactionAborted)

    @in_virtual_time
    async def test_records_are_accepted_again_after_an_abort(self) -> None:
        async with rig() as made:
            await made.transactions.abort(None)
            assert made.accumulator.closed_for is None

    @in_virtual_time
    async def test_second_abort_waits_for_the_first(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            both = [asyncio.create_task(made.transactions.abort(None)) for _ in range(2)]
            await made.answers()
            await asyncio.gather(*both)
            assert made.coordinators.seen.count(Api.ABORT) == 1

    @in_virtual_time
    async def test_abort_is_refused_during_a_commit(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            with pytest.raises(TransactionStateError, match="cannot abort: commit was called"):
                await made.transactions.abort(None)
            await made.answers()
            await committing

    @in_virtual_time
    async def test_abort_gives_up_pending_partitions(self) -> None:
        async with rig(version=1) as made:
            future = made.append()
            assert made.drain() == []
            assert (await made.asks()).api is Api.ADD_PARTITIONS
            aborting = asyncio.create_task(made.transactions.abort(None))
            await settle()
            assert isinstance(future.exception(), TransactionAborted)
            assert [each.api for each in made.coordinators.asked] == [Api.ABORT]
            await made.answers()
            assert (await made.answers()).api is Api.INIT_PRODUCER_ID
            await aborting

    @pytest.mark.parametrize("code", [48, 59])
    @in_virtual_time
    async def test_refused_since_nothing_is_open(self, code: int) -> None:
        """The request to add a partition was lost, say: with another epoch it goes on, and that one may come late."""
        async with rig(version=1) as made:
            made.manager.request_written()
            aborting = asyncio.create_task(made.transactions.abort(None))
            await made.answers(refused(code))
            assert (await made.answers()).api is Api.INIT_PRODUCER_ID
            await aborting
            assert (made.manager.state, made.manager.current) == (State.READY, ProducerIdentity(7, 1))

    @in_virtual_time
    async def test_abort_is_repeated_while_its_own_markers_are_written(self) -> None:
        """Until then, version 2 answers 90 to the next epoch: EndTxn compares the epoch, InitProducerId would not."""
        async with rig() as made:
            made.manager.request_written()
            aborting = asyncio.create_task(made.transactions.abort(None))
            await made.answers(refused(90, fatal=True))
            assert (await made.answers()).api is Api.DESCRIBE
            assert (await made.answers()).api is Api.ABORT
            await aborting
            assert (made.manager.state, made.manager.current) == (State.READY, ProducerIdentity(7, 1))

    @pytest.mark.parametrize("code", [90, 105, 53])
    @in_virtual_time
    async def test_fenced_abort_requests_no_epoch(self, code: int) -> None:
        async with rig() as made:
            made.manager.request_written()
            aborting = asyncio.create_task(made.transactions.abort(None))
            await made.answers(refused(90, fatal=True))
            await made.answers(refused(code, fatal=True))
            with pytest.raises(ProducerFenced, match="refused with 90") as raised:
                await aborting
            assert raised.value.fatal
            assert made.manager.state is State.FATAL
            assert made.coordinators.seen[1:] == [Api.ABORT, Api.DESCRIBE]


@pytest.mark.parametrize("commit", [True, False])
@in_virtual_time
async def test_end_keeps_its_outcome_if_no_epoch_follows(commit: bool) -> None:
    """The next transaction needs the epoch of an InitProducerId, because the cluster was upgraded."""
    async with rig(version=1) as made:
        made.manager.request_written()
        made.coordinators.transaction_version = 2
        ending = asyncio.create_task(
            made.transactions.commit(None) if commit else made.transactions.abort(None)
        )
        await made.answers()
        assert (await made.answers(refused(90, fatal=True))).api is Api.INIT_PRODUCER_ID
        if commit:
            await ending
        else:
            with pytest.raises(ProducerFenced, match="refused with 90"):
                await ending
        assert made.manager.state is State.FATAL
        assert [(type(each), each.fatal) for each in made.fatal] == [(ProducerFenced, True)]
