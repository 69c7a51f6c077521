from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer.backoff import Backoff
from aioproducer.batching.batch import RecordFuture
from aioproducer.batching.state import BatchState
from aioproducer.cluster.snapshot import Snapshot
from aioproducer.errors import DeliveryTimeout, UnsupportedVersion
from aioproducer.net.address import Address
from aioproducer.records.compression import Codec
from aioproducer.sender.answers import AnswerHandler
from aioproducer.sender.requests import Encoder
from aioproducer.testing import in_virtual_time
from tests.unit.sender.loop_bench import LARGE, LINGER_S, Bench, Thread, pass_time
from tests.unit.workbench import NODE, FakeConnection, lost, settle


class TestWhatGoesWhen:
    @in_virtual_time
    async def test_a_record_goes_once_it_has_lingered(self) -> None:
        async with Bench() as bench:
            bench.fill(b"a")
            await pass_time(LINGER_S / 2)
            bench.fill(b"b")
            assert bench.sent_values() == []
            await pass_time(LINGER_S / 2)
            assert bench.sent_values() == [[b"a", b"b"]]

    @in_virtual_time
    async def test_a_full_batch_goes_at_once(self) -> None:
        async with Bench(batching={"batch_bytes": 100}) as bench:
            bench.fill(b"a" * 30)
            bench.fill(b"b" * 30)
            await settle()
            assert bench.sent_values() == [[b"a" * 30]]

    @in_virtual_time
    async def test_nothing_lingers_while_somebody_flushes(self) -> None:
        async with Bench() as bench:
            bench.fill(b"a")
            flushing = asyncio.create_task(bench.accumulator.flush())
            await settle()
            assert bench.sent_values() == [[b"a"]]
            bench.accept()
            await flushing
            assert bench.loop.time() == 0

    @in_virtual_time
    async def test_nothing_lingers_once_it_is_to_finish(self) -> None:
        async with Bench() as bench:
            bench.fill(b"a")
            bench.sender.finish()
            await settle()
            assert bench.sent_values() == [[b"a"]]

    @in_virtual_time
    async def test_what_has_expired_fails_without_taking_a_sequence(self) -> None:
        async with Bench(connected=(), batching={"delivery_timeout_s": 1.0}) as bench:
            bench.pool.errors[NODE] = lost()
            future = bench.append()
            await pass_time(1)
            error = future.exception()
            assert isinstance(error, DeliveryTimeout)
            assert error.__cause__ is bench.pool.errors[NODE]
            bench.pool.connections[NODE] = FakeConnection()
            batch = bench.fill(b"b")
            await pass_time(LINGER_S)
            assert batch.stamp is not None
            assert batch.stamp.base_sequence == 0

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({}, [[b"0" * 60], [b"1" * 60, b"2" * 60]]),
            ({"max_in_flight": 1}, [[b"0" * 60, b"1" * 60, b"2" * 60]]),
        ],
    )
    @in_virtual_time
    async def test_a_broker_that_has_nothing_to_do_gets_a_batchs_worth_first(
        self, settings: dict[str, Any], expected: list[list[bytes]]
    ) -> None:
        async with Bench(partitions=3, batching={"batch_bytes": 150}, **settings) as bench:
            for partition in range(3):
                bench.fill(b"%d" % partition * 60, partition=partition)
            await pass_time(LINGER_S)
            assert bench.sent_values() == expected

    @in_virtual_time
    async def test_several_partitions_share_a_request(self) -> None:
        async with Bench(partitions=3) as bench:
            for partition in range(3):
                bench.fill(b"%d" % partition, partition=partition)
            await pass_time(LINGER_S)
            assert len(bench.connection.calls) == 1
            assert sorted(*bench.sent_values()) == [b"0", b"1", b"2"]  # type: ignore[type-var]

    @in_virtual_time
    async def test_no_more_requests_are_in_flight_than_allowed(self) -> None:
        async with Bench(max_in_flight=2, batching={"batch_bytes": 100}) as bench:
            for number in range(4):
                bench.fill(b"%d" % number * 40)
            await settle()
            assert bench.sent_values() == [[b"0" * 40], [b"1" * 40]]
            bench.accept()
            await settle()
            assert bench.sent_values() == [[b"1" * 40], [b"2" * 40]]

    @in_virtual_time
    async def test_what_tasks_send_on_an_answer_goes_in_the_turn_in_which_they_go_on(self) -> None:
        async with Bench(partitions=2, batching={"linger_s": 0.0}) as bench:

            async def send_again(acknowledged: RecordFuture, partition: int) -> None:
                await acknowledged
                _ = bench.append(b"again", partition=partition)

            tasks = [
                asyncio.create_task(send_again(bench.append(partition=partition), partition))
                for partition in range(2)
            ]
            await settle()
            bench.accept(0, 1)
            await asyncio.sleep(0)
            assert bench.sent_values() == [[b"again", b"again"]]
            await asyncio.gather(*tasks)

    @in_virtual_time
    async def test_a_throttled_node_is_left_alone_for_as_long(self) -> None:
        async with Bench() as bench:
            bench.connection.throttled_until = 3.0
            bench.fill(b"a")
            await pass_time(2.9)
            assert bench.connection.calls == []
            await pass_time(0.1)
            assert bench.sent_values() == [[b"a"]]

    @in_virtual_time
    async def test_a_retry_goes_when_its_backoff_is_over(self) -> None:
        async with Bench() as bench:
            bench.fill(b"a")
            await pass_time(LINGER_S)
            bench.connection.answer(lost())
            await pass_time(0.09)
            assert bench.connection.calls == []
            await pass_time(0.02)
            assert bench.sent_values() == [[b"a"]]


