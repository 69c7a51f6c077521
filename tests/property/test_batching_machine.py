"""The batching floor against everything that users, time and brokers may do to it, in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, TypeVar

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.batching.waiters import Failure
from aioproducer._core.idempotence import MAX_EPOCH
from aioproducer._core.metadata.snapshot import NO_LEADER
from aioproducer._core.records.columns import RecordColumns, Records, open_records
from aioproducer.errors import DeliveryTimeout, ProducerError
from aioproducer.testing.virtual_time import VirtualTimeLoop
from tests.property import batching_checks as checks
from tests.property.batching_world import (
    BATCH_BYTES,
    DELIVERY_TIMEOUT_S,
    FOR_EVER,
    NODES,
    PARTITIONS,
    World,
    values_of,
)
from tests.property.model_broker import FORGOTTEN, HONEST, Fault
from tests.property.profiles import share

T = TypeVar("T")

INSTANT_S = 1e-6
"""Long enough for everything that is ready to run: virtual time only passes when nothing is."""
STEPS_TO_REST = 500
TIMED_OUT = Failure(DeliveryTimeout, "timeout_s is over")

node_ids = st.sampled_from(NODES)
partitions = st.integers(0, PARTITIONS - 1)
any_partition = st.none() | partitions
extras = st.sampled_from([0, 0, 0, 7, 40, 130])
nodes = st.sets(node_ids, min_size=1)
refused = st.sampled_from([2, 10, 10, 19, 29, 45, 47, 59, 56, 7, 3, -1, 999]).map(
    lambda code: Fault(code, appends=False)
)
lost_their_answer = st.sampled_from([6, 7, 20, -1, 999]).map(Fault)
blaming = st.frozensets(st.integers(0, 4), max_size=3).map(lambda records: Fault(87, False, records))
faults = st.lists(
    st.just(HONEST) | refused | lost_their_answer | blaming | st.just(FORGOTTEN), min_size=1, max_size=3
)


class BatchingMachine(RuleBasedStateMachine):
    idempotent: ClassVar[bool] = True
    batch_max_bytes: ClassVar[int] = BATCH_BYTES
    retries: ClassVar[int] = FOR_EVER
    records: ClassVar[Sequence[Callable[[], Records]]] = (open_records,)

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.tasks: list[asyncio.Task[None]] = []
        self.flushes: dict[asyncio.Task[None], set[bytes]] = {}
        self.closed = False
        self.world: World = self.inside(
            lambda: World(
                idempotent=self.idempotent,
                retries=self.retries,
                batch_max_bytes=self.batch_max_bytes,
                records=self.records[0],
            )
        )

    def inside(self, action: Callable[[], T], *, then_s: float = INSTANT_S) -> T:
        """Call *action* on the loop, and let *then_s* pass."""

        async def act() -> T:
            result = action()
            await asyncio.sleep(then_s)
            return result

        return self.loop.run_until_complete(act())

    def start(self, call: Coroutine[Any, Any, None]) -> None:
        self.inside(lambda: self.tasks.append(self.loop.create_task(call)))

    def pick(self, data: st.DataObject, choices: Sequence[T]) -> T:
        return choices[data.draw(st.integers(0, len(choices) - 1))]

    def waiting_futures(self) -> list[bytes]:
        return [value for value, future in self.world.futures.items() if not future.done()]

    def busy_nodes(self) -> list[int]:
        return [node_id for node_id in NODES if self.world.outstanding[node_id]]

    # Users.

    @initialize(epoch=st.sampled_from([None, 0, 0, MAX_EPOCH - 1]))
    def begin(self, epoch: int | None) -> None:
        if epoch is not None:
            self.inside(lambda: self.world.assign_identity(epoch))

    @precondition(lambda self: not self.closed)
    @rule(partition=any_partition, extra=st.lists(extras, min_size=1, max_size=4), keyed=st.booleans())
    def append(self, partition: int | None, extra: list[int], keyed: bool) -> None:
        key = b"k" if keyed else None
        for value in self.world.new_values(extra):
            if not self.inside(partial(self.world.offer, partition, value, key)):
                self.start(self.world.send(partition, value, key, self.loop.time() + 5))

    @precondition(lambda self: not self.closed)
    @rule(partition=any_partition, extra=st.lists(extras, max_size=12))
    def append_many(self, partition: int | None, extra: list[int]) -> None:
        values = self.world.new_values(extra)
        self.start(self.world.send_many(partition, values, self.loop.time() + 5))

    @precondition(lambda self: self.world.accumulator.unfinished)
    @rule()
    def flush(self) -> None:
        appended = set(self.world.batch_of)
        self.start(self.world.accumulator.flush())
        self.flushes[self.tasks[-1]] = appended

    @precondition(lambda self: any(not task.done() for task in self.tasks))
    @rule(data=st.data())
    def a_waiting_call_is_cancelled(self, data: st.DataObject) -> None:
        self.inside(self.pick(data, [task for task in self.tasks if not task.done()]).cancel)

    @precondition(lambda self: self.waiting_futures())
    @rule(data=st.data(), cancelled=st.booleans())
    def a_sender_gives_up(self, data: st.DataObject, cancelled: bool) -> None:
        value = self.pick(data, self.waiting_futures())
        batch, future = self.world.batch_of[value], self.world.futures[value]
        if cancelled:
            self.inside(future.cancel)
        else:
            fail, index = partial(self.world.receipts.expire, future), self.world.index_of[value]
            place = range(index, index + 1)
            self.inside(lambda: self.world.completion.expire_waiters(batch, fail, place, TIMED_OUT))
            assert future.done()

    @precondition(lambda self: self.world.calls)
    @rule(data=st.data())
    def a_call_times_out(self, data: st.DataObject) -> None:
        call = self.pick(data, list(self.world.calls))

        def expire() -> None:
            for waiters in tuple(call.live):
                assert waiters.batch is not None
                indices = range(waiters.start, waiters.start + len(waiters))
                self.world.completion.expire_waiters(waiters.batch, waiters.fail, indices, TIMED_OUT)

        self.inside(expire)

    @precondition(lambda self: not self.closed and self.world.accumulator.unfinished > 4)
    @rule()
    def close(self) -> None:
        self.closed = True
        self.inside(self.world.close)
        assert not self.waiting_futures()
        assert all(not call._outstanding for call in self.world.calls)

    # Time, and the sender.

    @rule(duration_s=st.sampled_from([0.1, 0.5, 0.5, 2.0, 20.0]))
    def time_passes(self, duration_s: float) -> None:
        self.inside(lambda: None, then_s=duration_s)

    @rule(connected=st.just(set(NODES)) | nodes, slow=st.sets(node_ids))
    def the_sender_has_a_turn(self, connected: set[int], slow: set[int]) -> None:
        self.inside(lambda: self.world.run_once(connected, slow))

    @rule(answers=st.just([HONEST]) | faults, lost=st.booleans())
    def the_first_of_all_requests_are_answered(self, answers: list[Fault], lost: bool) -> None:
        """The steps of other rules at once, as the shortest path to a fault."""
        self.inside(lambda: self.world.run_once(NODES))
        for node_id in self.busy_nodes():
            self.inside(partial(self.world.answer, node_id, answers))
            if lost:
                self.inside(partial(self.world.lose, node_id, arrived=1, unsent=1))

    @precondition(lambda self: self.world.preparing)
    @rule(connected=st.booleans())
    def a_request_is_prepared(self, connected: bool) -> None:
        node_id = next(iter(self.world.preparing))
        self.inside(lambda: self.world.prepared(node_id, connected=connected))

    # The cluster.

    @precondition(lambda self: self.busy_nodes())
    @rule(data=st.data(), answers=st.just([HONEST]) | faults, omits=st.sampled_from([None] * 5 + [0, 1]))
    def a_broker_answers(self, data: st.DataObject, answers: list[Fault], omits: int | None) -> None:
        node_id = self.pick(data, self.busy_nodes())
        self.inside(lambda: self.world.answer(node_id, answers, omits=omits))

    @precondition(lambda self: self.busy_nodes())
    @rule(data=st.data(), arrived=st.integers(0, 3), unsent=st.integers(0, 3))
    def a_connection_is_lost(self, data: st.DataObject, arrived: int, unsent: int) -> None:
        node_id = self.pick(data, self.busy_nodes())
        self.inside(lambda: self.world.lose(node_id, arrived=arrived, unsent=unsent))

    @precondition(lambda self: self.world.cluster.strays)
    @rule(data=st.data())
    def a_lost_request_arrives_late(self, data: st.DataObject) -> None:
        index = self.pick(data, range(len(self.world.cluster.strays)))
        self.inside(lambda: self.world.cluster.stray_arrives(index))

    @precondition(lambda self: self.idempotent)
    @rule(arrived=st.integers(0, 3))
    def the_brokers_are_started_again(self, arrived: int) -> None:
        self.inside(lambda: self.world.restart(arrived))

    @rule(
        moved=st.sets(partitions, min_size=1),
        leader=st.sampled_from([*NODES, NO_LEADER]),
        known=st.booleans(),
    )
    def leaders_move(self, moved: set[int], leader: int, known: bool) -> None:
        for partition in moved:
            self.world.cluster.leaders[partition] = leader
        if known:
            self.inside(self.world.refresh)

    @rule(partition=partitions, max_records=st.sampled_from([1, 2, 100]))
    def the_limit_of_a_topic_changes(self, partition: int, max_records: int) -> None:
        self.world.cluster.partitions[partition].max_records = max_records

    @precondition(lambda self: self.idempotent and self.world.identities.current is None)
    @rule(epoch=st.sampled_from([0, MAX_EPOCH - 1]))
    def a_producer_id_is_assigned(self, epoch: int) -> None:
        self.inside(lambda: self.world.assign_identity(epoch))

    # What has to hold.

    @invariant()
    def the_accounts_are_right(self) -> None:
        checks.check_accounts(self.world)
        checks.check_memory(self.world)

    @invariant()
    def the_queues_are_in_order(self) -> None:
        checks.check_queues(self.world)

    @invariant()
    def each_record_is_there_once_in_order_and_where_it_was_told(self) -> None:
        checks.check_records(self.world)

    @invariant()
    def the_sender_does_not_oversleep(self) -> None:
        checks.check_sleep(self.world)
        checks.check_that_nothing_is_stuck(self.world)

    @invariant()
    def a_flush_ends_with_the_last_outcome(self) -> None:
        for task, values in self.flushes.items():
            if task.done() and not task.cancelled():
                unresolved = self.world.accumulator.unresolved
                assert not any(values.intersection(values_of(batch)) for batch in unresolved)

    # Rest.

    def everything_comes_to_rest(self) -> None:
        """With honest brokers, everything is delivered that an earlier attempt leaves no doubt about."""
        world = self.world
        world.cluster.leaders = [
            NODES[index] if leader == NO_LEADER else leader
            for index, leader in enumerate(world.cluster.leaders)
        ]
        self.inside(world.refresh)
        certain = self.certain_batches() if self.retries == FOR_EVER else []
        for _ in range(STEPS_TO_REST):
            if not world.accumulator.unfinished:
                break
            self.take_a_step()
        assert not world.accumulator.unfinished, "something is stuck"
        for batch in certain:
            assert checks.is_delivered(batch), f"{batch!r} was not delivered"

    def certain_batches(self) -> list[Batch]:
        """Return the batches that have time left, in partitions where none has to fail."""
        soon = self.loop.time() + DELIVERY_TIMEOUT_S / 3
        return [
            batch
            for queue in self.world.queues
            if not any(
                self.cannot_be_recognised(each) or self.precedes_one_gone(queue, each)
                for each in checks.everywhere(queue)
            )
            for batch in checks.everywhere(queue)
            if batch.deadline > soon and batch.state is not BatchState.EXPIRED_IN_FLIGHT
        ]

    def cannot_be_recognised(self, batch: Batch) -> bool:
        """Whether *batch* may be in the log, will be sent in parts or is one, and the leader will refuse these: they fail."""
        partition = self.world.cluster.partitions[batch.topic_partition.partition]
        half = batch.persistence.half_of_possibly_persisted
        if not half and len(batch) <= partition.max_records:
            return False
        return self.world.has(batch) or (batch.persistence.possible and self.follows_a_gap(batch))

    def precedes_one_gone(self, queue: PartitionQueue, batch: Batch) -> bool:
        """True if *batch* may be in the log, and a leader that denies it may have lost a later batch."""
        return batch.persistence.possible and queue.newest_lost_in_doubt > batch.order

    def follows_a_gap(self, batch: Batch) -> bool:
        """Whether one before *batch* has failed, and is not in the log."""
        partition = batch.topic_partition.partition
        everywhere = checks.everywhere(self.world.queues[partition])
        held = [each.sequence for each in everywhere if each.sequence is not None]
        if not held or any(map(self.world.has, everywhere)):
            return False
        oldest = min(held, key=lambda sequence: sequence.base_sequence)
        return self.world.cluster.partitions[partition].lacks_what_is_before(oldest)

    def take_a_step(self) -> None:
        world = self.world
        if self.idempotent and world.identities.current is None:
            self.inside(lambda: world.assign_identity(0))
        while world.preparing:
            self.a_request_is_prepared(connected=True)
        leaders = set(world.cluster.leaders)
        self.inside(lambda: world.run_once(leaders))
        for node_id in self.busy_nodes():
            while world.outstanding[node_id]:
                self.inside(partial(world.answer, node_id, [HONEST]))
        if not world.rung:
            assert world.check_at < float("inf") or not world.accumulator.unfinished, (
                "no wake-up is scheduled"
            )
            self.inside(
                lambda: None,
                then_s=max(INSTANT_S, min(world.check_at, self.loop.time() + 5) - self.loop.time()),
            )

    def teardown(self) -> None:
        try:
            self.everything_comes_to_rest()
            while self.world.cluster.strays:
                self.inside(lambda: self.world.cluster.stray_arrives(0))
            checks.check_records(self.world)
            checks.check_end(self.world)
            assert all(task.done() for task in self.tasks)
            for task in self.tasks:
                with suppress(asyncio.CancelledError, ProducerError):
                    task.result()
        finally:
            for task in self.tasks:
                task.cancel()
            self.inside(lambda: None)
            self.loop.close()


class PlainBatchingMachine(BatchingMachine):
    idempotent = False


class ImpatientBatchingMachine(BatchingMachine):
    retries = 1


class GrowingBatchingMachine(BatchingMachine):
    batch_max_bytes = 2 * BATCH_BYTES


class ColumnsBatchingMachine(BatchingMachine):
    records = (RecordColumns,)


class GrowingColumnsBatchingMachine(GrowingBatchingMachine):
    records = (RecordColumns,)


TestIdempotent = BatchingMachine.TestCase
TestPlain = PlainBatchingMachine.TestCase
TestFewRetries = ImpatientBatchingMachine.TestCase
TestGrowing = GrowingBatchingMachine.TestCase
TestColumns = ColumnsBatchingMachine.TestCase
TestGrowingColumns = GrowingColumnsBatchingMachine.TestCase
TestIdempotent.settings = TestPlain.settings = TestFewRetries.settings = settings(
    max_examples=share(0.5), stateful_step_count=60
)
TestGrowing.settings = TestColumns.settings = TestGrowingColumns.settings = TestIdempotent.settings
