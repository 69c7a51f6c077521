from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer.backoff import Backoff
from aioproducer.batching.batch import RecordFuture
from aioproducer.batching.batch_state import BatchState
from aioproducer.errors import AuthenticationFailed, DeliveryTimeout, UnsupportedVersion
from aioproducer.metadata.snapshot import MetadataSnapshot
from aioproducer.net.address import Address
from aioproducer.net.pool import REFUSAL_PATIENCE_S, RefusedLogins
from aioproducer.records.compression import Codec
from aioproducer.sender.answers import AnswerHandler
from aioproducer.sender.requests import Encoder
from aioproducer.testing import in_virtual_time
from tests.fakes import FakeConnection
from tests.unit.floor_rig import NODE, TOPIC, lost, settle
from tests.unit.sender.loop_rig import LARGE, LINGER_S, Rig, Thread, pass_time


class TestWhatGoesWhen:
    @in_virtual_time
    async def test_a_record_goes_once_it_has_lingered(self) -> None:
        async with Rig() as rig:
            rig.fill(b"a")
            await pass_time(LINGER_S / 2)
            rig.fill(b"b")
            assert rig.sent_values() == []
            await pass_time(LINGER_S / 2)
            assert rig.sent_values() == [[b"a", b"b"]]

    @in_virtual_time
    async def test_a_full_batch_goes_at_once(self) -> None:
        async with Rig(batching={"batch_bytes": 100}) as rig:
            rig.fill(b"a" * 30)
            rig.fill(b"b" * 30)
            await settle()
            assert rig.sent_values() == [[b"a" * 30]]

    @in_virtual_time
    async def test_nothing_lingers_while_somebody_flushes(self) -> None:
        async with Rig() as rig:
            rig.fill(b"a")
            flushing = asyncio.create_task(rig.accumulator.flush())
            await settle()
            assert rig.sent_values() == [[b"a"]]
            rig.accept()
            await flushing
            assert rig.loop.time() == 0

    @in_virtual_time
    async def test_nothing_lingers_once_it_is_to_finish(self) -> None:
        async with Rig() as rig:
            rig.fill(b"a")
            rig.sender.finish()
            await settle()
            assert rig.sent_values() == [[b"a"]]

    @in_virtual_time
    async def test_what_has_expired_fails_without_taking_a_sequence(self) -> None:
        async with Rig(connected=(), batching={"delivery_timeout_s": 1.0}) as rig:
            rig.pool.errors[NODE] = lost()
            future = rig.append()
            await pass_time(1)
            error = future.exception()
            assert isinstance(error, DeliveryTimeout)
            assert "not acknowledged in time" in str(error)
            assert "not sent to its leader, node 1: " in str(error)
            assert error.__cause__ is rig.pool.errors[NODE]
            rig.pool.connections[NODE] = FakeConnection()
            batch = rig.fill(b"b")
            await pass_time(LINGER_S)
            assert batch.sequence is not None
            assert batch.sequence.base_sequence == 0

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({}, [[b"0" * 60], [b"1" * 60, b"2" * 60]]),
            ({"acks": 1}, [[b"0" * 60], [b"1" * 60, b"2" * 60]]),
            ({"max_in_flight": 2}, [[b"0" * 60], [b"1" * 60, b"2" * 60]]),
            ({"max_in_flight": 1}, [[b"0" * 60, b"1" * 60, b"2" * 60]]),
        ],
    )
    @in_virtual_time
    async def test_a_broker_that_has_nothing_to_do_gets_a_batchs_worth_first(
        self, settings: dict[str, Any], expected: list[list[bytes]]
    ) -> None:
        async with Rig(partitions=3, batching={"batch_bytes": 150}, **settings) as rig:
            for partition in range(3):
                rig.fill(b"%d" % partition * 60, partition=partition)
            await pass_time(LINGER_S)
            assert rig.sent_values() == expected

    @in_virtual_time
    async def test_several_partitions_share_a_request(self) -> None:
        async with Rig(partitions=3) as rig:
            for partition in range(3):
                rig.fill(b"%d" % partition, partition=partition)
            await pass_time(LINGER_S)
            assert len(rig.connection.calls) == 1
            assert sorted(*rig.sent_values()) == [b"0", b"1", b"2"]  # type: ignore[type-var]

    @in_virtual_time
    async def test_no_more_requests_are_in_flight_than_allowed(self) -> None:
        async with Rig(max_in_flight=2, batching={"batch_bytes": 100}) as rig:
            for number in range(4):
                rig.fill(b"%d" % number * 40)
            await settle()
            assert rig.sent_values() == [[b"0" * 40], [b"1" * 40]]
            rig.accept()
            await settle()
            assert rig.sent_values() == [[b"1" * 40], [b"2" * 40]]

    @in_virtual_time
    async def test_what_tasks_send_on_an_answer_goes_in_the_turn_in_which_they_go_on(self) -> None:
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
    async def test_a_throttled_node_is_left_alone_for_as_long(self) -> None:
        async with Rig() as rig:
            rig.connection.throttled_until = 3.0
            rig.fill(b"a")
            await pass_time(2.9)
            assert rig.connection.calls == []
            await pass_time(0.1)
            assert rig.sent_values() == [[b"a"]]

    @in_virtual_time
    async def test_a_retry_goes_when_its_backoff_is_over(self) -> None:
        async with Rig() as rig:
            rig.fill(b"a")
            await pass_time(LINGER_S)
            rig.connection.answer(lost())
            await pass_time(0.09)
            assert rig.connection.calls == []
            await pass_time(0.02)
            assert rig.sent_values() == [[b"a"]]

    @in_virtual_time
    async def test_a_call_that_gives_up_earlier_is_told_of_its_own_limit(self) -> None:
        async with Rig(connected=()) as rig:
            assert "timeout_s=2.5" in rig.sender.expired(rig.fill(), 2.5).message


