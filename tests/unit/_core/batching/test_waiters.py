from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from aioproducer._core.batching.waiters import Delivered, Failure, FutureWaiters
from aioproducer.errors import DeliveryTimeout
from aioproducer.testing.virtual_time import in_virtual_time
from aioproducer.types import RecordMetadata
from tests.cases import for_each

TOPIC = "orders"
LATE = Failure(DeliveryTimeout, "late", possibly_persisted=True)

Futures = list[asyncio.Future[RecordMetadata]]


def delivered(*timestamps_ms: int, base_offset: int = 40, log_append_time: bool = False) -> Delivered:
    return Delivered(TOPIC, 3, base_offset, timestamps_ms, log_append_time)


def futures(count: int) -> Futures:
    loop = asyncio.get_running_loop()
    return [loop.create_future() for _ in range(count)]


class TestDelivered:
    def test_slice_starts_at_the_offset_and_time_of_its_first_record(self) -> None:
        whole = delivered(1, 2, 3, 4, log_append_time=True)
        assert whole.slice(1, 3) == delivered(2, 3, base_offset=41, log_append_time=True)

    def test_offset_zero_is_known(self) -> None:
        assert delivered(1, 2, base_offset=0).slice(1, 2).base_offset == 1

    def test_slice_keeps_an_unknown_offset(self) -> None:
        assert delivered(1, 2, base_offset=-1).slice(1, 2) == delivered(2, base_offset=-1)


class TestFutureWaiters:
    @pytest.mark.parametrize("replacement", ["_CFuture", "_PyFuture"])
    @pytest.mark.parametrize("made", ["_CFuture", "_PyFuture"])
    @in_virtual_time
    async def test_futures_are_resolved_when_asyncio_has_another_class(
        self, made: str, replacement: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As after `nest_asyncio.apply()`."""
        loop = asyncio.get_running_loop()
        waiting = [getattr(asyncio.futures, made)(loop=loop) for _ in range(3)]
        waiting[1].cancel()
        monkeypatch.setattr(asyncio, "Future", getattr(asyncio.futures, replacement))
        FutureWaiters(waiting).resolve(delivered(1, 2, 3))
        assert [waiting[each].result().offset for each in (0, 2)] == [40, 42]

    def test_resolve_accepts_an_empty_list(self) -> None:
        FutureWaiters([]).resolve(delivered())

    @in_virtual_time
    async def test_futures_receive_the_metadata_of_their_records(self) -> None:
        senders = futures(3)
        FutureWaiters(senders).resolve(delivered(7, 8, 9, log_append_time=True))
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
        FutureWaiters(senders).resolve(delivered(7, 8, base_offset=base_offset))
        assert [sender.result().offset for sender in senders] == offsets

    @for_each("cancelled", [{0}, {1, 2}, {4}, {0, 2, 4}, {0, 1, 2, 3, 4}])
    @in_virtual_time
    async def test_cancelled_futures_are_skipped_by_resolve(self, cancelled: set[int]) -> None:
        senders = futures(5)
        for index in cancelled:
            senders[index].cancel()
        FutureWaiters(senders).resolve(delivered(1, 2, 3, 4, 5))
        assert {index for index, sender in enumerate(senders) if sender.cancelled()} == cancelled
        for index in set(range(5)) - cancelled:
            assert senders[index].result() == RecordMetadata(
                TOPIC, 3, 40 + index, 1 + index, log_append_time=False
            )

    @in_virtual_time
    async def test_futures_fail_with_an_error_each(self) -> None:
        senders = futures(2)
        FutureWaiters(senders).fail(LATE)
        one, other = (sender.exception() for sender in senders)
        assert isinstance(one, DeliveryTimeout)
        assert isinstance(other, DeliveryTimeout)
        assert one.possibly_persisted
        assert one is not other

    @in_virtual_time
    async def test_fail_skips_futures_that_have_an_outcome(self) -> None:
        cancelled, failed = senders = futures(2)
        cancelled.cancel()
        FutureWaiters(senders).fail(LATE)
        assert cancelled.cancelled()
        assert isinstance(failed.exception(), DeliveryTimeout)

    @in_virtual_time
    async def test_unawaited_failure_is_not_reported_to_the_loop(self) -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        FutureWaiters(futures(1)).fail(LATE)
        gc.collect()
        assert not complaints

    @in_virtual_time
    async def test_take_returns_a_run_of_the_chosen_records(self) -> None:
        first, _, third = senders = futures(3)
        part = FutureWaiters(senders).take([0, 2])
        assert part == [first, third]
        assert len(part) == 2
        assert len(FutureWaiters(senders)) == 3

    @in_virtual_time
    async def test_indices_of_returns_the_record_of_a_future(self) -> None:
        waiters = FutureWaiters(futures(3))
        assert list(waiters.indices_of(waiters[1])) == [1]
        assert not waiters.indices_of(*futures(1))
        assert not waiters.indices_of(object())

    @in_virtual_time
    async def test_detached_future_fails_and_ignores_later_outcomes(self) -> None:
        leaving, staying = senders = futures(2)
        waiters = FutureWaiters(senders)
        FutureWaiters([leaving]).fail(LATE)
        assert isinstance(leaving.exception(), DeliveryTimeout)
        assert not staying.done()
        waiters.resolve(delivered(1, 2))
        assert isinstance(leaving.exception(), DeliveryTimeout)
        assert staying.result().offset == 41
