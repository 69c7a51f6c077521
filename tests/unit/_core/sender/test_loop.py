from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aioproducer._core.batching.batch import RecordFuture
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.protocol.produce import (
    BY_NAME,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer._core.protocol.schema import encode_response
from aioproducer._core.records.compression import Codec
from aioproducer._core.sender.requests import Encoder, ResponseHandler
from aioproducer.errors import DeliveryTimeout, TimeoutReason
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.fakes import FakeConnection
from tests.unit._core.sender.loop_rig import LARGE, LINGER_S, Rig, Thread, advance
from tests.unit.floor_rig import NODE, TOPIC, lost, settle


class TestSendTimes:
    @in_virtual_time
    async def test_record_is_sent_once_it_has_lingered(self) -> None:
        async with Rig() as rig:
            rig.fill(b"a")
            await advance(LINGER_S / 2)
            rig.fill(b"b")
            assert rig.sent_values() == []
            await advance(LINGER_S / 2)
            assert rig.sent_values() == [[b"a", b"b"]]

    @in_virtual_time
    async def test_full_batch_is_sent_immediately(self) -> None:
        async with Rig(batching={"batch_bytes": 100}) as rig:
            rig.fill(b"a" * 30)
            rig.fill(b"b" * 30)
            await settle()
            assert rig.sent_values() == [[b"a" * 30]]

    @in_virtual_time
    async def test_flush_ends_lingering(self) -> None:
        async with Rig() as rig:
            rig.fill(b"a")
            flushing = asyncio.create_task(rig.accumulator.flush())
            await settle()
            assert rig.sent_values() == [[b"a"]]
            rig.accept()
            await flushing
            assert rig.loop.time() == 0

    @in_virtual_time
    async def test_finish_ends_lingering(self) -> None:
        async with Rig() as rig:
            rig.fill(b"a")
            rig.accumulator.finish()
            await settle()
            assert rig.sent_values() == [[b"a"]]

    @in_virtual_time
    async def test_record_that_expires_unsent_takes_no_sequence(self) -> None:
        async with Rig(connected=(), batching={"delivery_timeout_s": 1.0}) as rig:
            rig.pool.errors[NODE] = lost()
            future = rig.append()
            await advance(1)
            error = future.exception()
            assert isinstance(error, DeliveryTimeout)
            assert "never sent: node 1 is not connected: " in str(error)
            assert error.reason is TimeoutReason.CONNECTING
            assert error.__cause__ is rig.pool.errors[NODE]
            rig.pool.connections[NODE] = FakeConnection()
            batch = rig.fill(b"b")
            await advance(LINGER_S)
            assert batch.sequence is not None
            assert batch.sequence.base_sequence == 0

    @for_each(
        ("settings", "expected"),
        [
            ({}, [[b"0" * 60], [b"1" * 60, b"2" * 60]]),
            ({"acks": 1}, [[b"0" * 60], [b"1" * 60, b"2" * 60]]),
            ({"max_in_flight": 2}, [[b"0" * 60], [b"1" * 60, b"2" * 60]]),
            ({"max_in_flight": 1}, [[b"0" * 60, b"1" * 60, b"2" * 60]]),
        ],
    )
    @in_virtual_time
    async def test_idle_broker_gets_one_batch_size_first(
        self, settings: dict[str, Any], expected: list[list[bytes]]
    ) -> None:
        async with Rig(partitions=3, batching={"batch_bytes": 150}, **settings) as rig:
            for partition in range(3):
                rig.fill(b"%d" % partition * 60, partition=partition)
            await advance(LINGER_S)
            assert rig.sent_values() == expected

    @in_virtual_time
    async def test_responses_with_topic_ids_are_decoded_with_names(self) -> None:
        async with Rig() as rig:
            rig.accumulator.update_topic(TOPIC, [NODE], b"i" * 16)
            rig.fill()
            await advance(LINGER_S)
            [call] = rig.connection.calls
            assert call.version == BY_NAME + 1
            topic = TopicProduceResponse(
                topic_id=b"i" * 16,
                partition_responses=[PartitionProduceResponse(index=0, error_code=6, base_offset=-1)],
            )
            payload = bytes(encode_response(ProduceResponse(responses=[topic]), call.version, 1)[4:])
            decoded, _ = call.decode(ProduceResponse, call.version, payload)
            assert decoded.responses[0].name == TOPIC

    @in_virtual_time
    async def test_several_partitions_share_a_request(self) -> None:
        async with Rig(partitions=3) as rig:
            for partition in range(3):
                rig.fill(b"%d" % partition, partition=partition)
            await advance(LINGER_S)
            assert len(rig.connection.calls) == 1
            assert sorted(*rig.sent_values()) == [b"0", b"1", b"2"]  # type: ignore[type-var]

    @in_virtual_time
    async def test_requests_in_flight_are_limited(self) -> None:
        async with Rig(max_in_flight=2, batching={"batch_bytes": 100}) as rig:
            for number in range(4):
                rig.fill(b"%d" % number * 40)
            await settle()
            assert rig.sent_values() == [[b"0" * 40], [b"1" * 40]]
            rig.accept()
            await settle()
            assert rig.sent_values() == [[b"1" * 40], [b"2" * 40]]

    @in_virtual_time
    async def test_records_sent_by_resumed_tasks_leave_in_the_same_turn(self) -> None:
        async with Rig(partitions=2, batching={"linger_s": 0.0}) as rig:

            async def send_again(acknowledged: RecordFuture, partition: int) -> None:
                await acknowledged
                _ = rig.append(b"again", partition=partition)

            tasks = [
                asyncio.create_task(send_again(rig.append(partition=partition), partition))
                for partition in range(2)
            ]
            await settle()
            rig.accept(0, 1)
            await asyncio.sleep(0)
            assert rig.sent_values() == [[b"again", b"again"]]
            await asyncio.gather(*tasks)

    @in_virtual_time
    async def test_throttled_broker_gets_no_request_meanwhile(self) -> None:
        async with Rig() as rig:
            rig.connection.throttled_until = 3.0
            rig.fill(b"a")
            await advance(2.9)
            assert rig.connection.calls == []
            await advance(0.1)
            assert rig.sent_values() == [[b"a"]]

    @in_virtual_time
    async def test_retry_is_sent_when_its_backoff_is_over(self) -> None:
        async with Rig() as rig:
            rig.fill(b"a")
            await advance(LINGER_S)
            rig.connection.answer(lost())
            await advance(0.09)
            assert rig.connection.calls == []
            await advance(0.02)
            assert rig.sent_values() == [[b"a"]]

    @in_virtual_time
    async def test_timeout_error_names_the_limit_of_the_call(self) -> None:
        async with Rig(connected=()) as rig:
            assert "2.5 s (timeout_s)" in rig.sender.obstacles.failure(rig.fill(), 2.5, 2.5).message


class TestWhileTheBrokerIsBusy:
    @in_virtual_time
    async def test_record_lingers_while_its_broker_is_busy(self) -> None:
        batching = {"linger_is_adaptive": True, "linger_s": 60.0}
        async with Rig(partitions=3, batching=batching) as rig:
            for number in range(2):
                rig.fill(b"%d" % number, partition=number)
                await settle()
            assert rig.sent_values() == [[b"0"]]
            rig.accept(0)
            await settle()
            assert rig.sent_values() == [[b"1"]]
            rig.accept(1)
            rig.fill(b"2", partition=2)
            await settle()
            assert rig.sent_values() == [[b"2"]]

    @in_virtual_time
    async def test_broker_is_busy_until_it_has_answered_all(self) -> None:
        batching = {"linger_is_adaptive": True, "linger_s": 60.0, "batch_bytes": 100}
        async with Rig(partitions=3, batching=batching) as rig:
            for number in range(2):
                rig.fill(b"%d" % number * 60, partition=number)
                rig.fill(b"more" * 20, partition=number)
                await settle()
            assert len(rig.connection.calls) > 1
            rig.fill(b"2", partition=2)
            rig.accept(0)
            await settle()
            assert [b"2"] not in rig.sent_values()


class TestObstacles:
    """The reasons of timeouts, from the state of the sender."""

    @in_virtual_time
    async def test_requests_in_flight_are_counted(self) -> None:
        async with Rig(partitions=2, max_in_flight=1) as rig:
            rig.fill()
            await advance(LINGER_S)
            waits = rig.fill(partition=1)
            await advance(LINGER_S)
            obstacle = rig.sender.obstacles.of(waits)
            assert obstacle.reason is TimeoutReason.IN_FLIGHT_LIMIT
            assert obstacle.text.startswith("1 request is in flight to node 1, the limit")

    @in_virtual_time
    async def test_error_of_the_producer_id_is_named(self) -> None:
        async with Rig(identified=False) as rig:
            waits = rig.fill()
            rig.connection.answer(cause := lost())
            await advance(LINGER_S)
            assert rig.sender.obstacles.of(waits).cause is cause

    @in_virtual_time
    async def test_producer_without_connected_brokers_is_connecting(self) -> None:
        async with Rig(identified=False, connected=()) as rig:
            waits = rig.fill()
            await advance(LINGER_S)
            assert rig.sender.obstacles.of(waits).reason is TimeoutReason.CONNECTING


class TestLog:
    """Nodes with batches that are not sent yet."""

    @staticmethod
    def waiting(caplog: pytest.LogCaptureFixture) -> set[str]:
        return {each for each in caplog.messages if each.startswith("node.waiting")}

    @in_virtual_time
    async def test_missing_connection_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        async with Rig(connected=()) as rig:
            rig.fill()
            await advance(LINGER_S)
            assert self.waiting(caplog) == {"node.waiting node_id=1 reason=connecting"}

    @in_virtual_time
    async def test_throttle_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        async with Rig(batching={"linger_s": 0.0}) as rig:
            await advance(1)
            rig.connection.throttled_until = 3.0
            rig.fill()
            await settle()
            assert self.waiting(caplog) == {"node.waiting node_id=1 reason=throttled for_s=2.000"}

    @in_virtual_time
    async def test_limit_of_requests_in_flight_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        async with Rig(partitions=2, max_in_flight=1) as rig:
            rig.fill()
            await advance(LINGER_S)
            rig.fill(partition=1)
            await advance(LINGER_S)
            assert self.waiting(caplog) == {"node.waiting node_id=1 reason=in_flight_limit"}


class TestEnd:
    @in_virtual_time
    async def test_sender_ends_once_every_record_has_its_outcome(self) -> None:
        async with Rig() as rig:
            rig.fill()
            rig.accumulator.finish()
            await advance(1)
            assert not rig.running.done()
            rig.accept()
            await settle()
            assert rig.running.done()
            assert rig.running.exception() is None

    @in_virtual_time
    async def test_sender_waits_for_calls_that_have_not_appended_yet(self) -> None:
        async with Rig() as rig:
            rig.accumulator.pending_calls["one"] = 1
            rig.accumulator.finish()
            await advance(1)
            assert not rig.running.done()
            del rig.accumulator.pending_calls["one"]
            rig.wakeup.ring()
            await settle()
            assert rig.running.done()

    @in_virtual_time
    async def test_cancelled_sender_leaves_no_task_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        thread = Thread(monkeypatch)
        rig = Rig(codec=Codec.GZIP)
        run = rig.sender.run
        left: list[asyncio.Task[None]] = []

        async def watched() -> None:
            try:
                await run()
            finally:
                left.extend(
                    task for tasks in rig.sender._preparing.values() for task in tasks if not task.done()
                )

        monkeypatch.setattr(rig.sender, "run", watched)
        async with rig:
            rig.accumulator.flushing.add(1)
            batch = rig.fill(LARGE)
            await settle()
            assert rig.sender._preparing
            rig.running.cancel()
            thread.release.set()
            await asyncio.wait([rig.running])
            assert not left
            assert batch.state is BatchState.IN_FLIGHT


class TestBugs:
    @in_virtual_time
    async def test_bug_in_the_response_handler_ends_the_sender(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise LookupError("a bug")

        monkeypatch.setattr(ResponseHandler, "take", fail)
        async with Rig() as rig:
            batch = rig.fill()
            await advance(LINGER_S)
            batch.persistence.answered()  # as the handler notes first
            with pytest.raises(LookupError):  # the connection receives the exception as well
                rig.accept()
            await settle()
            assert isinstance(rig.running.exception(), LookupError)
            assert batch.possibly_persisted, "the answer may have said that it is in the log"

    @in_virtual_time
    async def test_bug_in_a_task_of_the_sender_ends_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(*_: object) -> None:
            await asyncio.sleep(0)
            raise LookupError("a bug")

        monkeypatch.setattr(Encoder, "encode_off_loop", fail)
        async with Rig(codec=Codec.GZIP) as rig:
            rig.fill(LARGE)
            await advance(LINGER_S)
            assert isinstance(rig.running.exception(), LookupError)

    @in_virtual_time
    async def test_bug_ends_the_sender_while_a_request_is_prepared(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise LookupError("a bug")

        thread = Thread(monkeypatch)
        async with Rig(codec=Codec.GZIP, partitions=2) as rig:
            rig.accumulator.flushing.add(1)
            rig.fill(LARGE)
            await settle()
            assert rig.sender._preparing
            monkeypatch.setattr(rig.sender, "_run_once", fail)
            rig.wakeup.ring()
            await settle()
            thread.release.set()
            await asyncio.wait([rig.running])
            assert isinstance(rig.running.exception(), LookupError)
