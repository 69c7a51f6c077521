"""The start of a producer, and its end by `close` or by a bug."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import (
    ConnectionFailed,
    DeliveryTimeout,
    Interceptor,
    Murmur2Partitioner,
    Producer,
    ProducerClosed,
    ProducerError,
    State,
)
from aioproducer._core.sender.loop import Sender
from aioproducer.testing import in_virtual_time
from tests.unit.floor_rig import settle
from tests.unit.producer_rig import SERVERS, TOPIC, cluster, now, started


class Spy(Interceptor):
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class TestStart:
    @in_virtual_time
    async def test_start_moves_the_state_to_ready(self) -> None:
        async with cluster() as broker:
            producer = Producer(broker.bootstrap_servers)
            starting = asyncio.create_task(producer.start())
            await asyncio.sleep(0)
            states = [producer.state]
            await starting
            states.append(producer.state)
            await producer.close()
            states.append(producer.state)
            assert states == [State.STARTING, State.READY, State.CLOSED]

    @in_virtual_time
    async def test_producer_may_be_started_once(self) -> None:
        async with cluster() as broker:
            producer = Producer(broker.bootstrap_servers)
            starting = asyncio.create_task(producer.start())
            await asyncio.sleep(0)
            with pytest.raises(ProducerClosed, match="started once; this one is starting"):
                await producer.start()
            await starting
            with pytest.raises(ProducerClosed, match="started once; this one is ready"):
                await producer.start()
            await producer.close()
            with pytest.raises(ProducerClosed, match="started once; this one is closed"):
                await producer.start()

    @in_virtual_time
    async def test_start_can_be_repeated_after_failure_or_cancellation(self) -> None:
        async with cluster() as broker:
            producer = Producer(broker.bootstrap_servers)
            await broker.stop_broker(1)
            with pytest.raises(ConnectionFailed):
                await producer.start()
            assert producer.state == "new"
            await broker.start_broker(1)
            broker.freeze_broker(1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await producer.start()
            assert producer.state == "new"
            broker.thaw_broker(1)
            async with producer:
                assert producer.state == "ready"


class TestDegraded:
    @in_virtual_time
    async def test_state_is_degraded_while_no_broker_is_reachable(self) -> None:
        async with started() as (producer, broker):
            await producer.send(TOPIC, b"v")
            await broker.stop_broker(1)
            await asyncio.sleep(1)
            state = producer.state
            await broker.start_broker(1)
            await producer.send(TOPIC, b"v")
            assert (state, producer.state) == (State.DEGRADED, State.READY)


class TestClose:
    @in_virtual_time
    async def test_close_of_an_unstarted_producer_returns_0(self) -> None:
        producer = Producer(SERVERS)
        assert await producer.close() == 0
        assert await producer.close() == 0
        assert producer.state == "closed"

    @in_virtual_time
    async def test_close_sends_appended_records(self) -> None:
        async with started(linger_ms=1_000) as (producer, _):
            future = await producer.enqueue(TOPIC, b"v")
            assert await producer.close() == 0
            assert future.result().offset == 0
            assert await producer.close() == 0

    @in_virtual_time
    async def test_close_logs_the_records_that_it_waits_for(self, caplog: pytest.LogCaptureFixture) -> None:
        async with started() as (producer, broker):
            await producer.send(TOPIC, b"v")
            broker.freeze_broker(1)
            _ = await producer.enqueue(TOPIC, b"v", partition=0)
            assert await producer.close(40) == 1
            broker.thaw_broker(1)
        told = [each.getMessage() for each in caplog.records if each.getMessage().startswith("close.waiting")]
        assert [each.split(" oldest")[0] for each in told] == [
            "close.waiting records=1 for_at_most_s=39.0",
            "close.waiting records=1 for_at_most_s=9.0",
        ]
        assert f"oldest={TOPIC}-0 last_error=None" in told[0]

    @in_virtual_time
    async def test_short_close_logs_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        async with started() as (producer, _):
            _ = await producer.enqueue(TOPIC, b"v")
            await producer.close()
            await asyncio.sleep(100)
        assert "close.waiting" not in caplog.text

    @in_virtual_time
    async def test_close_does_not_wait_for_records_past_their_timeout(self) -> None:
        async with started() as (producer, broker):
            await producer.send(TOPIC, b"v")
            broker.freeze_broker(1)
            sending = [asyncio.create_task(producer.send(TOPIC, b"v", timeout_s=each)) for each in (1, 5)]
            began_at = now()
            await asyncio.sleep(2)
            assert await producer.close() == 0
            assert now() - began_at == 5
            for each in sending:
                with pytest.raises(DeliveryTimeout):
                    await each
            broker.thaw_broker(1)

    @in_virtual_time
    async def test_close_waits_for_the_record_of_a_cancelled_call(self) -> None:
        async with started() as (producer, broker):
            await producer.send(TOPIC, b"v", partition=0)
            broker.freeze_broker(1)
            sending = asyncio.create_task(producer.send(TOPIC, b"v", partition=0))
            await asyncio.sleep(1)
            sending.cancel()
            asyncio.get_running_loop().call_later(3, broker.thaw_broker, 1)
            began_at = now()
            assert await producer.close() == 0
            assert now() - began_at >= 3
            assert len(broker.records(TOPIC, 0)) == 2

    @in_virtual_time
    async def test_unclosed_producer_emits_a_resource_warning(self) -> None:
        async with cluster() as broker:
            producer = Producer(broker.bootstrap_servers)
            await producer.start()
            with pytest.warns(ResourceWarning, match="unclosed producer aioproducer-.*: use `async with`"):
                producer.__del__()
            await producer.close()
            producer.__del__()
            Producer(SERVERS).__del__()

    @pytest.mark.parametrize("timeout_s", [0, 2])
    @in_virtual_time
    async def test_close_fails_records_without_an_outcome_in_time(self, timeout_s: float) -> None:
        async with started() as (producer, broker):
            await producer.send(TOPIC, b"v")
            broker.freeze_broker(1)
            futures = [await producer.enqueue(TOPIC, b"v") for _ in range(3)]
            began_at = now()
            assert await producer.close(timeout_s) == 3
            assert now() - began_at == timeout_s
            assert [type(future.exception()) for future in futures] == [ProducerClosed] * 3
            broker.thaw_broker(1)

    @in_virtual_time
    async def test_cancelled_close_fails_everything_first(self) -> None:
        async with started() as (producer, broker):
            await producer.send(TOPIC, b"v")
            broker.freeze_broker(1)
            future = await producer.enqueue(TOPIC, b"v")
            closing = asyncio.create_task(producer.close())
            await settle()
            assert producer.state == "closing"
            closing.cancel()
            await asyncio.wait([closing])
            assert closing.cancelled()
            assert isinstance(future.exception(), ProducerClosed)
            assert producer.state == "closed"
            broker.thaw_broker(1)

    @in_virtual_time
    async def test_close_ends_a_running_start(self) -> None:
        async with cluster() as broker:
            broker.freeze_broker(1)
            producer = Producer(broker.bootstrap_servers)
            starting = asyncio.create_task(producer.start())
            await settle()
            assert await producer.close() == 0
            with pytest.raises(ProducerClosed):
                await starting
            assert producer.state == "closed"
            broker.thaw_broker(1)

    @in_virtual_time
    async def test_concurrent_closes_close_interceptors_once(self) -> None:
        spy = Spy()
        async with started(interceptors=[spy]) as (producer, _):
            future = await producer.enqueue(TOPIC, b"v")
            assert list(await asyncio.gather(producer.close(), producer.close(), producer.close(5))) == [
                0,
                0,
                0,
            ]
            assert future.result().offset == 0
        assert spy.closed == 1

    @in_virtual_time
    async def test_close_with_a_negative_timeout_is_refused(self) -> None:
        async with started() as (producer, _):
            with pytest.raises(ValueError, match="timeout_s must be 0 or more"):
                await producer.close(-1)
            assert producer.state == "ready"

    def test_close_works_after_its_event_loop_ended(self) -> None:
        spy = Spy()
        producers: list[Producer] = []

        async def forget_to_close() -> None:
            async with cluster() as broker:
                producer = Producer(broker.bootstrap_servers, interceptors=[spy])
                producers.append(producer)
                await producer.start()
                await producer.send(TOPIC, b"v")

        asyncio.run(forget_to_close())
        assert asyncio.run(producers[0].close()) == 0
        assert producers[0].state == "closed"
        assert spy.closed == 1


class TestUserCode:
    @in_virtual_time
    async def test_serializers_and_partitioner_are_closed_once(self) -> None:
        closed: list[str] = []

        class Closing:
            keyless_is_sticky = True

            def __init__(self, name: str) -> None:
                self.name = name

            def __call__(self, value: bytes) -> bytes:
                return value

            def close(self) -> None:
                closed.append(self.name)

        class ClosingPartitioner(Murmur2Partitioner):
            def close(self) -> None:
                closed.append("partitioner")

        async with started(
            key_serializer=Closing("key"), value_serializer=Closing("value"), partitioner=ClosingPartitioner()
        ) as (producer, _):
            await producer.send(TOPIC, b"v", b"k")
            assert closed == []
        assert await producer.close() == 0
        assert closed == ["key", "value", "partitioner"]

    @in_virtual_time
    async def test_failing_close_of_user_code_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        closed: list[str] = []

        class Failing:
            def __call__(self, value: bytes) -> bytes:
                return value

            def close(self) -> None:
                raise LookupError("a bug")

        class Asynchronous(Failing):
            async def close(self) -> None:  # type: ignore[override]
                closed.append("never")

        class ClosingPartitioner(Murmur2Partitioner):
            def close(self) -> None:
                closed.append("partitioner")

        async with started(
            key_serializer=Failing(), value_serializer=Asynchronous(), partitioner=ClosingPartitioner()
        ):
            pass
        assert closed == ["partitioner"]
        (warned,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        assert warned.startswith("close.failed of=")
        assert warned.endswith(".Failing error=LookupError")


class TestCrash:
    @in_virtual_time
    async def test_later_calls_raise_producer_closed_caused_by_the_bug(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bug = LookupError("a bug")

        def fail(_: Sender) -> None:
            raise bug

        async with started() as (producer, _):
            await producer.send(TOPIC, b"v")
            monkeypatch.setattr(Sender, "_run_once", fail)
            with pytest.raises(ProducerError, match="the sender task ended because of a bug in aioproducer"):
                await producer.send(TOPIC, b"v")
            await settle()
            assert producer.state == "closed"
            with pytest.raises(ProducerClosed) as refused:
                await producer.send(TOPIC, b"v")
            assert refused.value.__cause__ is bug
            assert await producer.close() == 0
            assert await producer.close() == 0
        assert producer.state == "closed"

    @in_virtual_time
    async def test_interceptors_are_closed_by_close_after_a_bug(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: Sender) -> None:
            raise LookupError("a bug")

        spy = Spy()
        async with started(interceptors=[spy]) as (producer, _):
            monkeypatch.setattr(Sender, "_run_once", fail)
            with pytest.raises(ProducerError):
                await producer.send(TOPIC, b"v")
            await settle()
            assert spy.closed == 0
            _ = await producer.close(0)
            assert spy.closed == 1
        assert spy.closed == 1

    @in_virtual_time
    async def test_bug_during_close_still_closes_the_producer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(_: Sender) -> None:
            raise LookupError("a bug")

        async with started() as (producer, broker):
            await producer.send(TOPIC, b"v")
            broker.freeze_broker(1)
            future = await producer.enqueue(TOPIC, b"v")
            monkeypatch.setattr(Sender, "_run_once", fail)
            assert await producer.close() == 0
            assert isinstance(future.exception(), ProducerError)
            broker.thaw_broker(1)
        assert producer.state == "closed"