class TestWhileTheBrokerIsBusy:
    @in_virtual_time
    async def test_a_record_lingers_that_would_go_at_once_otherwise(self) -> None:
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
    async def test_it_is_busy_until_it_has_answered_all(self) -> None:
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


class TestWithoutConnection:
    @in_virtual_time
    async def test_the_leader_is_connected_to(self) -> None:
        async with Rig(connected=()) as rig:
            rig.fill()
            await pass_time(LINGER_S)
            assert rig.pool.wanted[-1] == (NODE, Address("b1", 9092))
            rig.pool.connections[NODE] = FakeConnection()
            rig.wakeup.ring()
            await settle()
            assert len(rig.connection.calls) == 1

    @in_virtual_time
    async def test_it_tries_again_when_the_pause_after_a_failure_is_over(self) -> None:
        async with Rig(connected=()) as rig:
            rig.pool.backing_off_until[NODE] = 1.0
            rig.fill()
            await pass_time(LINGER_S)
            tried = len(rig.pool.wanted)
            await pass_time(0.9)
            assert len(rig.pool.wanted) == tried
            rig.pool.backing_off_until.clear()
            await pass_time(0.1)
            assert len(rig.pool.wanted) == tried + 1

    @in_virtual_time
    async def test_a_leader_that_refuses_us_for_long_fails_what_is_for_it(self) -> None:
        async with Rig(connected=()) as rig:
            rig.pool.refused[NODE] = RefusedLogins(
                AuthenticationFailed("wrong password", mechanism="PLAIN"), 0.0
            )
            rig.pool.backing_off_until[NODE] = 60.0
            patient = rig.append(b"a")
            await pass_time(REFUSAL_PATIENCE_S - 0.1)
            assert not patient.done()
            await pass_time(0.1)
            error = patient.exception()
            assert isinstance(error, AuthenticationFailed)
            assert "orders-0: wrong password" in str(error)
            assert not error.possibly_persisted
            late = rig.append(b"b")
            await pass_time(LINGER_S)
            assert isinstance(late.exception(), AuthenticationFailed)

    @in_virtual_time
    async def test_until_then_it_is_tried_again_when_its_pause_is_over(self) -> None:
        async with Rig(connected=()) as rig:
            rig.pool.refused[NODE] = RefusedLogins(AuthenticationFailed("wrong password"), 0.0)
            rig.pool.backing_off_until[NODE] = 1.0
            rig.fill()
            await pass_time(0.9)
            tried = len(rig.pool.wanted)
            rig.pool.backing_off_until.clear()
            await pass_time(0.1)
            assert len(rig.pool.wanted) == tried + 1

    @in_virtual_time
    async def test_what_is_for_others_or_is_still_gathering_does_not_fail_with_it(self) -> None:
        async with Rig(partitions=0, connected=(), batching={"linger_s": 60.0}) as rig:
            rig.learn(TOPIC, NODE, NODE, NODE + 1)
            rig.pool.refused[NODE] = RefusedLogins(AuthenticationFailed("wrong password"), 0.0)
            refused, gathering, elsewhere = [rig.append(partition=each) for each in range(3)]
            for each in (0, 2):
                batch = rig.queue(each).open
                assert batch is not None
                rig.accumulator.seal(batch, rig.loop.time())
            await pass_time(REFUSAL_PATIENCE_S)
            assert isinstance(refused.exception(), AuthenticationFailed)
            assert not gathering.done()
            assert not elsewhere.done()

    @in_virtual_time
    async def test_a_refusal_that_is_over_in_time_fails_nothing(self) -> None:
        async with Rig(connected=()) as rig:
            rig.pool.refused[NODE] = RefusedLogins(AuthenticationFailed("wrong password"), 0.0)
            delivered = rig.append(b"a")
            await pass_time(REFUSAL_PATIENCE_S - 0.1)
            rig.pool.refused.clear()
            rig.pool.connections[NODE] = FakeConnection()
            rig.wakeup.ring()
            await settle()
            rig.accept()
            await settle()
            assert delivered.exception() is None

    @in_virtual_time
    async def test_a_refusal_of_one_node_is_none_of_another(self) -> None:
        async with Rig(connected=()) as rig:
            rig.pool.refused[NODE + 1] = RefusedLogins(AuthenticationFailed("wrong password"), 0.0)
            waiting = rig.append(b"a")
            await pass_time(REFUSAL_PATIENCE_S + 1)
            assert not waiting.done()

    @in_virtual_time
    async def test_a_leader_that_is_gone_is_looked_up_again(self) -> None:
        async with Rig(connected=()) as rig:
            rig.updater.snapshot = MetadataSnapshot()
            rig.fill()
            await pass_time(LINGER_S)
            assert rig.pool.wanted == []
            assert rig.updater.refreshes[-1] is None

    @in_virtual_time
    async def test_a_partition_without_a_leader_has_its_topic_looked_up(self) -> None:
        async with Rig() as rig:
            rig.learn("lost", -1)
            queues = rig.accumulator.topics["lost"]
            _ = rig.accumulator.append(queues, queues[0], b"v", None, (), 1, 20, asyncio.Future)
            await pass_time(LINGER_S)
            assert rig.updater.refreshes[-1] == frozenset({"lost"})
            assert rig.connection.calls == []

    @in_virtual_time
    async def test_a_connection_lost_by_writing_gets_nothing_more(self) -> None:
        """Without a backoff the batch is due again at once: to try the same connection would never end."""
        async with Rig(retry_backoff=Backoff(0.0, 0.0)) as rig:

            def break_off(*_: object, **__: object) -> None:
                rig.connection.closed = True
                raise lost(written=False)

            rig.connection.call = break_off  # type: ignore[method-assign]
            batch = rig.fill()
            await pass_time(LINGER_S)
            assert batch.state is BatchState.BACKOFF
            assert not batch.possibly_persisted
            assert rig.pool.wanted == [(NODE, Address("b1", 9092))]

    @in_virtual_time
    async def test_a_broker_that_is_too_old_fails_the_batch(self) -> None:
        async with Rig() as rig:
            rig.connection.error = UnsupportedVersion("Produce: too old")
            future = rig.append()
            await pass_time(LINGER_S)
            error = future.exception()
            assert isinstance(error, UnsupportedVersion)
            assert str(error).startswith("orders-0 at b1:9092 (node 1), ")
            assert not error.possibly_persisted


