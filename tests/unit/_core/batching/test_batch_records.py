from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.bulk import CallWaiters
from aioproducer._core.batching.waiters import (
    AwaitingWaiters,
    Delivered,
    Failure,
    FutureWaiters,
    Waiters,
    acknowledgement_on,
)
from aioproducer._core.records.columns import BATCH_OVERHEAD, RecordHeaders, record_size_bound
from aioproducer.errors import DeliveryTimeout
from aioproducer.testing.virtual_time import in_virtual_time
from aioproducer.types import RecordMetadata
from tests.cases import for_each
from tests.unit._core.batching.batch_rig import HEADERS, added, batch_in, call_of, mixed, send, send_many
from tests.unit.floor_rig import TOPIC

LATE = Failure(DeliveryTimeout, "late")


class TestRuns:
    @in_virtual_time
    async def test_consecutive_single_records_share_a_run(self) -> None:
        batch = batch_in()
        futures = [send(batch), send(batch)]
        [waiters] = batch.stretches
        assert isinstance(waiters, FutureWaiters)
        assert waiters == futures

    @in_virtual_time
    async def test_consecutive_awaited_records_share_one_stretch(self) -> None:
        batch = batch_in()
        kind = acknowledgement_on(asyncio.get_running_loop())
        batch.begin_stretch(kind)
        awaited = [added(kind, batch.last), added(kind, batch.last)]
        [waiters] = batch.stretches
        assert isinstance(waiters, AwaitingWaiters)
        assert waiters == awaited

    @in_virtual_time
    async def test_bulk_records_end_a_run_of_single_ones(self) -> None:
        batch, futures, _ = mixed()
        assert [len(waiters) for waiters in batch.stretches] == [2, 3, 1]
        assert batch.last == futures[2:]
        send_many(batch, call_of(1), 0)
        assert batch.kind is batch.plain_kind is None

    @in_virtual_time
    async def test_runs_of_chosen_records_keep_order_and_kind(self) -> None:
        batch, futures, call = mixed()
        single, bulk, last = batch.take_waiters([1, 2, 4, 5])
        assert isinstance(single, FutureWaiters)
        assert single == [futures[1]]
        assert isinstance(bulk, CallWaiters)
        assert (bulk.call, bulk.positions) == (call, [0, 2])
        assert isinstance(last, FutureWaiters)
        assert last == [futures[2]]

    @in_virtual_time
    async def test_take_waiters_leaves_out_runs_without_chosen_records(self) -> None:
        batch, futures, _ = mixed()
        [waiters] = batch.take_waiters([5])
        assert isinstance(waiters, FutureWaiters)
        assert waiters == [futures[2]]
        assert batch.take_waiters([]) == []

    @pytest.mark.parametrize(
        ("key", "headers", "is_plain"), [(None, (), True), (b"k", (), False), (None, HEADERS, False)]
    )
    @in_virtual_time
    async def test_stretch_is_plain_while_no_record_has_key_or_headers(
        self, key: bytes | None, headers: RecordHeaders, is_plain: bool
    ) -> None:
        batch, kind = batch_in(), acknowledgement_on(asyncio.get_running_loop())
        batch.columns.append(b"v", key, headers, 1)
        batch.begin_stretch(kind)
        assert batch.kind is kind
        assert batch.plain_kind is (kind if is_plain else None)


class TestResolving:
    @in_virtual_time
    async def test_single_run_gets_the_whole_answer(self) -> None:
        batch = batch_in()
        futures = [send(batch, timestamp_ms=10), send(batch, timestamp_ms=11)]
        batch.resolve(40, -1)
        assert [future.result() for future in futures] == [
            RecordMetadata(TOPIC, 3, 40, 10, log_append_time=False),
            RecordMetadata(TOPIC, 3, 41, 11, log_append_time=False),
        ]

    @in_virtual_time
    async def test_run_gets_its_own_part_of_the_answer(self) -> None:
        batch, futures, call = mixed()
        batch.resolve(40, -1)
        assert [(each.offset, each.timestamp_ms) for each in (f.result() for f in futures)] == [
            (40, 10),
            (41, 11),
            (45, 15),
        ]
        assert [call.result.offset(position) for position in range(3)] == [42, 43, 44]

    def test_run_gets_only_the_timestamps_of_its_own_records(self) -> None:
        class Told(FutureWaiters):
            def __len__(self) -> int:
                return 1

            def resolve(self, delivered: Delivered) -> None:
                told.append((delivered.base_offset, delivered.timestamps_ms))

        told: list[tuple[int, Sequence[int]]] = []
        batch = batch_in()
        for timestamp_ms in (10, 11):
            batch.columns.append(b"v", None, (), timestamp_ms)
            batch.add_waiters(Told([]))
        batch.resolve(40, -1)
        assert told == [(40, [10]), (41, [11])]

    @pytest.mark.parametrize("log_append_time_ms", [0, 99])
    @in_virtual_time
    async def test_log_append_time_replaces_the_timestamps_of_records(self, log_append_time_ms: int) -> None:
        batch, futures, call = mixed()
        batch.resolve(40, log_append_time_ms)
        bulk = [each for each in call.result if isinstance(each, RecordMetadata)]
        results = [future.result() for future in futures] + bulk
        assert len(results) == 6
        assert {(each.timestamp_ms, each.log_append_time) for each in results} == {(log_append_time_ms, True)}

    @in_virtual_time
    async def test_unknown_offset_is_unknown_for_every_record(self) -> None:
        batch, futures, call = mixed()
        batch.resolve(-1, -1)
        assert {future.result().offset for future in futures} == {-1}
        assert {call.result.offset(position) for position in range(3)} == {-1}


