from __future__ import annotations

import asyncio

import pytest

from aioproducer.batching.batch import Batch, RecordFuture
from aioproducer.batching.bulk import ColumnRun, SendManyCall
from aioproducer.batching.failure import Failure
from aioproducer.batching.queues import PartitionQueue
from aioproducer.batching.runs import FutureRun, Run
from aioproducer.batching.state import LEGAL, BatchState
from aioproducer.errors import DeliveryTimeout
from aioproducer.idempotence.identity import IdentityKeeper
from aioproducer.records.columns import RecordColumns
from aioproducer.records.sizes import BATCH_OVERHEAD, record_size_bound
from aioproducer.testing.virtual_time import in_virtual_time
from aioproducer.types import RecordMetadata
from tests.unit.workbench import TOPIC, batching_settings

LATE = Failure(DeliveryTimeout, "late")
HEADERS = (("trace", b"1"),)
TO: dict[BatchState, list[BatchState]] = {
    BatchState.OPEN: [],
    BatchState.SEALED: [BatchState.SEALED],
    BatchState.IN_FLIGHT: [BatchState.SEALED, BatchState.IN_FLIGHT],
    BatchState.BACKOFF: [BatchState.SEALED, BatchState.IN_FLIGHT, BatchState.BACKOFF],
    BatchState.ABANDONED: [BatchState.SEALED, BatchState.IN_FLIGHT, BatchState.ABANDONED],
    BatchState.DELIVERED: [BatchState.SEALED, BatchState.IN_FLIGHT, BatchState.DELIVERED],
    BatchState.SPLIT: [BatchState.SEALED, BatchState.IN_FLIGHT, BatchState.SPLIT],
    BatchState.FAILED: [BatchState.FAILED],
}
"""The shortest way to each state."""


def batch_in(state: BatchState = BatchState.OPEN) -> Batch:
    queue = PartitionQueue(TOPIC, 3, batching_settings(), IdentityKeeper())
    batch = Batch(queue, (5,), created_at=1.0, deadline=121.0)
    for step in TO[state]:
        batch.move(step)
    return batch


def send(
    batch: Batch, value: bytes = b"v", key: bytes | None = None, *, timestamp_ms: int = 1
) -> RecordFuture:
    """Append one record, as `send` does."""
    batch.columns.append(value, key, (), timestamp_ms)
    batch.size += record_size_bound(value, key, ())
    future: RecordFuture = asyncio.get_running_loop().create_future()
    batch.add_waiter(future)
    return future


def send_many(batch: Batch, call: SendManyCall, *positions: int, timestamp_ms: int = 1) -> None:
    """Append a record per position, as `send_many` does."""
    for _ in positions:
        batch.columns.append(b"many", None, HEADERS, timestamp_ms)
        batch.size += record_size_bound(b"many", None, HEADERS)
    batch.add_run(ColumnRun(call, positions))


def call_of(total: int) -> SendManyCall:
    return SendManyCall(TOPIC, total, asyncio.get_running_loop())


def mixed() -> tuple[Batch, list[RecordFuture], SendManyCall]:
    """Return a batch of six records in three runs (single 0, 1; bulk 2, 3, 4; single 5) and who waits."""
    batch, call = batch_in(), call_of(3)
    futures = [send(batch, b"zero", timestamp_ms=10), send(batch, b"one", b"key", timestamp_ms=11)]
    send_many(batch, call, 0, 1, 2, timestamp_ms=12)
    futures.append(send(batch, b"five", timestamp_ms=15))
    return batch, futures, call


def test_a_new_batch_is_open_empty_and_holds_the_memory_of_its_header() -> None:
    batch = batch_in()
    assert batch.state is BatchState.OPEN
    assert len(batch) == 0
    assert batch.size == BATCH_OVERHEAD
    assert batch.runs == []
    assert batch.stamp is None


def test_a_batch_may_begin_with_what_another_held() -> None:
    columns, runs = RecordColumns(), list[Run]([FutureRun([])])
    queue = batch_in().queue
    child = Batch(
        queue, (5, 0), created_at=1.0, deadline=2.0, columns=columns, runs=runs, state=BatchState.BACKOFF
    )
    assert child.columns is columns
    assert child.runs is runs
    assert child.state is BatchState.BACKOFF


@in_virtual_time
async def test_it_is_shown_by_partition_place_state_and_length() -> None:
    batch = batch_in()
    _ = send(batch)
    assert repr(batch) == "<Batch orders-3 (5,) OPEN records=1 stamp=None>"


@pytest.mark.parametrize("to", BatchState)
@pytest.mark.parametrize("state", BatchState)
def test_it_makes_legal_moves_only(state: BatchState, to: BatchState) -> None:
    batch = batch_in(state)
    if to in LEGAL[state]:
        batch.move(to)
        assert batch.state is to
    else:
        with pytest.raises(AssertionError, match=f"{state.name} -> {to.name}"):
            batch.move(to)
        assert batch.state is state


