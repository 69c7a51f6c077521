"""Transactions from begin to end, as the producer has them: what is asked of the coordinators, and when."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import TopicPartition
from aioproducer.errors import (
    CommitFailed,
    ProducerError,
    ProducerFenced,
    TopicAuthorizationFailed,
    TransactionAborted,
    TransactionOutcomeUnknown,
    TransactionStateError,
    TransactionTimeout,
)
from aioproducer.idempotence.identity import ProducerIdentity
from aioproducer.testing import in_virtual_time
from aioproducer.transactions.reactions import Api
from aioproducer.transactions.transaction_requests import GoingOn
from aioproducer.transactions.transaction_state import TransactionState as State
from tests.unit.floor_rig import TOPIC, settle
from tests.unit.transactions.transactions_rig import TransactionsRig, refused, rig

HERE = TopicPartition(TOPIC, 0)


class TestInitialize:
    @pytest.mark.parametrize("version", [0, 1, 2])
    @in_virtual_time
    async def test_it_gets_a_producer_id(self, version: int) -> None:
        made = TransactionsRig(version=version)
        await made.answered(made.transactions.initialize())
        manager = made.manager
        assert (manager.state, manager.current, manager.version) == (
            State.READY,
            ProducerIdentity(7, 0),
            version,
        )

    @in_virtual_time
    async def test_no_answer_in_time(self) -> None:
        made = TransactionsRig(max_block_s=5.0)
        made.coordinators.last_error = refused(14)
        with pytest.raises(
            TransactionTimeout, match=r"cannot initialize within 5 s .*CoordinatorLoadInProgress"
        ) as raised:
            await made.transactions.initialize()
        assert raised.value.__cause__ is made.coordinators.last_error
        await made.transactions.stop()
        assert made.coordinators.asked == []

    @in_virtual_time
    async def test_refused(self) -> None:
        made = TransactionsRig()
        task = asyncio.create_task(made.transactions.initialize())
        await made.answers(refused(53, fatal=True))
        with pytest.raises(ProducerError, match="refused with 53") as raised:
            await task
        assert raised.value.fatal
        assert made.manager.current is None

    @in_virtual_time
    async def test_cancelled(self) -> None:
        made = TransactionsRig()
        task = asyncio.create_task(made.transactions.initialize())
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settle()
        assert made.coordinators.asked == []


class TestBegin:
    @in_virtual_time
    async def test_it_asks_nobody(self) -> None:
        async with rig() as made:
            assert made.transactions.can_be_aborted
            assert not made.transactions.has_failed
            assert made.coordinators.seen == [Api.INIT_PRODUCER_ID]
            assert made.transactions.number == 1

    @in_virtual_time
    async def test_there_is_one_at_a_time(self) -> None:
        async with rig() as made:
            with pytest.raises(
                TransactionStateError, match="cannot begin a transaction: a transaction is open"
            ):
                await made.transactions.begin()
            assert made.transactions.number == 1

    @in_virtual_time
    async def test_it_waits_for_the_end_before(self) -> None:
        async with rig() as made:
            batch, _ = made.sent_out()
            aborting = asyncio.create_task(made.transactions.abort(None))
            made.completion.complete(batch, 0)
            await settle()
            aborting.cancel()
            beginning = asyncio.create_task(made.transactions.begin())
            await settle()
            assert not beginning.done()
            await made.answers()
            await beginning
            assert (made.manager.state, made.transactions.number) == (State.IN_TRANSACTION, 2)

    @in_virtual_time
    async def test_it_does_not_wait_longer_than_anything_else(self) -> None:
        async with rig(max_block_s=5.0) as made:
            made.manager.asked()
            aborting = asyncio.create_task(made.transactions.abort(None))
            await settle()
            aborting.cancel()
            with pytest.raises(
                TimeoutError, match="begin a transaction: no answer from the coordinator within 5 s"
            ):
                await made.transactions.begin()
            await made.answers()
            await made.transactions.begin()

    @in_virtual_time
    async def test_the_one_whose_end_failed_unheard(self) -> None:
        async with rig() as made:
            batch, future = made.sent_out()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            committing.cancel()
            await settle()
            made.fail(batch, TopicAuthorizationFailed)
            await settle()
            assert isinstance(future.exception(), TopicAuthorizationFailed)
            with pytest.raises(CommitFailed, match="TopicAuthorizationFailed"):
                await made.transactions.begin()
            await made.answered(made.transactions.abort(None))
            await made.transactions.begin()


class TestEmpty:
    @pytest.mark.parametrize("version", [1, 2])
    @pytest.mark.parametrize("commit", [True, False])
    @in_virtual_time
    async def test_nothing_is_asked(self, commit: bool, version: int) -> None:
        async with rig(version=version) as made:
            for _ in range(2):
                await (made.transactions.commit(None) if commit else made.transactions.abort(None))
                assert made.manager.state is State.READY
                await made.transactions.begin()
            assert made.coordinators.seen == [Api.INIT_PRODUCER_ID]


class TestCommit:
    @pytest.mark.parametrize(("version", "epoch"), [(0, 0), (1, 0), (2, 1)])
    @in_virtual_time
    async def test_all_is_acknowledged_first(self, version: int, epoch: int) -> None:
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
    async def test_what_lingers_is_hurried(self) -> None:
        async with rig() as made:
            future = made.append()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            [batch] = made.drain()
            made.records.write([batch])
            batch.written()
            made.completion.complete(batch, 0)
            await made.answers()
            await committing
            assert future.done()

    @in_virtual_time
    async def test_a_failure_that_nobody_awaits_is_raised_and_nothing_is_committed(self) -> None:
        async with rig() as made:
            batch, future = made.sent_out()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            made.fail(batch, TopicAuthorizationFailed)
            with pytest.raises(
                CommitFailed, match="nothing of the transaction of 'tx' is committed"
            ) as raised:
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
    async def test_refused_by_the_coordinator(self) -> None:
        async with rig() as made:
            made.manager.asked()
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
            made.manager.asked()
            committing = asyncio.create_task(made.transactions.commit(None))
            await made.answers(refused(90, fatal=True))
            with pytest.raises(ProducerFenced) as raised:
                await committing
            assert raised.value.fatal
            assert [type(each) for each in made.fatal] == [ProducerFenced]
            for call in (made.transactions.commit, made.transactions.abort, made.transactions.prepare):
                with pytest.raises(ProducerFenced, match="close this producer"):
                    await call(None)
            with pytest.raises(ProducerFenced, match="close this producer"):
                await made.transactions.begin()

    @in_virtual_time
    async def test_a_record_that_fails_for_good_is_the_end(self) -> None:
        async with rig() as made:
            batch, future = made.sent_out()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            made.fail(batch, ProducerFenced)
            with pytest.raises(ProducerFenced) as raised:
                await committing
            assert raised.value.fatal
            failed = future.exception()
            assert isinstance(failed, ProducerFenced)
            assert failed.fatal

    @in_virtual_time
    async def test_its_answer_is_lost_and_a_successor_keeps_us_from_asking_again(self) -> None:
        async with rig() as made:
            made.manager.asked()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            made.coordinators.asked[0].on_uncertain()
            await made.answers(refused(90, fatal=True))
            with pytest.raises(TransactionOutcomeUnknown, match="may have been done or not") as raised:
                await committing
            assert (raised.value.fatal, type(raised.value.__cause__)) == (True, ProducerFenced)
            with pytest.raises(TransactionOutcomeUnknown, match="cannot begin a transaction"):
                await made.transactions.begin()

    @in_virtual_time
    async def test_without_a_lost_answer_a_successor_tells_that_it_is_not_committed(self) -> None:
        async with rig() as made:
            made.manager.asked()
            committing = asyncio.create_task(made.transactions.commit(None))
            await made.answers(refused(90, fatal=True))
            with pytest.raises(ProducerFenced):
                await committing


class TestAbort:
    @in_virtual_time
    async def test_what_was_not_written_fails_and_what_was_is_awaited(self) -> None:
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
    async def test_what_waits_to_be_sent_again_fails_too(self) -> None:
        async with rig() as made:
            batch, future = made.sent_out()
            made.completion.reenqueue(batch, made.loop.time() + 100)
            await made.answered(made.transactions.abort(None))
            assert isinstance(future.exception(), TransactionAborted)

    @in_virtual_time
    async def test_records_are_taken_again_afterwards(self) -> None:
        async with rig() as made:
            await made.transactions.abort(None)
            assert made.accumulator.closed_for is None

    @in_virtual_time
    async def test_a_second_one_waits_for_the_first(self) -> None:
        async with rig() as made:
            made.manager.asked()
            both = [asyncio.create_task(made.transactions.abort(None)) for _ in range(2)]
            await made.answers()
            await asyncio.gather(*both)
            assert made.coordinators.seen.count(Api.ABORT) == 1

    @in_virtual_time
    async def test_it_never_follows_a_commit_that_is_under_way(self) -> None:
        async with rig() as made:
            made.manager.asked()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            with pytest.raises(TransactionStateError, match="cannot abort: commit was called"):
                await made.transactions.abort(None)
            await made.answers()
            await committing

    @in_virtual_time
    async def test_partitions_and_offsets_on_their_way_are_given_up(self) -> None:
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
            made.manager.asked()
            aborting = asyncio.create_task(made.transactions.abort(None))
            await made.answers(refused(code))
            assert (await made.answers()).api is Api.INIT_PRODUCER_ID
            await aborting
            assert (made.manager.state, made.manager.current) == (State.READY, ProducerIdentity(7, 1))

    @pytest.mark.parametrize("is_fenced", [True, False])
    @in_virtual_time
    async def test_fenced_or_only_early_another_epoch_tells(self, is_fenced: bool) -> None:
        """Version 2 says "fenced" also while the markers of the transaction before are being written."""
        async with rig() as made:
            made.manager.asked()
            aborting = asyncio.create_task(made.transactions.abort(None))
            await made.answers(refused(90, fatal=True))
            asked = await made.answers(refused(90, fatal=True) if is_fenced else None)
            assert asked.api is Api.INIT_PRODUCER_ID
            if is_fenced:
                with pytest.raises(ProducerFenced) as raised:
                    await aborting
                assert raised.value.fatal
                assert made.manager.state is State.FATAL
            else:
                await aborting
                assert (made.manager.state, made.manager.current) == (State.READY, ProducerIdentity(7, 1))


class TestBump:
    @pytest.mark.parametrize("commit", [True, False])
    @in_virtual_time
    async def test_what_may_be_late_is_kept_from_the_next_transaction(self, commit: bool) -> None:
        async with rig(version=1) as made:
            made.manager.asked()
            made.manager.uncertain()
            ending = asyncio.create_task(
                made.transactions.commit(None) if commit else made.transactions.abort(None)
            )
            await made.answers()
            assert made.manager.state is State.INITIALIZING
            assert not ending.done()
            await made.answers()
            await ending
            assert (made.manager.state, made.manager.current) == (State.READY, ProducerIdentity(7, 1))
            assert not made.manager.needs_bump

    @in_virtual_time
    async def test_a_sequence_that_is_not_settled(self) -> None:
        async with rig(version=1) as made:
            batch = made.written()
            made.fail(batch, TopicAuthorizationFailed)
            await made.answered(made.transactions.abort(None))
            assert made.coordinators.seen[-2:] == [Api.ABORT, Api.INIT_PRODUCER_ID]
            assert made.manager.current == ProducerIdentity(7, 1)

    @in_virtual_time
    async def test_the_cluster_has_another_version_now(self) -> None:
        async with rig(version=1) as made:
            made.manager.asked()
            made.coordinators.transaction_version = 2
            await made.answered(made.transactions.commit(None))
            assert (made.manager.version, made.manager.current) == (2, ProducerIdentity(7, 1))
            await made.transactions.begin()
            made.manager.asked()
            made.coordinators.transaction_version = 1
            await made.answered(made.transactions.commit(None))
            assert (made.manager.version, made.manager.current) == (1, ProducerIdentity(7, 2))

    @in_virtual_time
    async def test_refused_it_is_the_end_of_the_producer_but_not_of_what_was_committed(self) -> None:
        async with rig(version=1) as made:
            made.manager.asked()
            made.manager.uncertain()
            committing = asyncio.create_task(made.transactions.commit(None))
            await made.answers()
            await made.answers(refused(7))
            await committing
            assert made.manager.state is State.FATAL
            with pytest.raises(ProducerError, match="refused with 7") as raised:
                await made.transactions.begin()
            assert (raised.value.fatal, raised.value.abortable) == (True, False)


class TestPartitions:
    @in_virtual_time
    async def test_below_version_2_they_are_added_before_they_are_written_to(self) -> None:
        async with rig(version=1, partitions=3) as made:
            for partition in (0, 1):
                _ = made.append(partition=partition)
            assert made.drain() == []
            await settle()
            _ = made.append(partition=2)  # while the others are being added
            assert made.drain() == []
            added = [(await made.answers()).request.v3_and_below_topics[0].partitions for _ in range(2)]
            assert added == [[0, 1], [2]]
            assert {each.topic_partition.partition for each in made.drain()} == {0, 1, 2}
            assert made.coordinators.seen[1:] == [Api.ADD_PARTITIONS, Api.ADD_PARTITIONS]

    @in_virtual_time
    async def test_from_version_2_on_nobody_is_asked(self) -> None:
        async with rig() as made:
            _ = made.append()
            assert len(made.drain()) == 1
            assert made.coordinators.seen == [Api.INIT_PRODUCER_ID]

    @in_virtual_time
    async def test_refused(self) -> None:
        async with rig(version=1) as made:
            future = made.append()
            assert made.drain() == []
            await made.answers(refused(29))
            failed = future.exception()
            assert isinstance(failed, TopicAuthorizationFailed)
            assert (failed.abortable, failed.fatal, failed.possibly_persisted) == (True, False, False)
            assert made.transactions.has_failed

    @in_virtual_time
    async def test_a_bug_on_the_way_ends_the_producer(self, caplog: pytest.LogCaptureFixture) -> None:
        """Else the commit would wait for partitions that nobody asks for any more."""
        async with rig(version=1) as made:
            future = made.append()
            assert made.drain() == []
            await settle()
            made.coordinators.asked[0].answered.set_exception(ZeroDivisionError("oops"))
            await settle()
            with pytest.raises(ProducerError, match=r"bug in aioproducer: ZeroDivisionError\('oops'\)"):
                await future
            assert made.manager.state is State.FATAL
            assert "task.crashed task=aioproducer: add partitions" in caplog.text

    @in_virtual_time
    async def test_a_bug_in_a_commit_ends_the_producer(self) -> None:
        async with rig() as made:
            made.manager.asked()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            made.coordinators.asked[0].answered.set_exception(ZeroDivisionError("oops"))
            with pytest.raises(ProducerError, match="ZeroDivisionError"):
                await committing
            with pytest.raises(ProducerError, match="ZeroDivisionError") as raised:
                await made.transactions.begin()
            assert raised.value.fatal

    @in_virtual_time
    async def test_in_the_next_transaction_they_are_added_anew(self) -> None:
        async with rig(version=1) as made:
            for _ in range(2):
                _ = made.append()
                assert made.drain() == []
                await made.answers()
                [batch] = made.drain()
                made.records.write([batch])
                batch.written()
                made.completion.complete(batch, 0)
                await made.answered(made.transactions.commit(None))
                await made.transactions.begin()
            assert made.coordinators.seen[1:] == [Api.ADD_PARTITIONS, Api.COMMIT] * 2


@pytest.mark.parametrize("version", [1, 2])
@in_virtual_time
async def test_a_producer_goes_on_as_another_process_without_asking(version: int) -> None:
    """InitProducerId would abort what that has left open."""
    made = TransactionsRig(version=2)
    await made.transactions.initialize(GoingOn(ProducerIdentity(70, 7), version))
    assert made.coordinators.seen == []
    assert made.manager.current == (70, 7)
    await made.transactions.begin()
    assert made.transactions.prepared()[1:4] == (70, 7, version)


@in_virtual_time
async def test_a_producer_takes_over_from_another_process_unless_somebody_else_has() -> None:
    made = TransactionsRig(version=2)
    task = asyncio.create_task(made.transactions.initialize(GoingOn(ProducerIdentity(70, 7), 2, anew=True)))
    asked = await made.asks()
    assert (asked.request.producer_id, asked.request.producer_epoch, asked.at_least) == (70, 7, 3)
    made.coordinators.answer()
    await task
    assert made.manager.current == (70, 8)
