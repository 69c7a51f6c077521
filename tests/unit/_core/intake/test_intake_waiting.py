from __future__ import annotations

import asyncio
from math import inf

import pytest

from aioproducer._core.batching.batch import RecordFuture
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.intake.appending import PendingAppend, WaitingCall
from aioproducer.errors import (
    BufferTimeout,
    DeliveryTimeout,
    MetadataTimeout,
    ProducerClosed,
    SerializationError,
    TimeoutReason,
    TopicAuthorizationFailed,
)
from aioproducer.serializers import string_serializer
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.fakes import topic_info
from tests.unit._core.intake.intake_rig import NOW_MS, Rig, Spy
from tests.unit._core.intake.slow import work
from tests.unit.floor_rig import TOPIC, lost, settle


class TestWait:
    """Records that could not be appended at once."""

    @staticmethod
    def wait(rig: Rig, pending: PendingAppend, timeout_s: float | None = None) -> asyncio.Task[RecordFuture]:
        return asyncio.create_task(rig.intake.append_when_possible(pending, rig.loop.time(), timeout_s))

    @in_virtual_time
    async def test_record_is_appended_once_the_topic_is_known(self) -> None:
        rig = Rig(partitions=0, key_serializer=string_serializer)
        waiting = self.wait(rig, rig.pending(b"v", "key"))
        await settle()
        rig.updater.asked[0][2].set_result(topic_info(TOPIC, 1))
        assert not (await waiting).done()
        assert rig.records() == [(b"v", b"key", (), NOW_MS)]

    @in_virtual_time
    async def test_record_is_appended_once_there_is_memory(self) -> None:
        rig = Rig()
        rig.use_up_memory()
        waiting = self.wait(rig, rig.pending(b"v", b"k"))
        await settle()
        assert rig.queued == 0
        rig.accumulator.memory.give_back(1_000)
        _ = await waiting
        assert rig.records() == [(b"v", b"k", (), NOW_MS)]
        [batch] = rig.accumulator.unresolved
        assert rig.accumulator.memory.free == 1_000 - batch.size

    @in_virtual_time
    async def test_memory_that_is_there_by_then_is_not_waited_for(self) -> None:
        rig = Rig()
        waiting = [self.wait(rig, rig.intake.check(TOPIC, b"v", None, None, (), None)) for _ in range(2)]
        for each in waiting:
            _ = await each
        assert rig.queued == 2

    @in_virtual_time
    async def test_metadata_and_memory_share_one_deadline(self) -> None:
        rig = Rig(partitions=0, max_block_s=3.0)
        rig.use_up_memory()
        waiting = self.wait(rig, rig.pending())
        await asyncio.sleep(2)
        rig.updater.asked[0][2].set_result(topic_info(TOPIC, 1))
        with pytest.raises(BufferTimeout):
            _ = await waiting
        assert rig.loop.time() == 3

    @for_each(
        ("max_block_s", "delivery_timeout_s", "timeout_s"),
        [(2.0, 9.0, None), (9.0, 2.0, None), (9.0, 9.0, 2.0), (2.0, 9.0, 9.0)],
    )
    @in_virtual_time
    async def test_shortest_limit_ends_the_wait(
        self, max_block_s: float, delivery_timeout_s: float, timeout_s: float | None
    ) -> None:
        rig = Rig(max_block_s=max_block_s, delivery_timeout_s=delivery_timeout_s)
        rig.use_up_memory()
        with pytest.raises(BufferTimeout):
            _ = await self.wait(rig, rig.pending(), timeout_s)
        assert rig.loop.time() == 2

    @in_virtual_time
    async def test_wait_behind_an_unknown_topic_ends_at_max_block(self) -> None:
        rig = Rig(partitions=0, max_block_s=2.0)
        first, second = self.wait(rig, rig.pending()), self.wait(rig, rig.pending())
        with pytest.raises(MetadataTimeout):
            _ = await second
        assert rig.loop.time() == 2
        await asyncio.wait([first])
        assert isinstance(first.exception(), TimeoutError)

    @in_virtual_time
    async def test_record_of_an_unknown_topic_is_serialized_after_the_wait(self) -> None:
        spy = Spy()
        rig = Rig(partitions=0, interceptors=[spy], value_serializer=string_serializer)
        waiting = self.wait(rig, rig.pending(5))
        await settle()
        rig.updater.asked[0][2].set_result(topic_info(TOPIC, 1))
        with pytest.raises(SerializationError):
            _ = await waiting
        assert [type(error) for error, _ in spy.errors] == [SerializationError]

    @in_virtual_time
    async def test_interceptors_receive_a_metadata_error(self) -> None:
        spy = Spy()
        rig = Rig(partitions=0, interceptors=[spy])
        waiting = self.wait(rig, rig.pending())
        await settle()
        error = TopicAuthorizationFailed("no")
        rig.updater.asked[0][2].set_exception(error)
        with pytest.raises(TopicAuthorizationFailed):
            _ = await waiting
        assert spy.errors == [(error, (TOPIC, -1))]

    @in_virtual_time
    async def test_record_of_a_deleted_topic_waits_for_a_leader(self) -> None:
        rig = Rig()
        rig.use_up_memory()
        waiting = self.wait(rig, rig.pending())
        await settle()
        rig.accumulator.update_topic(TOPIC, ())
        rig.accumulator.memory.give_back(1_000)
        _ = await waiting
        assert rig.queue(0).leader == -1
        assert rig.queued == 1

    @in_virtual_time
    async def test_cancelled_wait_appends_nothing(self) -> None:
        rig = Rig()
        rig.use_up_memory()
        waiting = self.wait(rig, rig.pending())
        await settle()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert rig.queued == 0
        assert not rig.accumulator.memory.waiters
        rig.accumulator.memory.give_back(1_000)
        rig.put()

    @in_virtual_time
    async def test_record_is_not_appended_after_close(self) -> None:
        rig = Rig()
        rig.use_up_memory()
        waiting = self.wait(rig, rig.pending())
        await settle()
        rig.accumulator.close(Failure(ProducerClosed, "closed"))
        with pytest.raises(ProducerClosed):
            _ = await waiting
        assert rig.queued == 0