@pytest.mark.parametrize(
    ("uncertain", "written", "possibly"),
    [(False, False, False), (True, False, True), (False, True, True), (True, True, True)],
)
def test_what_is_written_or_was_uncertain_once_may_be_in_the_log(
    uncertain: bool, written: bool, possibly: bool
) -> None:
    batch = batch_in()
    batch.uncertain, batch.unanswered = uncertain, written
    assert batch.possibly_persisted is possibly


class TestRuns:
    @in_virtual_time
    async def test_consecutive_single_records_share_a_run(self) -> None:
        batch = batch_in()
        futures = [send(batch), send(batch)]
        [run] = batch.runs
        assert isinstance(run, FutureRun)
        assert run.waiters == futures

    @in_virtual_time
    async def test_bulk_records_end_a_run_of_single_ones(self) -> None:
        batch, futures, _ = mixed()
        assert [len(run) for run in batch.runs] == [2, 3, 1]
        assert batch.waiters == futures[2:]
        send_many(batch, call_of(1), 0)
        assert batch.waits is None

    @in_virtual_time
    async def test_runs_of_chosen_records_keep_order_and_kind(self) -> None:
        batch, futures, call = mixed()
        single, bulk, last = batch.take_runs([1, 2, 4, 5])
        assert isinstance(single, FutureRun)
        assert single.waiters == [futures[1]]
        assert isinstance(bulk, ColumnRun)
        assert (bulk.call, bulk.positions) == (call, [0, 2])
        assert isinstance(last, FutureRun)
        assert last.waiters == [futures[2]]

    @in_virtual_time
    async def test_a_run_without_chosen_records_is_left_out(self) -> None:
        batch, futures, _ = mixed()
        [run] = batch.take_runs([5])
        assert isinstance(run, FutureRun)
        assert run.waiters == [futures[2]]
        assert batch.take_runs([]) == []


class TestResolving:
    @in_virtual_time
    async def test_a_single_run_gets_the_whole_answer(self) -> None:
        batch = batch_in()
        futures = [send(batch, timestamp_ms=10), send(batch, timestamp_ms=11)]
        batch.resolve(40, -1)
        assert [future.result() for future in futures] == [
            RecordMetadata(TOPIC, 3, 40, 10, log_append_time=False),
            RecordMetadata(TOPIC, 3, 41, 11, log_append_time=False),
        ]

    @in_virtual_time
    async def test_each_run_gets_its_own_stretch_of_the_answer(self) -> None:
        batch, futures, call = mixed()
        batch.resolve(40, -1)
        assert [(each.offset, each.timestamp_ms) for each in (f.result() for f in futures)] == [
            (40, 10),
            (41, 11),
            (45, 15),
        ]
        assert [call.result.offset(position) for position in range(3)] == [42, 43, 44]

    @pytest.mark.parametrize("log_append_time_ms", [0, 99])
    @in_virtual_time
    async def test_the_time_of_the_log_takes_the_place_of_the_records_own(
        self, log_append_time_ms: int
    ) -> None:
        batch, futures, call = mixed()
        batch.resolve(40, log_append_time_ms)
        bulk = [each for each in call.result if isinstance(each, RecordMetadata)]
        results = [future.result() for future in futures] + bulk
        assert len(results) == 6
        assert {(each.timestamp_ms, each.log_append_time) for each in results} == {(log_append_time_ms, True)}

    @in_virtual_time
    async def test_an_unknown_offset_is_unknown_for_every_record(self) -> None:
        batch, futures, call = mixed()
        batch.resolve(-1, -1)
        assert {future.result().offset for future in futures} == {-1}
        assert {call.result.offset(position) for position in range(3)} == {-1}


class TestWaiters:
    @in_virtual_time
    async def test_it_knows_which_records_a_waiter_waits_for(self) -> None:
        batch, futures, call = mixed()
        assert [batch.indices_of(future) for future in futures] == [[0], [1], [5]]
        assert batch.indices_of(call) == [2, 3, 4]
        assert batch.holds(futures[2])
        assert batch.holds(call)

    @in_virtual_time
    async def test_it_holds_nothing_for_a_stranger(self) -> None:
        batch, _, _ = mixed()
        assert batch.indices_of(call_of(3)) == []
        assert not batch.holds(call_of(3))
        assert not batch_in().holds(call_of(3))

    @in_virtual_time
    async def test_a_detached_waiter_fails_alone_and_its_records_stay(self) -> None:
        batch, futures, call = mixed()
        size = batch.size
        batch.detach(call, LATE)
        batch.detach(futures[0], LATE)
        assert list(call.result.failures) == [0, 1, 2]
        assert isinstance(futures[0].exception(), DeliveryTimeout)
        assert (len(batch), batch.size) == (6, size)
        batch.resolve(40, -1)
        assert call.result.delivered == 0
        assert [future.result().offset for future in futures[1:]] == [41, 45]