class TestWithoutConnection:
    @in_virtual_time
    async def test_the_leader_is_connected_to(self) -> None:
        async with Bench(connected=()) as bench:
            bench.fill()
            await pass_time(LINGER_S)
            assert bench.pool.wanted[-1] == (NODE, Address("b1", 9092))
            bench.pool.connections[NODE] = FakeConnection()
            bench.wakeup.ring()
            await settle()
            assert len(bench.connection.calls) == 1

    @in_virtual_time
    async def test_it_tries_again_when_the_pause_after_a_failure_is_over(self) -> None:
        async with Bench(connected=()) as bench:
            bench.pool.backing_off_until[NODE] = 1.0
            bench.fill()
            await pass_time(LINGER_S)
            tried = len(bench.pool.wanted)
            await pass_time(0.9)
            assert len(bench.pool.wanted) == tried
            bench.pool.backing_off_until.clear()
            await pass_time(0.1)
            assert len(bench.pool.wanted) == tried + 1

    @in_virtual_time
    async def test_a_leader_that_is_gone_is_looked_up_again(self) -> None:
        async with Bench(connected=()) as bench:
            bench.refresher.snapshot = Snapshot()
            bench.fill()
            await pass_time(LINGER_S)
            assert bench.pool.wanted == []
            assert bench.refresher.refreshes[-1] is None

    @in_virtual_time
    async def test_a_partition_without_a_leader_has_its_topic_looked_up(self) -> None:
        async with Bench() as bench:
            bench.learn("lost", -1)
            queues = bench.accumulator.topics["lost"]
            _ = bench.accumulator.append(queues, queues[0], b"v", None, (), 1, 20, asyncio.Future)
            await pass_time(LINGER_S)
            assert bench.refresher.refreshes[-1] == frozenset({"lost"})
            assert bench.connection.calls == []

    @in_virtual_time
    async def test_a_connection_lost_by_writing_gets_nothing_more(self) -> None:
        """Without a backoff the batch is due again at once: to try the same connection would never end."""
        async with Bench(retry_backoff=Backoff(0.0, 0.0)) as bench:

            def break_off(*_: object) -> None:
                bench.connection.closed = True
                raise lost(written=False)

            bench.connection.call = break_off  # type: ignore[method-assign, assignment]
            batch = bench.fill()
            await pass_time(LINGER_S)
            assert batch.state is BatchState.BACKOFF
            assert not batch.possibly_persisted
            assert bench.pool.wanted == [(NODE, Address("b1", 9092))]

    @in_virtual_time
    async def test_a_broker_that_is_too_old_fails_the_batch(self) -> None:
        async with Bench() as bench:
            bench.connection.error = UnsupportedVersion("Produce: too old")
            future = bench.append()
            await pass_time(LINGER_S)
            error = future.exception()
            assert isinstance(error, UnsupportedVersion)
            assert not error.possibly_persisted