class TestServedByAnother:
    """An earlier call appends the record before the task of the later call runs again."""

    @staticmethod
    async def served(rig: Rig, *, after_s: float = 0.0) -> asyncio.Task[RecordFuture]:
        """Return a call that waited *after_s* behind another; its record is in a batch, its task has not run since."""
        pending = rig.intake.check(TOPIC, b"v", None, None, (), None)
        before = WaitingCall()
        before.partition = None
        before.begin(rig.accumulator.topics[TOPIC], rig.accumulator, rig.updater.real)
        await before.take_turn(1e9)
        waiting = asyncio.create_task(rig.intake.append_when_possible(pending, rig.loop.time(), None))
        await asyncio.sleep(after_s)
        await settle()
        before.end_turn()
        assert rig.queued == 1
        assert not waiting.done()
        return waiting

    @in_virtual_time
    async def test_served_call_returns_the_future_of_its_record(self) -> None:
        rig = Rig(delivery_timeout_s=10.0)
        future = await (await self.served(rig, after_s=4.0))
        [batch] = rig.drain()
        assert batch.deadline == 10, "it counts from the call"
        rig.completion.complete(batch, 5)
        assert future.result().offset == 5

    @in_virtual_time
    async def test_served_call_is_counted_once_by_close(self) -> None:
        rig = Rig()
        waiting = await self.served(rig)
        closed = Failure(ProducerClosed, "closed")
        arriving = rig.accumulator.arriving
        rig.accumulator.close(closed)
        assert arriving + rig.completion.fail_everything(closed) == 1
        assert isinstance((await waiting).exception(), ProducerClosed)

    @in_virtual_time
    async def test_completed_batch_leaves_no_deadline_for_a_served_call(self) -> None:
        rig = Rig(delivery_timeout_s=10.0)
        waiting = await self.served(rig, after_s=4.0)
        [batch] = rig.drain()
        rig.completion.complete(batch, 0)
        assert (await waiting).result().offset == 0
        assert rig.accumulator.deadlines.next_due() == inf

    @in_virtual_time
    async def test_deadline_counts_from_the_call_when_its_batch_is_split(self) -> None:
        rig = Rig(delivery_timeout_s=10.0)
        waiting = await self.served(rig, after_s=4.0)
        rig.put(b"later")
        assert [each.deadline for each in rig.accumulator.unresolved] == [10.0, 14.0]
        [batch] = rig.drain()
        assert batch.columns.values == [b"v"]
        _ = await waiting

    @in_virtual_time
    async def test_served_call_cancelled_before_it_runs_keeps_its_record(self) -> None:
        rig = Rig()
        waiting = await self.served(rig)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert rig.queued == 1
        assert len(rig.accumulator.pending_calls) == 0