class TestDropping:
    @in_virtual_time
    async def test_dropped_records_are_gone_with_their_runs_and_their_size(self) -> None:
        batch, futures, call = mixed()
        first, bulk = batch.drop([1, 3])
        assert isinstance(first, FutureRun)
        assert first.waiters == [futures[1]]
        assert isinstance(bulk, ColumnRun)
        assert bulk.positions == [1]
        assert batch.columns.values == [b"zero", b"many", b"many", b"five"]
        assert batch.columns.timestamps == [10, 12, 12, 15]
        batch.resolve(40, -1)
        assert [futures[0].result().offset, futures[2].result().offset] == [40, 43]
        assert not futures[1].done()
        bulk.fail(LATE)
        assert [call.result.offset(position) for position in (0, 2)] == [41, 42]

    @pytest.mark.parametrize("indices", [[0], [1], [2, 3, 4], [0, 1, 5], [0, 1, 2, 3, 4, 5]])
    @in_virtual_time
    async def test_its_size_is_that_of_a_batch_that_never_had_them(self, indices: list[int]) -> None:
        batch, _, _ = mixed()
        bulk = record_size_bound(b"many", None, HEADERS)
        single = [record_size_bound(value, None, ()) for value in (b"zero", b"five")]
        taken = [single[0], record_size_bound(b"one", b"key", ()), bulk, bulk, bulk, single[1]]
        assert batch.size == BATCH_OVERHEAD + sum(taken)
        batch.drop(indices)
        assert batch.size == BATCH_OVERHEAD + sum(
            size for index, size in enumerate(taken) if index not in indices
        )

    @in_virtual_time
    async def test_all_records_may_be_dropped(self) -> None:
        batch, _, _ = mixed()
        assert sum(map(len, batch.drop(range(6)))) == 6
        assert len(batch) == 0
        assert batch.runs == []

    @in_virtual_time
    async def test_what_is_appended_afterwards_finds_its_place(self) -> None:
        batch = batch_in()
        dropped, kept = send(batch), send(batch)
        batch.drop([0])
        appended = send(batch)
        batch.resolve(40, -1)
        assert not dropped.done()
        assert [kept.result().offset, appended.result().offset] == [40, 41]


class TestWaitingForTheOutcome:
    @pytest.mark.parametrize("state", [BatchState.DELIVERED, BatchState.FAILED, BatchState.ABANDONED])
    @in_virtual_time
    async def test_what_has_its_outcome_is_not_waited_for(self, state: BatchState) -> None:
        await batch_in(state).wait_resolved()  # waiting for ever would be a Deadlock in virtual time

    @pytest.mark.parametrize("to", [BatchState.DELIVERED, BatchState.FAILED, BatchState.ABANDONED])
    @in_virtual_time
    async def test_all_who_wait_go_on_with_the_outcome_and_not_before(self, to: BatchState) -> None:
        batch = batch_in(BatchState.IN_FLIGHT)
        waiting = [asyncio.create_task(batch.wait_resolved()) for _ in range(2)]
        await asyncio.sleep(0)
        batch.move(BatchState.BACKOFF)
        batch.move(BatchState.IN_FLIGHT)
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        batch.move(to)
        await asyncio.gather(*waiting)

    @in_virtual_time
    async def test_the_answer_to_an_abandoned_batch_is_no_second_outcome(self) -> None:
        batch = batch_in(BatchState.IN_FLIGHT)
        waiting = asyncio.create_task(batch.wait_resolved())
        await asyncio.sleep(0)
        batch.move(BatchState.ABANDONED)
        batch.move(BatchState.DELIVERED)
        await waiting

    @in_virtual_time
    async def test_a_split_batch_is_waited_for_until_its_successors_have_their_outcome(self) -> None:
        batch = batch_in(BatchState.IN_FLIGHT)
        first, second = batch_in(BatchState.IN_FLIGHT), batch_in(BatchState.IN_FLIGHT)
        waiting = asyncio.create_task(batch.wait_resolved())
        await asyncio.sleep(0)
        batch.successors = (first, second)
        batch.move(BatchState.SPLIT)
        second.move(BatchState.FAILED)
        done, _ = await asyncio.wait([waiting], timeout=1)
        assert not done
        first.move(BatchState.DELIVERED)
        await waiting

    @in_virtual_time
    async def test_who_stops_waiting_does_not_stop_the_others(self) -> None:
        batch = batch_in(BatchState.IN_FLIGHT)
        impatient, patient = (asyncio.create_task(batch.wait_resolved()) for _ in range(2))
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.wait([impatient])
        assert impatient.cancelled()
        batch.move(BatchState.DELIVERED)
        await patient
