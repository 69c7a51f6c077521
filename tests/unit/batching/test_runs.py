from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from aioproducer.batching.failure import Failure
from aioproducer.batching.runs import ColumnRun, Delivered, FutureRun, SendManyCall
from aioproducer.errors import DeliveryTimeout
from aioproducer.testing.virtual_time import in_virtual_time
from aioproducer.types import RecordMetadata

TOPIC = "orders"
LATE = Failure(DeliveryTimeout, "late", possibly_persisted=True)

Futures = list[asyncio.Future[RecordMetadata]]


def delivered(*timestamps_ms: int, base_offset: int = 40, log_append_time: bool = False) -> Delivered:
    return Delivered(TOPIC, 3, base_offset, timestamps_ms, log_append_time)


def futures(count: int) -> Futures:
    loop = asyncio.get_running_loop()
    return [loop.create_future() for _ in range(count)]


def send_many(total: int) -> SendManyCall:
    return SendManyCall(TOPIC, total, asyncio.get_running_loop())


class TestDelivered:
    def test_a_slice_begins_at_the_offset_and_times_of_its_first_record(self) -> None:
        whole = delivered(1, 2, 3, 4, log_append_time=True)
        assert whole.slice(1, 3) == delivered(2, 3, base_offset=41, log_append_time=True)

    def test_offset_zero_is_known(self) -> None:
        assert delivered(1, 2, base_offset=0).slice(1, 2).base_offset == 1

    def test_an_unknown_offset_stays_unknown(self) -> None:
        assert delivered(1, 2, base_offset=-1).slice(1, 2) == delivered(2, base_offset=-1)


class TestFutureRun:
    @in_virtual_time
    async def test_each_sender_learns_where_its_record_is(self) -> None:
        senders = futures(3)
        FutureRun(senders).deliver(delivered(7, 8, 9, log_append_time=True))
        results = [sender.result() for sender in senders]
        assert results == [
            RecordMetadata(TOPIC, 3, 40 + index, 7 + index, log_append_time=True) for index in range(3)
        ]
        assert {type(result) for result in results} == {RecordMetadata}

    @pytest.mark.parametrize(("base_offset", "offsets"), [(0, [0, 1]), (-1, [-1, -1])])
    @in_virtual_time
    async def test_offsets_count_from_the_first_unless_it_is_unknown(
        self, base_offset: int, offsets: list[int]
    ) -> None:
        senders = futures(2)
        FutureRun(senders).deliver(delivered(7, 8, base_offset=base_offset))
        assert [sender.result().offset for sender in senders] == offsets

    @pytest.mark.parametrize("cancelled", [{0}, {1, 2}, {4}, {0, 2, 4}, {0, 1, 2, 3, 4}])
    @in_virtual_time
    async def test_cancelled_senders_are_passed_over_and_the_others_get_their_own_offset(
        self, cancelled: set[int]
    ) -> None:
        senders = futures(5)
        for index in cancelled:
            senders[index].cancel()
        FutureRun(senders).deliver(delivered(1, 2, 3, 4, 5))
        assert {index for index, sender in enumerate(senders) if sender.cancelled()} == cancelled
        for index in set(range(5)) - cancelled:
            assert senders[index].result() == RecordMetadata(
                TOPIC, 3, 40 + index, 1 + index, log_append_time=False
            )

    @in_virtual_time
    async def test_each_sender_fails_with_an_error_of_its_own(self) -> None:
        senders = futures(2)
        FutureRun(senders).fail(LATE)
        one, other = (sender.exception() for sender in senders)
        assert isinstance(one, DeliveryTimeout)
        assert isinstance(other, DeliveryTimeout)
        assert one.possibly_persisted
        assert one is not other

    @in_virtual_time
    async def test_failing_passes_over_who_has_an_outcome(self) -> None:
        cancelled, failed = senders = futures(2)
        cancelled.cancel()
        FutureRun(senders).fail(LATE)
        assert cancelled.cancelled()
        assert isinstance(failed.exception(), DeliveryTimeout)

    @in_virtual_time
    async def test_a_failure_nobody_awaits_is_not_complained_about(self) -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        FutureRun(futures(1)).fail(LATE)
        gc.collect()
        assert not complaints

    @in_virtual_time
    async def test_chosen_records_make_a_run_of_their_own(self) -> None:
        first, _, third = senders = futures(3)
        part = FutureRun(senders).take([0, 2])
        assert part.waiters == [first, third]
        assert len(part) == 2
        assert len(FutureRun(senders)) == 3

    @in_virtual_time
    async def test_it_knows_which_record_a_sender_waits_for(self) -> None:
        run = FutureRun(futures(3))
        assert list(run.indices_of(run.waiters[1])) == [1]
        assert not run.indices_of(*futures(1))
        assert not run.indices_of(send_many(1))

    @in_virtual_time
    async def test_a_detached_sender_fails_alone_and_hears_of_nothing_later(self) -> None:
        leaving, staying = senders = futures(2)
        run = FutureRun(senders)
        run.detach(leaving, LATE)
        assert isinstance(leaving.exception(), DeliveryTimeout)
        assert not staying.done()
        run.deliver(delivered(1, 2))
        assert isinstance(leaving.exception(), DeliveryTimeout)
        assert staying.result().offset == 41

    @in_virtual_time
    async def test_detaching_somebody_else_changes_nothing(self) -> None:
        run = FutureRun(futures(1))
        (stranger,) = futures(1)
        run.detach(stranger, LATE)
        run.detach(send_many(1), LATE)
        assert not run.waiters[0].done()
        assert not stranger.done()


