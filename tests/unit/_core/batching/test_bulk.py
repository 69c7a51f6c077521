from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.batching.bulk import CallWaiters, SendManyCall
from aioproducer._core.batching.waiters import Delivered, Failure
from aioproducer.errors import DeliveryTimeout
from aioproducer.testing.virtual_time import in_virtual_time
from aioproducer.types import RecordMetadata
from tests.unit._core.batching.batch_rig import batch_in, mixed

TOPIC = "orders"
LATE = Failure(DeliveryTimeout, "late", possibly_persisted=True)


def delivered(*timestamps_ms: int, log_append_time: bool = False) -> Delivered:
    return Delivered(TOPIC, 3, 40, timestamps_ms, log_append_time)


def send_many(total: int) -> SendManyCall:
    return SendManyCall(TOPIC, total, asyncio.get_running_loop())


class TestSendManyCall:
    @in_virtual_time
    async def test_call_without_records_returns_immediately(self) -> None:
        call = send_many(0)
        await asyncio.wait_for(call.wait(), timeout=1)
        assert len(call.result) == 0

    @in_virtual_time
    async def test_call_waits_until_every_record_has_its_outcome(self) -> None:
        call = send_many(3)
        waiting = asyncio.create_task(call.wait())
        CallWaiters(call, [0, 2]).resolve(delivered(7, 9))
        await asyncio.sleep(0)
        assert not waiting.done()
        call.failed([1], LATE)
        await waiting
        first, second, third = call.result
        assert first == RecordMetadata(TOPIC, 3, 40, 7, log_append_time=False)
        assert isinstance(second, DeliveryTimeout)
        assert third == RecordMetadata(TOPIC, 3, 41, 9, log_append_time=False)

    @in_virtual_time
    async def test_failed_records_get_an_error_each(self) -> None:
        call = send_many(2)
        call.failed([0, 1], LATE)
        one, other = call.result.failures.values()
        assert one is not other
        assert one.possibly_persisted

    @in_virtual_time
    async def test_later_outcomes_are_ignored_after_the_last_record(self) -> None:
        call = send_many(1)
        call.failed([0], LATE)
        call.failed([], LATE)
        await call.wait()
        assert list(call.result.failures) == [0]

    @in_virtual_time
    async def test_cancelled_wait_does_not_stop_the_call(self) -> None:
        call = send_many(1)
        impatient, patient = asyncio.create_task(call.wait()), asyncio.create_task(call.wait())
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.wait([impatient])
        assert impatient.cancelled()
        assert not patient.done()
        call.failed([0], LATE)
        await patient


class TestCallWaiters:
    @in_virtual_time
    async def test_answer_is_added_to_the_result_of_its_call(self) -> None:
        call = send_many(9)
        waiters = CallWaiters(call, range(4, 6))
        assert len(waiters) == 2
        waiters.resolve(delivered(7, 8, log_append_time=True))
        assert call.result.delivered == 2
        assert [call.result.offset(position) for position in (4, 5)] == [40, 41]
        assert call.result.partition(4) == 3
        assert list(call.result)[5] == RecordMetadata(TOPIC, 3, 41, 8, log_append_time=True)

    @in_virtual_time
    async def test_failure_is_added_at_all_its_positions(self) -> None:
        call = send_many(9)
        CallWaiters(call, [4, 7]).fail(LATE)
        assert list(call.result.failures) == [4, 7]

    @in_virtual_time
    async def test_chosen_records_make_a_run_of_the_same_call(self) -> None:
        call = send_many(9)
        part = CallWaiters(call, range(4, 8)).take([0, 3])
        assert part.call is call
        assert part.positions == [4, 7]

    @in_virtual_time
    async def test_indices_of_returns_all_records_only_for_its_call(self) -> None:
        call = send_many(9)
        waiters = CallWaiters(call, [4, 7])
        assert list(waiters.indices_of(call)) == [0, 1]
        assert not waiters.indices_of(send_many(9))
        assert not waiters.indices_of(asyncio.get_running_loop().create_future())

    @pytest.mark.parametrize("later", ["delivered", "failed"])
    @in_virtual_time
    async def test_detached_call_fails_and_ignores_later_outcomes(self, later: str) -> None:
        call = send_many(2)
        waiters = CallWaiters(call, [0, 1])
        waiters.fail(LATE)
        await call.wait()
        failures = dict(call.result.failures)
        assert list(failures) == [0, 1]
        if later == "delivered":
            waiters.resolve(delivered(7, 8))
        else:
            waiters.take([0]).fail(LATE)
        assert call.result.failures == failures
        assert call.result.delivered == 0
        assert not waiters.indices_of(call)

    @in_virtual_time
    async def test_waiters_know_the_place_of_their_first_record(self) -> None:
        call, (batch, _, _) = send_many(9), mixed()
        waiters = call.waiters([4, 7], batch)
        assert (waiters.call, waiters.positions, waiters.batch, waiters.start) == (call, [4, 7], batch, 6)
        assert list(call.live) == [waiters]

    @pytest.mark.parametrize("outcome", ["delivered", "failed"])
    @in_virtual_time
    async def test_settled_waiters_leave_call_and_batch(self, outcome: str) -> None:
        call = send_many(9)
        settled, live = call.waiters([4, 7], batch_in()), call.waiters([8], batch_in())
        if outcome == "delivered":
            settled.resolve(delivered(7, 8))
        else:
            settled.fail(LATE)
        assert (settled.call, settled.batch, settled.all_waiters_expired) == (None, None, True)
        assert (live.call, live.all_waiters_expired) == (call, False)
        assert list(call.live) == [live]

    @in_virtual_time
    async def test_taken_waiters_replace_the_waiters_of_their_batch(self) -> None:
        call, batch = send_many(9), batch_in()
        waiters = call.waiters([4, 7], batch)
        parts = [waiters.take([0]), waiters.take([1])]
        assert list(call.live) == parts
        assert [(part.positions, part.batch, part.start) for part in parts] == [
            ([4], batch, 0),
            ([7], batch, 0),
        ]
