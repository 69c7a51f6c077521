"""Prepare, and the end of the producer."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import PreparedTransaction
from aioproducer._core.transactions.transaction_manager import Api, TransactionState as State
from aioproducer.errors import (
    CommitFailed,
    ProducerClosed,
    ProducerFenced,
    TopicAuthorizationFailed,
    TransactionOutcomeUnknown,
    TransactionStateError,
    TransactionTimeout,
)
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit._core.transactions.transactions_rig import refused, rig
from tests.unit.floor_rig import settle


class TestPrepare:
    @for_each(("version", "two_phase_commit"), [(0, False), (1, False), (2, False), (2, True)])
    @in_virtual_time
    async def test_prepare_waits_for_all_acknowledgements(self, version: int, two_phase_commit: bool) -> None:
        async with rig(version=version, two_phase_commit=two_phase_commit, timeout_ms=5_000) as made:
            batch = made.written()
            preparing = asyncio.create_task(made.transactions.prepare(None))
            await settle()
            assert not preparing.done()
            made.completion.complete(batch, 0)
            await preparing
            prepared = made.transactions.prepared()
            assert prepared == PreparedTransaction(
                "tx", 7, 0, max(version, 1), prepared.began_at_ms, -1 if two_phase_commit else 5_000
            )
            assert isinstance(prepared.began_at_ms, int)
            assert made.transactions.manager.can_be_aborted
            await made.transactions.prepare(None)
            await made.answered(made.transactions.commit(None))
            assert made.manager.state is State.READY

    @pytest.mark.parametrize("commit", [True, False])
    @in_virtual_time
    async def test_prepared_transaction_may_be_ended_by_its_producer(self, commit: bool) -> None:
        async with rig() as made:
            made.manager.request_written()
            await made.transactions.prepare(None)
            await made.answered(made.transactions.commit(None) if commit else made.transactions.abort(None))
            assert made.coordinators.seen[-1] is (Api.COMMIT if commit else Api.ABORT)

    @in_virtual_time
    async def test_commit_of_a_prepared_transaction_is_never_given_up(self) -> None:
        """Another process may end the transaction."""
        async with rig() as made:
            made.manager.request_written()
            await made.transactions.prepare(None)
            made.coordinators.reachable = False
            with pytest.raises(TransactionOutcomeUnknown, match=r"^commit: no answer"):
                await made.transactions.commit(5)
            await made.answered(made.transactions.commit(5))
            assert made.manager.state is State.READY

    @in_virtual_time
    async def test_concurrent_prepares_wait_for_the_same_records(self) -> None:
        async with rig() as made:
            batch = made.written()
            both = [asyncio.create_task(made.transactions.prepare(None)) for _ in range(2)]
            await settle()
            assert [each.done() for each in both] == [False, False]
            made.completion.complete(batch, 0)
            await asyncio.gather(*both)
            assert made.manager.state is State.PREPARED

    @in_virtual_time
    async def test_prepare_raises_the_failure_of_a_record(self) -> None:
        async with rig() as made:
            batch = made.written()
            preparing = asyncio.create_task(made.transactions.prepare(None))
            await settle()
            made.fail(batch, TopicAuthorizationFailed)
            with pytest.raises(CommitFailed, match="TopicAuthorizationFailed"):
                await preparing
            assert made.transactions.has_failed

    @in_virtual_time
    async def test_prepare_fails_the_transaction_at_its_timeout(self) -> None:
        async with rig() as made:
            made.written()
            made.coordinators.last_error = refused(7)
            with pytest.raises(TransactionTimeout, match=r"^cannot prepare within 5 s .*: refused with 7$"):
                await made.transactions.prepare(5)
            assert made.transactions.has_failed

    @in_virtual_time
    async def test_cancelled_prepare_continues_and_may_be_repeated(self) -> None:
        async with rig() as made:
            batch = made.written()
            preparing = asyncio.create_task(made.transactions.prepare(None))
            await settle()
            preparing.cancel()
            await settle()
            states = [made.manager.state]
            made.completion.complete(batch, 0)
            await settle()
            states.append(made.manager.state)
            assert states == [State.PREPARING, State.PREPARED]
            await made.transactions.prepare(None)

    @pytest.mark.parametrize("commit", [True, False])
    @in_virtual_time
    async def test_transaction_can_be_ended_after_a_cancelled_prepare(self, commit: bool) -> None:
        async with rig() as made:
            batch = made.written()
            preparing = asyncio.create_task(made.transactions.prepare(None))
            await settle()
            preparing.cancel()
            await settle()
            ending = asyncio.create_task(
                made.transactions.commit(None) if commit else made.transactions.abort(None)
            )
            await settle()
            made.completion.complete(batch, 0)
            await made.answers()
            await ending
            assert made.manager.state is State.READY

    @pytest.mark.parametrize("commit", [True, False])
    @in_virtual_time
    async def test_prepare_raises_when_another_task_ends_the_transaction(self, commit: bool) -> None:
        async with rig() as made:
            batch = made.written()
            preparing = asyncio.create_task(made.transactions.prepare(5))
            await settle()
            ending = asyncio.create_task(
                made.transactions.commit(None) if commit else made.transactions.abort(None)
            )
            await settle()
            made.completion.complete(batch, 0)
            with pytest.raises(TransactionStateError, match=r"cannot prepare: (commit|abort) was called"):
                await preparing
            await made.answers()
            await ending

    @in_virtual_time
    async def test_prepare_during_a_commit_does_not_change_it(self) -> None:
        async with rig() as made:
            batch = made.written()
            preparing = asyncio.create_task(made.transactions.prepare(5))
            await settle()
            committing = asyncio.create_task(made.transactions.commit(None))
            with pytest.raises(TransactionStateError, match="cannot prepare: commit was called"):
                await preparing
            assert made.manager.state is State.COMMITTING
            made.completion.complete(batch, 0)
            await made.answers()
            await committing


class TestClose:
    @in_virtual_time
    async def test_close_aborts_an_open_transaction(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            closing = asyncio.create_task(made.transactions.close(5))
            assert (await made.answers()).api is Api.ABORT
            await closing
            assert made.manager.state is State.READY

    @in_virtual_time
    async def test_close_aborts_a_failed_transaction(self) -> None:
        async with rig() as made:
            batch = made.written()
            made.fail(batch, TopicAuthorizationFailed)
            closing = asyncio.create_task(made.transactions.close(5))
            assert (await made.answers()).api is Api.ABORT
            await closing

    @in_virtual_time
    async def test_close_without_an_answer_ends_in_time(self, caplog: pytest.LogCaptureFixture) -> None:
        async with rig() as made:
            made.manager.request_written()
            began_at = made.loop.time()
            await made.transactions.close(5)
            assert made.loop.time() - began_at == 5
            [line] = [each.getMessage() for each in caplog.records]
            assert line.startswith(
                'transaction.left_open transactional_id=tx error="TransactionOutcomeUnknown: abort: no answer'
            )

    @in_virtual_time
    async def test_close_during_an_abort_ends_in_time(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            aborting = asyncio.create_task(made.transactions.abort(None))
            await asyncio.sleep(10)
            await made.transactions.close(5)
            assert made.loop.time() == 15
            aborting.cancel()

    @pytest.mark.parametrize("state", [State.PREPARING, State.PREPARED], ids=lambda each: each.name)
    @in_virtual_time
    async def test_close_leaves_a_prepared_transaction_open(self, state: State) -> None:
        async with rig() as made:
            batch = made.written()
            preparing = asyncio.create_task(made.transactions.prepare(None))
            await settle()
            if state is State.PREPARED:
                made.completion.complete(batch, 0)
                await preparing
            await made.transactions.close(5)
            assert made.manager.state is state
            preparing.cancel()

    @in_virtual_time
    async def test_close_waits_for_a_commit(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            closing = asyncio.create_task(made.transactions.close(5))
            await made.answers()
            await asyncio.gather(committing, closing)
            assert made.coordinators.seen[1:] == [Api.COMMIT]

    @in_virtual_time
    async def test_close_does_not_abort_an_unanswered_commit(self) -> None:
        async with rig() as made:
            made.manager.request_written()
            committing = asyncio.create_task(made.transactions.commit(None))
            await settle()
            await made.transactions.close(5)
            assert made.coordinators.seen[1:] == [Api.COMMIT]
            assert made.manager.state is State.COMMITTING
            await made.transactions.stop()
            with pytest.raises(TransactionOutcomeUnknown, match="closed before the coordinator") as raised:
                await committing
            assert isinstance(raised.value.__cause__, ProducerClosed)

    @in_virtual_time
    async def test_close_without_a_transaction_sends_no_request(self) -> None:
        async with rig() as made:
            await made.transactions.commit(None)
            await made.transactions.close(5)
            assert made.coordinators.seen == [Api.INIT_PRODUCER_ID]

    @in_virtual_time
    async def test_close_after_a_fatal_error_sends_no_request(self) -> None:
        async with rig() as made:
            made.records.failed(ProducerFenced("gone"))
            await made.transactions.close(5)
            assert made.coordinators.seen == [Api.INIT_PRODUCER_ID]