class TestUnacknowledged:
    @in_virtual_time
    async def test_written_is_delivered(self) -> None:
        async with Bench(acks=0, idempotent=False) as bench:
            future = bench.append(b"a")
            await pass_time(LINGER_S)
            assert future.result().offset == -1
            [request] = bench.connection.unanswered
            assert request.acks == 0

    @in_virtual_time
    async def test_the_next_goes_when_the_socket_has_taken_it(self) -> None:
        async with Bench(acks=0, idempotent=False) as bench:
            bench.fill(b"a")
            await pass_time(LINGER_S)
            bench.fill(b"b")
            await pass_time(LINGER_S)
            assert len(bench.connection.unanswered) == 1
            bench.connection.drains[0].set_result(None)
            await settle()
            assert len(bench.connection.unanswered) == 2

    @in_virtual_time
    async def test_a_connection_lost_while_draining_is_the_pools_affair(self) -> None:
        async with Bench(acks=0, idempotent=False) as bench:
            bench.fill(b"a")
            await pass_time(LINGER_S)
            bench.connection.drains[0].set_exception(lost())
            await settle()
            assert not bench.running.done()
            bench.fill(b"b")
            await pass_time(LINGER_S)
            assert len(bench.connection.unanswered) == 2

    @in_virtual_time
    async def test_what_could_not_be_written_is_sent_again(self) -> None:
        async with Bench(acks=0, idempotent=False) as bench:
            bench.connection.error = lost(written=False)
            future = bench.append(b"a")
            await pass_time(LINGER_S)
            assert not future.done()
            bench.connection.error = None
            bench.connection.drains[0].set_result(None)
            await pass_time(0.1)
            assert future.result().offset == -1


class TestEnd:
    @in_virtual_time
    async def test_it_ends_once_everything_has_its_outcome(self) -> None:
        async with Bench() as bench:
            bench.fill()
            bench.sender.finish()
            await pass_time(1)
            assert not bench.running.done()
            bench.accept()
            await settle()
            assert bench.running.done()
            assert bench.running.exception() is None

    @in_virtual_time
    async def test_it_waits_for_calls_that_have_not_appended_yet(self) -> None:
        async with Bench() as bench:
            bench.accumulator.callers += 1
            bench.sender.finish()
            await pass_time(1)
            assert not bench.running.done()
            bench.accumulator.callers -= 1
            bench.wakeup.ring()
            await settle()
            assert bench.running.done()

    @in_virtual_time
    async def test_cancelled_it_leaves_no_task_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        thread = Thread(monkeypatch)
        async with Bench(codec=Codec.GZIP) as bench:
            bench.accumulator.flushing = 1
            batch = bench.fill(LARGE)
            await settle()
            [preparing] = bench.sender._preparing.values()
            bench.running.cancel()
            thread.release.set()
            await asyncio.wait([bench.running])
            assert preparing.done()
            assert batch.state is BatchState.IN_FLIGHT


class TestBugs:
    @in_virtual_time
    async def test_one_while_an_answer_is_taken_ends_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise LookupError("a bug")

        monkeypatch.setattr(AnswerHandler, "take", fail)
        async with Bench() as bench:
            batch = bench.fill()
            await pass_time(LINGER_S)
            batch.answered()  # as the handler notes first
            with pytest.raises(LookupError):  # the connection wants to hear of it, too
                bench.accept()
            await settle()
            assert isinstance(bench.running.exception(), LookupError)
            assert batch.possibly_persisted, "the answer may have said that it is in the log"


class TestConnected:
    @in_virtual_time
    async def test_what_was_lost_with_the_connection_goes_after_the_shortest_pause(self) -> None:
        async with Bench() as bench:
            bench.fill()
            await pass_time(LINGER_S)
            for _ in range(5):  # pauses grow from 0.1 to 1 s
                bench.connection.answer(lost())
                await pass_time(1.0)
            bench.connection.answer(lost())
            await pass_time(0.2)
            assert bench.sent_values() == []
            bench.sender.connected(NODE)
            await pass_time(0.1)
            assert bench.sent_values() == [[b"value"]]

    @in_virtual_time
    async def test_one_in_a_task_of_its_own_ends_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(*_: object) -> None:
            await asyncio.sleep(0)
            raise LookupError("a bug")

        monkeypatch.setattr(Encoder, "encode_off_loop", fail)
        async with Bench(codec=Codec.GZIP) as bench:
            bench.fill(LARGE)
            await pass_time(LINGER_S)
            assert isinstance(bench.running.exception(), LookupError)