class TestUnacknowledged:
    @in_virtual_time
    async def test_written_is_delivered(self) -> None:
        async with Rig(acks=0, idempotent=False) as rig:
            future = rig.append(b"a")
            await pass_time(LINGER_S)
            assert future.result().offset == -1
            assert rig.witness.delivered_batches[0][1:] == (-1, -1)
            [request] = rig.connection.unanswered
            assert request.acks == 0

    @in_virtual_time
    async def test_the_next_goes_when_the_socket_has_taken_it(self) -> None:
        async with Rig(acks=0, idempotent=False) as rig:
            rig.fill(b"a")
            await pass_time(LINGER_S)
            rig.fill(b"b")
            await pass_time(LINGER_S)
            assert len(rig.connection.unanswered) == 1
            rig.connection.drains[0].set_result(None)
            await settle()
            assert len(rig.connection.unanswered) == 2

    @in_virtual_time
    async def test_what_waits_for_a_login_is_sent_again_if_that_fails(self) -> None:
        async with Rig(acks=0, idempotent=False) as rig:
            rig.connection.full = True
            future = rig.append(b"a")
            await pass_time(LINGER_S)
            assert rig.connection.unanswered == []
            assert not future.done()
            rig.connection.error = lost(written=False)
            rig.connection.drains[0].set_exception(lost())
            await settle()
            assert not future.done()
            rig.connection.error, rig.connection.full = None, False
            await pass_time(0.1)
            assert future.result().offset == -1

    @in_virtual_time
    async def test_a_connection_lost_while_draining_is_the_pools_affair(self) -> None:
        async with Rig(acks=0, idempotent=False) as rig:
            rig.fill(b"a")
            await pass_time(LINGER_S)
            rig.connection.drains[0].set_exception(lost())
            await settle()
            assert not rig.running.done()
            rig.fill(b"b")
            await pass_time(LINGER_S)
            assert len(rig.connection.unanswered) == 2

    @in_virtual_time
    async def test_what_could_not_be_written_is_sent_again(self) -> None:
        async with Rig(acks=0, idempotent=False) as rig:
            rig.connection.error = lost(written=False)
            future = rig.append(b"a")
            await pass_time(LINGER_S)
            assert not future.done()
            rig.connection.error = None
            await pass_time(0.1)
            assert future.result().offset == -1


