"""The records of a transaction: settled, dropped or held, and the calls of the sender."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.transactions.transaction_manager import TransactionState as State
from aioproducer._core.transactions.transaction_records import HELD_S, STEP_S, TransactionRecords
from aioproducer.errors import (
    DeliveryTimeout,
    ProducerClosed,
    ProducerFenced,
    TopicAuthorizationFailed,
    TransactionAborted,
)
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit._core.transactions.transactions_rig import TransactionsRig, failed_of, rig
from tests.unit.floor_rig import TOPIC, settle


class TestLook:
    @in_virtual_time
    async def test_fail_unsendable_does_nothing_while_records_are_accepted(self) -> None:
        async with rig() as made:
            future = made.append()
            made.records.fail_unsendable()
            assert not future.done()
            made.manager.state = State.READY

    @in_virtual_time
    async def test_failure_fails_unsent_records_with_its_cause(self) -> None:
        async with rig() as made:
            batch, _ = made.sent_out()
            made.completion.reenqueue(batch, made.loop.time() + 10)
            out, in_flight = made.sent_out(partition=1)
            lingering = made.append()
            made.manager.failed(TopicAuthorizationFailed("not ours"))
            made.records.fail_unsendable()
            error = failed_of(lingering)
            assert isinstance(error, TopicAuthorizationFailed)
            assert str(error).startswith(
                "cannot send: the transaction of 'tx' has failed (not ours); abort it"
            )
            assert (error.abortable, error.fatal, error.possibly_persisted) == (True, False, False)
            assert isinstance(error.__cause__, TopicAuthorizationFailed)
            assert (batch.state, out.state) == (BatchState.BACKOFF, BatchState.IN_FLIGHT)
            assert not in_flight.done()

    @for_each("state", State)
    @in_virtual_time
    async def test_may_send_is_false_while_aborting_or_fatal(self, state: State) -> None:
        async with rig() as made:
            before, made.manager.state = made.manager.state, state
            assert made.records.may_send == (state not in {State.ABORTING, State.FATAL})
            made.manager.state = before

    @in_virtual_time
    async def test_abort_fails_all_records_except_those_in_flight(self) -> None:
        async with rig() as made:
            batch, retried = made.sent_out()
            made.completion.reenqueue(batch, made.loop.time() + 10)
            _, in_flight = made.sent_out(partition=1)
            lingering = made.append()
            made.manager.abort()
            made.records.fail_unsendable()
            for future, possibly in ((retried, True), (lingering, False)):
                error = failed_of(future)
                assert isinstance(error, TransactionAborted)
                assert (error.abortable, error.possibly_persisted) == (True, possibly)
            assert not in_flight.done()

    @in_virtual_time
    async def test_fatal_error_fails_all_records_except_those_in_flight(self) -> None:
        """The sender may run before all records have failed, and must write nothing more."""
        async with rig() as made:
            batch, retried = made.sent_out()
            made.completion.reenqueue(batch, made.loop.time())
            lingering = made.append()
            made.records.failed(ProducerFenced("gone"))
            made.records.fail_unsendable()
            made.accumulator.schedule.collect(made.loop.time(), hurry=True)
            assert made.drain() == []
            for future in (retried, lingering):
                error = failed_of(future)
                assert isinstance(error, ProducerFenced)
                assert (error.fatal, error.abortable) == (True, False)

    @in_virtual_time
    async def test_fail_unsendable_needs_end_through(self) -> None:
        made = TransactionsRig()
        records = TransactionRecords(
            made.manager, accumulator=made.accumulator, updater=made.updater.real, on_fatal=made.fatal.append
        )
        made.manager.state = State.ABORTING
        with pytest.raises(AssertionError, match="end_through"):
            records.fail_unsendable()


class TestWrite:
    @pytest.mark.parametrize(("version", "at_most"), [(0, 11), (1, 11), (2, None)])
    @in_virtual_time
    async def test_produce_version_matches_the_transaction_version(
        self, version: int, at_most: int | None
    ) -> None:
        async with rig(version=version) as made:
            batch = made.written()
            assert made.records.write([batch]) == at_most
            assert made.manager.attempted
            made.completion.complete(batch, 0)

    @pytest.mark.parametrize(
        "state", [State.UNINITIALIZED, State.INITIALIZING, State.READY], ids=lambda each: each.name
    )
    @in_virtual_time
    async def test_write_outside_a_transaction_raises(self, state: State) -> None:
        async with rig() as made:
            batch = made.written()
            made.manager.state = state
            with pytest.raises(AssertionError, match="outside a transaction"):
                made.records.write([batch])
            made.completion.complete(batch, 0)

    @in_virtual_time
    async def test_write_after_a_fatal_error_is_harmless(self) -> None:
        """An earlier request in the same turn of the sender may have caused the fatal error."""
        async with rig() as made:
            batch = made.written()
            made.records.failed(ProducerFenced("gone"))
            made.records.write([batch])
            made.completion.complete(batch, 0)


class TestSettled:
    @in_virtual_time
    async def test_settled_returns_without_records(self) -> None:
        async with rig() as made:
            assert made.records.are_settled
            await made.records.settled()

    @in_virtual_time
    async def test_settled_waits_for_the_last_answer(self) -> None:
        async with rig() as made:
            batches = [made.sent_out(partition=partition)[0] for partition in (0, 1)]
            waiting = asyncio.create_task(made.records.settled())
            for batch in batches:
                await settle()
                assert not waiting.done()
                assert not made.records.are_settled
                made.completion.complete(batch, 0)
            await waiting

    @in_virtual_time
    async def test_settled_waits_for_an_expired_batch(self) -> None:
        """The batch has expired in flight. Without its answer, its sequence may or may not be in the log."""
        async with rig() as made:
            batch, future = made.sent_out()
            waiting = asyncio.create_task(made.records.settled())
            made.completion.expire_in_flight(batch, Failure(DeliveryTimeout, "late", possibly_persisted=True))
            await settle()
            assert future.done()
            assert not waiting.done()
            made.completion.complete(batch, 0)
            made.accumulator.wake()  # as the sender is with each answer
            await waiting

    @in_virtual_time
    async def test_settled_waits_for_a_pending_call(self) -> None:
        async with rig() as made:
            topic = made.accumulator.topics[TOPIC]
            made.accumulator.enter("one", topic, 1)
            waiting = asyncio.create_task(made.records.settled())
            await settle()
            future = made.append()
            made.accumulator.leave("one", topic)
            await settle()
            assert not waiting.done()
            [batch] = made.drain()
            made.records.write([batch])
            batch.persistence.written()
            made.completion.complete(batch, 0)
            await waiting
            assert future.done()

    @in_virtual_time
    async def test_settled_does_not_wake_an_idle_sender(self) -> None:
        """Otherwise both would wake each other in a busy loop while a call waits for its topic."""
        async with rig() as made:
            topic = made.accumulator.topics[TOPIC]
            made.accumulator.enter("one", topic, 1)
            waiting = asyncio.create_task(made.records.settled())
            await settle()
            before = made.wakes
            for _ in range(3):
                made.records.fail_unsendable()
                await settle()
            assert made.wakes == before
            made.accumulator.leave("one", topic)
            await waiting

    @in_virtual_time
    async def test_cancelled_settled_leaves_no_waiter(self) -> None:
        async with rig() as made:
            batch, _ = made.sent_out()
            made.completion.expire_in_flight(batch, Failure(DeliveryTimeout, "late", possibly_persisted=True))
            waiting = asyncio.create_task(made.records.settled())
            await settle()
            waiting.cancel()
            await settle()
            made.records.fail_unsendable()
            assert not made.accumulator.flushing
            made.completion.complete(batch, 0)

    @in_virtual_time
    async def test_settled_waits_for_offsets(self) -> None:
        async with rig() as made:
            answered = asyncio.Event()

            async def commit_offsets() -> None:
                await answered.wait()

            made.records.take_offsets(asyncio.create_task(commit_offsets()))
            waiting = asyncio.create_task(made.records.settled())
            await settle()
            assert not made.records.are_settled
            assert not waiting.done()
            answered.set()
            await settle()
            assert waiting.done()


class TestSettleOf:
    @in_virtual_time
    async def test_settle_of_ends_with_the_end_of_the_transaction(self) -> None:
        async with rig() as made:
            began = made.loop.time()
            await made.records.settle_of(asyncio.create_task(asyncio.sleep(2)), 5)
            assert made.loop.time() == began + 2

    @in_virtual_time
    async def test_settle_of_ends_with_each_failure(self) -> None:
        async with rig() as made:
            ending = made.loop.create_future()
            for error in (DeliveryTimeout("late"), ProducerFenced("gone")):
                waiting = [asyncio.create_task(made.records.settle_of(ending, 5)) for _ in range(2)]
                await settle()
                made.records.failed(error)
                await settle()
                assert all(each.done() for each in waiting)

    @in_virtual_time
    async def test_settle_of_ends_with_the_first_of_two_failures(self) -> None:
        async with rig() as made:
            waiting = asyncio.create_task(made.records.settle_of(made.loop.create_future(), 5))
            await settle()
            made.records.failed(DeliveryTimeout("late"))
            made.records.failed(ProducerFenced("gone"))
            await settle()
            assert waiting.done()

    @in_virtual_time
    async def test_settle_of_ends_at_its_limit(self) -> None:
        async with rig() as made:
            began = made.loop.time()
            await made.records.settle_of(made.loop.create_future(), 5)
            assert made.loop.time() == began + 5


class TestDropped:
    @in_virtual_time
    async def test_dropped_fails_pending_calls(self) -> None:
        async with rig() as made:
            topic = made.accumulator.topics[TOPIC]
            asking = asyncio.create_task(made.updater.topic("other", made.loop.time() + 60))
            await settle()
            made.accumulator.enter("one", topic, 1)
            made.manager.abort()
            dropping = asyncio.create_task(made.records.dropped())
            await settle()
            assert isinstance(asking.exception(), TransactionAborted)
            closed_for = made.accumulator.closed_for
            assert closed_for is not None
            assert closed_for.kind is TransactionAborted
            assert not dropping.done()
            made.accumulator.leave("one", topic)
            await dropping
            assert made.accumulator.closed_for is None

    @in_virtual_time
    async def test_dropped_does_not_reopen_a_closed_producer(self) -> None:
        async with rig() as made:
            batch, _ = made.sent_out()
            made.manager.abort()
            dropping = asyncio.create_task(made.records.dropped())
            await settle()
            closed = Failure(ProducerClosed, "closed")
            made.accumulator.close(closed)
            made.completion.complete(batch, 0)
            await dropping
            assert made.accumulator.closed_for is closed


class TestEpochBump:
    @in_virtual_time
    async def test_failed_sequence_needs_a_bump(self) -> None:
        async with rig(version=1) as made:
            batch = made.written()
            assert not made.manager.needs_bump
            made.fail(batch, TopicAuthorizationFailed)
            assert made.manager.needs_bump

    @in_virtual_time
    async def test_unwritten_sequence_needs_a_bump(self) -> None:
        async with rig(version=1) as made:
            made.manager.added([made.queue(0).topic_partition])
            _ = made.append(b"value")
            [batch] = made.drain()
            made.completion.give_back(batch)
            made.fail(batch, TopicAuthorizationFailed)
            assert made.manager.needs_bump

    @in_virtual_time
    async def test_batch_without_a_sequence_needs_no_bump(self) -> None:
        async with rig(version=1) as made:
            _ = made.append(b"value")
            made.fail(made.queue(0).batches[0], TopicAuthorizationFailed)
            assert not made.manager.needs_bump


class TestMarkers:
    def held_once(self, made: TransactionsRig, produce_s: float = HELD_S) -> None:
        """Run two transactions; the first Produce of the second takes *produce_s*."""
        made.records.ended(0.001)
        batch = made.written()
        made.records.write([batch])
        made.records.answered(produce_s)
        made.completion.complete(batch, 0)
        made.records.ended(0.001)

    @pytest.mark.parametrize("version", [1, 2])
    @in_virtual_time
    async def test_transaction_held_by_markers_delays_the_next_in_v2(self, version: int) -> None:
        async with rig(version=version) as made:
            self.held_once(made)
            assert made.manager.held is (version == 2)

    @in_virtual_time
    async def test_transaction_that_was_not_held_does_not_delay_the_next(self) -> None:
        async with rig() as made:
            self.held_once(made, HELD_S / 2)
            assert not made.manager.held

    @in_virtual_time
    async def test_records_are_sent_when_the_pause_is_over(self) -> None:
        async with rig() as made:
            self.held_once(made)
            assert not made.append().done()
            assert made.drain() == []
            await asyncio.sleep(STEP_S * 1.01)  # no time has passed from the end to the first Produce
            [batch] = made.drain()
            made.completion.reenqueue(batch, made.loop.time())
            made.manager.abort()
            made.records.fail_unsendable()

    @in_virtual_time
    async def test_pause_of_each_held_transaction_ends(self) -> None:
        async with rig() as made:
            self.held_once(made)
            for _ in range(2):
                made.records.ended(0.001)
                assert made.manager.held
                await asyncio.sleep(1)
                assert not made.manager.held

    @in_virtual_time
    async def test_stopped_producer_stays_held(self) -> None:
        async with rig() as made:
            self.held_once(made)
            await made.transactions.stop()
            await asyncio.sleep(1)
            assert made.manager.held