class TestSendManyCall:
    @in_virtual_time
    async def test_a_call_without_records_waits_for_nothing(self) -> None:
        call = send_many(0)
        await asyncio.wait_for(call.wait(), timeout=1)
        assert len(call.result) == 0

    @in_virtual_time
    async def test_it_waits_until_every_record_has_its_outcome(self) -> None:
        call = send_many(3)
        waiting = asyncio.create_task(call.wait())
        ColumnRun(call, [0, 2]).deliver(delivered(7, 9))
        await asyncio.sleep(0)
        assert not waiting.done()
        call.failed([1], LATE)
        await waiting
        first, second, third = call.result
        assert first == RecordMetadata(TOPIC, 3, 40, 7, log_append_time=False)
        assert isinstance(second, DeliveryTimeout)
        assert third == RecordMetadata(TOPIC, 3, 41, 9, log_append_time=False)

    @in_virtual_time
    async def test_each_failed_record_has_an_error_of_its_own(self) -> None:
        call = send_many(2)
        call.failed([0, 1], LATE)
        one, other = call.result.failures.values()
        assert one is not other
        assert one.possibly_persisted

    @in_virtual_time
    async def test_nothing_may_follow_the_last_outcome(self) -> None:
        call = send_many(1)
        call.failed([0], LATE)
        call.failed([], LATE)
        await call.wait()
        assert list(call.result.failures) == [0]

    @in_virtual_time
    async def test_who_stops_waiting_does_not_stop_the_call(self) -> None:
        call = send_many(1)
        impatient, patient = asyncio.create_task(call.wait()), asyncio.create_task(call.wait())
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.wait([impatient])
        assert impatient.cancelled()
        assert not patient.done()
        call.failed([0], LATE)
        await patient


class TestColumnRun:
    @in_virtual_time
    async def test_an_answer_is_added_to_the_result_of_its_call(self) -> None:
        call = send_many(9)
        run = ColumnRun(call, range(4, 6))
        assert len(run) == 2
        run.deliver(delivered(7, 8, log_append_time=True))
        assert call.result.delivered == 2
        assert [call.result.offset(position) for position in (4, 5)] == [40, 41]
        assert call.result.partition(4) == 3
        assert list(call.result)[5] == RecordMetadata(TOPIC, 3, 41, 8, log_append_time=True)

    @in_virtual_time
    async def test_a_failure_is_that_of_all_its_positions(self) -> None:
        call = send_many(9)
        ColumnRun(call, [4, 7]).fail(LATE)
        assert list(call.result.failures) == [4, 7]

    @in_virtual_time
    async def test_chosen_records_make_a_run_of_the_same_call(self) -> None:
        call = send_many(9)
        part = ColumnRun(call, range(4, 8)).take([0, 3])
        assert part.call is call
        assert part.positions == [4, 7]

    @in_virtual_time
    async def test_its_call_waits_for_all_of_its_records_and_nobody_else_for_any(self) -> None:
        call = send_many(9)
        run = ColumnRun(call, [4, 7])
        assert list(run.indices_of(call)) == [0, 1]
        assert not run.indices_of(send_many(9))
        assert not run.indices_of(*futures(1))

    @pytest.mark.parametrize("later", ["delivered", "failed"])
    @in_virtual_time
    async def test_a_detached_call_fails_and_hears_of_nothing_later(self, later: str) -> None:
        call = send_many(2)
        run = ColumnRun(call, [0, 1])
        run.detach(call, LATE)
        await call.wait()
        failures = dict(call.result.failures)
        assert list(failures) == [0, 1]
        if later == "delivered":
            run.deliver(delivered(7, 8))
        else:
            run.take([0]).fail(LATE)
        assert call.result.failures == failures
        assert call.result.delivered == 0
        assert not run.indices_of(call)

    @in_virtual_time
    async def test_detaching_somebody_else_changes_nothing(self) -> None:
        call, stranger = send_many(1), send_many(1)
        run = ColumnRun(call, [0])
        run.detach(stranger, LATE)
        assert run.call is call
        assert not call.result.failures
        assert not stranger.result.failures