class TestEnd:
    @in_virtual_time
    async def test_it_ends_once_everything_has_its_outcome(self) -> None:
        async with Rig() as rig:
            rig.fill()
            rig.sender.finish()
            await pass_time(1)
            assert not rig.running.done()
            rig.accept()
            await settle()
            assert rig.running.done()
            assert rig.running.exception() is None

    @in_virtual_time
    async def test_it_waits_for_calls_that_have_not_appended_yet(self) -> None:
        async with Rig() as rig:
            rig.accumulator.callers += 1
            rig.sender.finish()
            await pass_time(1)
            assert not rig.running.done()
            rig.accumulator.callers -= 1
            rig.wakeup.ring()
            await settle()
            assert rig.running.done()

    @in_virtual_time
    async def test_cancelled_it_leaves_no_task_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        thread = Thread(monkeypatch)
        rig = Rig(codec=Codec.GZIP)
        run = rig.sender.run
        left: list[asyncio.Task[None]] = []

        async def watched() -> None:
            try:
                await run()
            finally:
                left.extend(task for task in rig.sender._preparing.values() if not task.done())

        monkeypatch.setattr(rig.sender, "run", watched)
        async with rig:
            rig.accumulator.flushing = 1
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
    async def test_one_while_an_answer_is_taken_ends_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise LookupError("a bug")

        monkeypatch.setattr(AnswerHandler, "take", fail)
        async with Rig() as rig:
            batch = rig.fill()
            await pass_time(LINGER_S)
            batch.answered()  # as the handler notes first
            with pytest.raises(LookupError):  # the connection wants to hear of it, too
                rig.accept()
            await settle()
            assert isinstance(rig.running.exception(), LookupError)
            assert batch.possibly_persisted, "the answer may have said that it is in the log"


class TestConnected:
    @in_virtual_time
    async def test_what_was_lost_with_the_connection_goes_after_the_shortest_pause(self) -> None:
        async with Rig() as rig:
            rig.fill()
            await pass_time(LINGER_S)
            for _ in range(5):  # pauses grow from 0.1 to 1 s
                rig.connection.answer(lost())
                await pass_time(1.0)
            rig.connection.answer(lost())
            await pass_time(0.2)
            assert rig.sent_values() == []
            rig.sender.connected(NODE)
            await pass_time(0.09)
            assert rig.sent_values() == []
            await pass_time(0.01)
            assert rig.sent_values() == [[b"value"]]

    @in_virtual_time
    async def test_one_in_a_task_of_its_own_ends_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(*_: object) -> None:
            await asyncio.sleep(0)
            raise LookupError("a bug")

        monkeypatch.setattr(Encoder, "encode_off_loop", fail)
        async with Rig(codec=Codec.GZIP) as rig:
            rig.fill(LARGE)
            await pass_time(LINGER_S)
            assert isinstance(rig.running.exception(), LookupError)
