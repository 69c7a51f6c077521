"""Transactions of a producer: its identity, begin, and epoch bumps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import time_ns
from typing import Any

import pytest

from aioproducer import GroupMetadata, TopicPartition
from aioproducer._core.idempotence import ProducerIdentity
from aioproducer._core.transactions.transaction_manager import Api, TransactionState as State
from aioproducer._core.transactions.transaction_requests import ResumedTransaction
from aioproducer._core.transactions.transaction_types import OffsetAndMetadata
from aioproducer.errors import (
    CommitFailed,
    ProducerError,
    TopicAuthorizationFailed,
    TransactionStateError,
    TransactionTimeout,
)
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit._core.transactions.transactions_rig import TransactionsRig, refused, rig
from tests.unit.floor_rig import settle

OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(42)}


class TestInitialize:
    @pytest.mark.parametrize("version", [0, 1, 2])
    @in_virtual_time
    async def test_initialize_gets_a_producer_id(self, version: int) -> None:
        made = TransactionsRig(version=version)
        task = asyncio.create_task(made.transactions.initialize())
        assert (await made.answers()).fails_refused
        await task
        manager = made.manager
        assert (manager.state, manager.current, manager.version) == (
            State.READY,
            ProducerIdentity(7, 0),
            version,
        )

    @in_virtual_time
    async def test_initialize_fails_without_an_answer_in_time(self) -> None:
        made = TransactionsRig(max_block_s=5.0)
        made.coordinators.last_error = refused(14)
        with pytest.raises(TransactionTimeout) as raised:
            await made.transactions.initialize()
        assert str(raised.value) == (
            "cannot initialize within 5 s (timeout_s, or max_block_ms without);"
            " last error: CoordinatorLoadInProgress: refused with 14"
        )
        assert raised.value.__cause__ is made.coordinators.last_error
        await made.transactions.stop()
        assert made.coordinators.asked == []

    @pytest.mark.parametrize("timeout_s", [0.0, -1.0])
    @in_virtual_time
    async def test_initialize_without_time_left_fails_at_once(self, timeout_s: float) -> None:
        made = TransactionsRig()
        with pytest.raises(TransactionTimeout, match="cannot initialize within 0 s"):
            await made.transactions.initialize(timeout_s=timeout_s)
        assert made.loop.time() == 0

    @in_virtual_time
    async def test_initialize_raises_a_bug(self) -> None:
        made = TransactionsRig()
        task = asyncio.create_task(made.transactions.initialize())
        (await made.asks()).answered.set_exception(ZeroDivisionError("oops"))
        with pytest.raises(ProducerError, match=r"^aioproducer: initialize: ended because of a bug"):
            await task

    @in_virtual_time
    async def test_refused_initialize_is_fatal(self) -> None:
        made = TransactionsRig()
        task = asyncio.create_task(made.transactions.initialize())
        await made.answers(refused(53, fatal=True))
        with pytest.raises(ProducerError, match="refused with 53") as raised:
            await task
        assert raised.value.fatal
        assert made.manager.current is None

    @in_virtual_time
    async def test_cancelled_initialize_leaves_no_request(self) -> None:
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
    async def test_begin_sends_no_request(self) -> None:
        async with rig() as made:
            assert made.transactions.manager.can_be_aborted
            assert not made.transactions.has_failed
            assert made.coordinators.seen == [Api.INIT_PRODUCER_ID]
            assert made.transactions.number == 1

    @in_virtual_time
    async def test_begin_is_refused_while_a_transaction_is_open(self) -> None:
        async with rig() as made:
            with pytest.raises(
                TransactionStateError, match="cannot begin a transaction: a transaction is open"
            ):
                await made.transactions.begin()
            assert made.transactions.number == 1

    @in_virtual_time
    async def test_begin_waits_for_the_end_of_the_previous_transaction(self) -> None:
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
    async def test_begin_waits_at_most_max_block(self) -> None:
        async with rig(max_block_s=5.0) as made:
            made.manager.request_written()
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
    async def test_begin_raises_the_failure_of_an_unobserved_commit(self) -> None:
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
    @for_each("version", [1, 2])
    @for_each("commit", [True, False])
    @in_virtual_time
    async def test_empty_transaction_sends_no_request(self, commit: bool, version: int) -> None:
        async with rig(version=version) as made:
            for _ in range(2):
                await (made.transactions.commit(None) if commit else made.transactions.abort(None))
                assert made.manager.state is State.READY
                await made.transactions.begin()
            assert made.coordinators.seen == [Api.INIT_PRODUCER_ID]


class TestBump:
    @pytest.mark.parametrize("commit", [True, False])
    @in_virtual_time
    async def test_uncertain_request_bumps_the_epoch_before_the_next(self, commit: bool) -> None:
        async with rig(version=1) as made:
            made.manager.request_written()
            made.manager.request_epoch_bump()
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
    async def test_unsettled_sequence_bumps_the_epoch(self) -> None:
        async with rig(version=1) as made:
            batch = made.written()
            made.fail(batch, TopicAuthorizationFailed)
            await made.answered(made.transactions.abort(None))
            assert made.coordinators.seen[-2:] == [Api.ABORT, Api.INIT_PRODUCER_ID]
            assert made.manager.current == ProducerIdentity(7, 1)

    @pytest.mark.parametrize("version", [0, 1, 2])
    @in_virtual_time
    async def test_sequence_of_an_unwritten_batch_needs_an_epoch(self, version: int) -> None:
        """The partition takes nothing more. From version 2 on the abort of nothing gives the next epoch."""
        async with rig(version=version) as made:
            made.manager.request_epoch_bump()
            await made.answered(made.transactions.abort(None))
            assert made.coordinators.seen[1:] == [Api.ABORT if version == 2 else Api.INIT_PRODUCER_ID]
            assert made.manager.current == ProducerIdentity(7, 1)

    @in_virtual_time
    async def test_changed_transaction_version_bumps_the_epoch(self) -> None:
        async with rig(version=1) as made:
            made.manager.request_written()
            made.coordinators.transaction_version = 2
            await made.answered(made.transactions.commit(None))
            assert (made.manager.version, made.manager.current) == (2, ProducerIdentity(7, 1))
            await made.transactions.begin()
            made.manager.request_written()
            made.coordinators.transaction_version = 1
            await made.answered(made.transactions.commit(None))
            assert (made.manager.version, made.manager.current) == (1, ProducerIdentity(7, 2))

    @in_virtual_time
    async def test_empty_commit_gets_the_epoch_by_init_producer_id(self) -> None:
        async with rig() as made:
            made.manager.request_epoch_bump()
            await made.answered(made.transactions.commit(None))
            assert made.coordinators.seen[1:] == [Api.INIT_PRODUCER_ID]

    @pytest.mark.parametrize("commit", [True, False])
    @in_virtual_time
    async def test_refused_bump_is_fatal_after_a_successful_end(self, commit: bool) -> None:
        """The commit has succeeded; the abort raises the refusal."""
        async with rig(version=1) as made:
            made.manager.request_written()
            made.manager.request_epoch_bump()
            end = made.transactions.commit if commit else made.transactions.abort
            ending = asyncio.create_task(end(None))
            await made.answers()
            await made.answers(refused(7))
            if commit:
                await ending
            else:
                with pytest.raises(ProducerError, match=r"^refused with 7$"):
                    await ending
            assert made.manager.state is State.FATAL
            with pytest.raises(ProducerError, match="refused with 7") as raised:
                await made.transactions.begin()
            assert (raised.value.fatal, raised.value.abortable) == (True, False)


@for_each(
    ("call", "is_undecided"),
    [
        (lambda made: made.transactions.commit(None), False),
        (lambda made: made.transactions.abort(None), False),
        (lambda made: made.transactions.prepare(None), False),
        (lambda made: made.transactions.close(5), True),
    ],
)
@in_virtual_time
async def test_transaction_is_undecided_until_its_user_decides(
    call: Callable[[TransactionsRig], Coroutine[Any, Any, None]], is_undecided: bool
) -> None:
    async with rig() as made:
        made.manager.request_written()
        assert made.transactions.is_undecided
        await made.answered(call(made))
        assert made.transactions.is_undecided is is_undecided


@for_each(
    ("name", "call"),
    [
        ("send offsets", lambda made: made.transactions.send_offsets(OFFSETS, GroupMetadata("g"), None)),
        ("prepare", lambda made: made.transactions.prepare(None)),
        ("commit", lambda made: made.transactions.commit(None)),
        ("abort", lambda made: made.transactions.abort(None)),
    ],
)
@in_virtual_time
async def test_tasks_have_names(
    name: str, call: Callable[[TransactionsRig], Coroutine[Any, Any, None]]
) -> None:
    async with rig(version=1) as made:
        _ = made.append()
        assert made.drain() == []
        calling = asyncio.create_task(call(made))
        await settle()
        assert f"aioproducer: {name}" in {each.get_name() for each in asyncio.all_tasks()}
        calling.cancel()


@pytest.mark.parametrize("version", [1, 2])
@in_virtual_time
async def test_resumed_producer_sends_no_init_producer_id(version: int) -> None:
    """InitProducerId would abort the transaction that the other process left open."""
    made = TransactionsRig(version=2)
    await made.transactions.initialize(ResumedTransaction(ProducerIdentity(70, 7), version))
    assert made.coordinators.seen == []
    assert made.manager.current == (70, 7)
    assert not made.transactions.is_undecided
    assert made.transactions.prepared().began_at_ms == 0
    before_ms = time_ns() // 1_000_000
    await made.transactions.begin()
    prepared = made.transactions.prepared()
    assert prepared[1:4] == (70, 7, version)
    assert before_ms <= prepared.began_at_ms <= time_ns() // 1_000_000


@in_virtual_time
async def test_resumed_producer_takes_over_with_the_next_epoch() -> None:
    made = TransactionsRig(version=2)
    task = asyncio.create_task(
        made.transactions.initialize(ResumedTransaction(ProducerIdentity(70, 7), 2, next_epoch=True))
    )
    asked = await made.asks()
    assert (asked.request.producer_id, asked.request.producer_epoch, asked.at_least) == (70, 7, 3)
    made.coordinators.answer()
    await task
    assert made.manager.current == (70, 8)