class TestWaiters:
    @in_virtual_time
    async def test_indices_of_returns_the_records_of_a_waiter(self) -> None:
        batch, futures, call = mixed()
        assert [batch.indices_of(future) for future in futures] == [[0], [1], [5]]
        assert batch.indices_of(call) == [2, 3, 4]
        assert batch.indices_of(futures[2])
        assert batch.indices_of(call)

    @in_virtual_time
    async def test_indices_of_is_empty_for_an_unknown_waiter(self) -> None:
        batch, _, _ = mixed()
        assert batch.indices_of(call_of(3)) == []
        assert not batch.indices_of(call_of(3))
        assert not batch_in().indices_of(call_of(3))

    @in_virtual_time
    async def test_batch_is_forsaken_once_all_its_waiters_have_failed(self) -> None:
        batch, futures, call = mixed()
        [bulk] = [each for each in batch.stretches if isinstance(each, CallWaiters)]
        everyone: list[Waiters] = [bulk, *(FutureWaiters([each]) for each in futures)]
        for waiters in everyone:
            assert not batch.all_waiters_expired
            waiters.fail(LATE)
        assert batch.all_waiters_expired
        batch.resolve(40, -1)
        assert list(call.result.failures) == [0, 1, 2]
        assert all(isinstance(each.exception(), DeliveryTimeout) for each in futures)


def withdraw(batch: Batch, indices: Sequence[int]) -> int:
    return batch.withdraw(indices, batch.columns.take(indices))


class TestWithdrawing:
    @in_virtual_time
    async def test_withdrawn_records_are_left_out_with_their_waiters(self) -> None:
        batch, futures, call = mixed()
        withdraw(batch, [1])
        withdraw(batch, [2, 3, 4])
        assert (len(batch), len(batch.columns.values)) == (2, 6)
        batch.leave_out_withdrawn()
        assert batch.columns.values == [b"zero", b"five"]
        assert batch.columns.timestamps == [10, 15]
        assert (batch.kind, batch.plain_kind, batch.withdrawn) == (None, None, None)
        batch.resolve(40, -1)
        assert [futures[0].result().offset, futures[2].result().offset] == [40, 41]
        assert not futures[1].done()
        assert not call.result.delivered

    @for_each("indices", [[0], [1], [2, 3, 4], [0, 1, 5], [0, 1, 2, 3, 4, 5]])
    @in_virtual_time
    async def test_size_is_that_of_a_batch_without_withdrawn_records(self, indices: list[int]) -> None:
        batch, _, _ = mixed()
        bulk = record_size_bound(b"many", None, HEADERS)
        single = [record_size_bound(value, None, ()) for value in (b"zero", b"five")]
        taken = [single[0], record_size_bound(b"one", b"key", ()), bulk, bulk, bulk, single[1]]
        assert batch.size == BATCH_OVERHEAD + sum(taken)
        assert withdraw(batch, indices) == sum(taken[index] for index in indices)
        expected = BATCH_OVERHEAD + sum(size for index, size in enumerate(taken) if index not in indices)
        assert batch.size == expected
        batch.repair()
        assert batch.size == batch.held == expected
        batch.leave_out_withdrawn()
        assert batch.size == expected

    @in_virtual_time
    async def test_repair_drops_records_without_a_waiter(self) -> None:
        batch, _, _ = mixed()
        before = batch.size
        batch.columns.append(b"interrupted", None, (), 16)
        batch.repair()
        assert (len(batch), batch.size, batch.held) == (6, before, before)

    @in_virtual_time
    async def test_withdraw_may_remove_all_records(self) -> None:
        batch, _, _ = mixed()
        withdraw(batch, range(6))
        assert len(batch) == 0
        batch.leave_out_withdrawn()
        assert (batch.stretches, batch.columns.values) == ([], [])

    @in_virtual_time
    async def test_record_appended_behind_a_withdrawn_one_finds_its_place(self) -> None:
        batch = batch_in()
        withdrawn, kept = send(batch), send(batch)
        withdraw(batch, [0])
        appended = send(batch)
        batch.leave_out_withdrawn()
        batch.resolve(40, -1)
        assert not withdrawn.done()
        assert [kept.result().offset, appended.result().offset] == [40, 41]