class TestDeadlines:
    @in_virtual_time
    async def test_delivery_timeout_counts_from_the_call(self) -> None:
        rig = Rig(delivery_timeout_s=10.0)
        rig.use_up_memory()
        pending, called_at = rig.pending(), rig.loop.time()
        waiting = asyncio.create_task(rig.intake.append_when_possible(pending, called_at, None))
        await asyncio.sleep(4)
        rig.accumulator.memory.give_back(1_000)
        _ = await waiting
        [batch] = rig.accumulator.unresolved
        assert batch.deadline == 10

    @in_virtual_time
    async def test_shorter_timeout_fails_the_record_at_its_time(self) -> None:
        rig = Rig()
        await asyncio.sleep(1)
        future = await rig.intake.append_when_possible(
            rig.intake.check(TOPIC, b"v", None, None, (), None), 1.0, 2.5
        )
        await asyncio.sleep(2.4)
        assert not future.done()
        await asyncio.sleep(0.1)
        error = future.exception()
        assert isinstance(error, DeliveryTimeout)
        assert str(error) == "orders-0: delivery timed out: timeout_s=2.5 due_at=3.5: None"
        assert error.reason is TimeoutReason.NO_ANSWER
        assert not error.possibly_persisted
        assert rig.queued == 0

    @in_virtual_time
    async def test_timeout_error_includes_the_last_connection_error(self) -> None:
        rig = Rig()
        future = await rig.intake.append_when_possible(
            rig.intake.check(TOPIC, b"v", None, None, (), None), 0.0, 2.5
        )
        rig.unreachable = lost()
        await asyncio.sleep(2.5)
        error = future.exception()
        assert str(error).endswith(": b1:9092 (node 1): lost")
        assert error is not None
        assert error.__cause__ is rig.unreachable

    @in_virtual_time
    async def test_timeout_after_the_drain_fails_only_the_waiter(self) -> None:
        rig = Rig()
        future = await rig.intake.append_when_possible(
            rig.intake.check(TOPIC, b"v", None, None, (), None), 0.0, 2.0
        )
        [batch] = rig.drain()
        await asyncio.sleep(2)
        error = future.exception()
        assert isinstance(error, DeliveryTimeout)
        assert error.possibly_persisted
        assert list(rig.accumulator.unresolved) == [batch]

    @in_virtual_time
    async def test_timeout_of_delivery_timeout_or_more_needs_no_timer(self) -> None:
        rig = Rig(delivery_timeout_s=10.0)
        future = await rig.intake.append_when_possible(
            rig.intake.check(TOPIC, b"v", None, None, (), None), 0.0, 10.0
        )
        await asyncio.sleep(11)
        assert not future.done(), "the sender would have expired it"

    @in_virtual_time
    async def test_outcome_cancels_the_timer(self) -> None:
        rig = Rig()
        future = await rig.intake.append_when_possible(
            rig.intake.check(TOPIC, b"v", None, None, (), None), 0.0, 2.0
        )
        [batch] = rig.drain()
        rig.completion.complete(batch, 5)
        await asyncio.sleep(3)
        assert future.result().offset == 5
        assert rig.witness.failures == []

    @in_virtual_time
    async def test_record_delivered_just_before_its_timeout_counts(self) -> None:
        rig = Rig()
        future = await rig.intake.append_when_possible(
            rig.intake.check(TOPIC, b"v", None, None, (), None), 0.0, 2.0
        )
        [batch] = rig.drain()
        rig.loop.call_at(1.0, rig.completion.complete, batch, 5)
        wakes = rig.wakes
        work(3.0)  # both timers are due in the next iteration of the event loop
        await settle()
        assert future.result().offset == 5
        assert (rig.wakes, rig.witness.failures) == (wakes, [])
