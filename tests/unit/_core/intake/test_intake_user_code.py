from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, ClassVar, cast

import pytest

from aioproducer._core.batching.batch import RecordFuture
from aioproducer._core.intake.appending import PendingAppend, WaitingCall
from aioproducer._core.partitioning import CallablePartitioner, RoundRobinPartitioner
from aioproducer.errors import ProducerError, RecordTooLarge, SerializationError
from aioproducer.serializers import HeaderList, Serializer, string_serializer
from aioproducer.testing import in_virtual_time
from aioproducer.types import HeadersInput, ProducerRecord
from tests.unit._core.intake.intake_rig import NOW_MS, Rig, Spy
from tests.unit.floor_rig import TOPIC, settle


class TestSerializers:
    async def test_serializers_convert_any_object_to_bytes(self) -> None:
        rig = Rig(key_serializer=string_serializer, value_serializer=lambda value: b"%d" % value)
        rig.put(5, "key")
        assert rig.records() == [(b"5", b"key", (), NOW_MS)]

    async def test_mutable_result_of_a_serializer_is_copied(self) -> None:
        buffer = bytearray(b"before")
        rig = Rig(value_serializer=lambda _: buffer)
        rig.put("anything")
        buffer[:] = b"after!"
        assert rig.records()[0][0] == b"before"

    @pytest.mark.parametrize("argument", ["key", "value"])
    async def test_exception_of_a_serializer_is_the_cause(self, argument: str) -> None:
        rig = Rig(**{f"{argument}_serializer": int.to_bytes})  # type: ignore[arg-type]
        with pytest.raises(
            SerializationError,
            match=rf"the {argument} of a record for 'orders' \(str\) could not be serialized",
        ) as raised:
            rig.try_append(**cast("Any", {"value": b"v", argument: "text"}))
        assert isinstance(raised.value.__cause__, TypeError)
        assert rig.queued == 0

    async def test_serializer_sees_topic_and_headers_and_may_add_headers(self) -> None:
        class Marks:
            def serialize(self, topic: str, headers: HeaderList, value: Any) -> bytes:
                headers.append(("schema", b"x" * 800))
                return f"{topic} {value}".encode()

        rig = Rig(value_serializer=Marks(), max_request_bytes=1_000)
        rig.put(5, b"key", headers={"own": b"1"})
        assert rig.records() == [(b"orders 5", b"key", (("own", b"1"), ("schema", b"x" * 800)), NOW_MS)]
        with pytest.raises(RecordTooLarge):
            rig.try_append("y" * 200)

    async def test_serializer_has_to_return_bytes(self) -> None:
        rig = Rig(value_serializer=cast("Serializer", str))
        with pytest.raises(
            SerializationError, match=r"the result of value_serializer must be bytes.* not str"
        ):
            rig.try_append(5)


class TestPartitioners:
    async def test_partitioner_without_stickiness_gets_keyless_records(self) -> None:
        rig = Rig(partitions=3, partitioner=RoundRobinPartitioner())
        for _ in range(3):
            rig.put()
        assert [len(rig.records(partition)) for partition in range(3)] == [1, 1, 1]

    async def test_partitioner_is_not_called_for_a_given_partition(self) -> None:
        rig = Rig(partitions=2, partitioner=CallablePartitioner(lambda *_: pytest.fail("asked")))
        rig.put(partition=1)

    @pytest.mark.parametrize("headers", [(), {"h": b"1"}])
    async def test_exception_of_a_partitioner_is_the_cause(self, headers: HeadersInput) -> None:
        error = LookupError("no idea")

        def fail(*_: object) -> int:
            raise error

        rig = Rig(partitions=2, partitioner=CallablePartitioner(fail))
        with pytest.raises(ProducerError, match=r"the partitioner failed .* 'orders': no idea") as raised:
            rig.try_append(b"v", b"k", headers=headers)
        assert raised.value.__cause__ is error
        assert rig.queued == 0

    @pytest.mark.parametrize("chosen", [-1, 2, "0"])
    async def test_partitioner_has_to_choose_an_existing_partition(self, chosen: Any) -> None:
        class Odd:
            keyless_is_sticky: ClassVar[bool] = False

            def partition(self, *_: object) -> int | None:
                return cast("int", chosen)

        rig = Rig(partitions=2, partitioner=Odd())
        with pytest.raises(ProducerError, match="the partitioner failed"):
            rig.try_append()
        assert rig.queued == 0


class TestInterceptors:
    async def test_interceptors_see_the_record_and_may_change_it(self) -> None:
        def change(record: ProducerRecord) -> ProducerRecord:
            return ProducerRecord(
                record.topic, b"new", key=b"key", partition=1, headers={"h": bytearray(b"1")}, timestamp_ms=9
            )

        spy = Spy(change)
        rig = Rig(partitions=2, interceptors=[spy])
        rig.put(b"old")
        assert spy.seen == [ProducerRecord(TOPIC, b"old")]
        assert rig.records(1) == [(b"new", b"key", (("h", b"1"),), 9)]

    async def test_interceptors_run_before_the_serializers(self) -> None:
        spy = Spy(lambda record: ProducerRecord(record.topic, record.value + 1))
        rig = Rig(interceptors=[spy], value_serializer=lambda value: b"%d" % value)
        rig.put(5)
        assert rig.records()[0][0] == b"6"

    async def test_interceptors_may_choose_another_topic(self) -> None:
        rig = Rig(interceptors=[Spy(lambda record: ProducerRecord("audit", record.value))])
        rig.learn("audit", 1)
        rig.put()
        assert rig.queued == 1
        assert rig.queue(0).idle

    async def test_record_returned_by_an_interceptor_is_checked(self) -> None:
        spy = Spy(lambda record: ProducerRecord(record.topic, "text"))
        rig = Rig(interceptors=[spy])
        with pytest.raises(
            ProducerError, match="an interceptor returned an invalid record for 'orders': value must be bytes"
        ):
            rig.try_append()
        assert [type(error) for error, _ in spy.errors] == [ProducerError]

    async def test_wrong_argument_is_not_blamed_on_an_interceptor(self) -> None:
        rig = Rig(interceptors=[Spy()])
        with pytest.raises(TypeError, match=r"^value must be bytes"):
            rig.try_append("text")

    async def test_interceptors_receive_a_record_that_fails_before_append(self) -> None:
        spy = Spy()
        rig = Rig(partitions=2, interceptors=[spy], value_serializer=string_serializer)
        for partition in (None, 1):
            with pytest.raises(SerializationError):
                rig.try_append(5, partition=partition)
        assert [(type(error), where) for error, where in spy.errors] == [
            (SerializationError, (TOPIC, -1)),
            (SerializationError, (TOPIC, 1)),
        ]


class Encoder:
    """Serializer that is a plain function and returns a coroutine."""

    def __init__(self) -> None:
        self.made: list[Coroutine[Any, Any, bytes]] = []

    def __call__(self, value: str) -> Any:
        self.made.append(self._encode(value))
        return self.made[-1]

    async def _encode(self, value: str) -> bytes:
        return value.encode()


class Awaiting:
    """Awaitable that is neither a coroutine nor a Future."""

    def __init__(self, _: str) -> None:
        pass

    def __await__(self) -> Any:
        pytest.fail("send_nowait awaits nothing")


class TestAwaitables:
    """Awaitables returned by serializers that are not coroutine functions."""

    @staticmethod
    def wait(rig: Rig, pending: PendingAppend) -> asyncio.Task[RecordFuture]:
        return asyncio.create_task(rig.intake.append_when_possible(pending, rig.loop.time(), None))

    @pytest.mark.parametrize("field", ["key", "value"])
    @pytest.mark.parametrize("entry", ["pending", "intake.check"])
    @in_virtual_time
    async def test_awaitable_is_awaited_once(self, field: str, entry: str) -> None:
        encoder = Encoder()
        serializers: dict[str, Any] = {"key_serializer": str.encode, "value_serializer": str.encode}
        rig = Rig(**(serializers | {f"{field}_serializer": encoder}))
        if entry == "pending":
            pending = rig.pending("value", "key")
        else:
            pending = rig.intake.check(TOPIC, "value", "key", None, (), None)
        assert len(encoder.made) == (entry == "pending")
        _ = await self.wait(rig, pending)
        assert rig.records() == [(b"value", b"key", (), NOW_MS)]
        assert len(encoder.made) == 1

    @staticmethod
    async def attempted(rig: Rig) -> asyncio.Task[RecordFuture]:
        """Return a call for which another call has attempted the append."""
        before = WaitingCall()
        before.partition = None
        before.begin(rig.accumulator.topics[TOPIC], rig.accumulator, rig.updater.real)
        await before.take_turn(1e9)
        waiting = TestAwaitables.wait(rig, rig.intake.check(TOPIC, "v", None, None, (), None))
        await settle()
        before.end_turn()
        return waiting

    @in_virtual_time
    async def test_awaitable_of_an_attempt_is_awaited_by_its_call(self) -> None:
        encoder = Encoder()
        rig = Rig(value_serializer=encoder)
        waiting = await self.attempted(rig)
        assert (len(encoder.made), rig.queued) == (1, 0)
        _ = await waiting
        assert [value for value, *_ in rig.records()] == [b"v"]
        assert len(encoder.made) == 1

    @in_virtual_time
    async def test_cancelled_call_drops_the_awaitable(self) -> None:
        encoder = Encoder()
        rig = Rig(value_serializer=encoder)
        waiting = await self.attempted(rig)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert [inspect.getcoroutinestate(each) for each in encoder.made] == ["CORO_CLOSED"]
        assert rig.queued == 0

    @pytest.mark.parametrize("serializer", [Encoder(), Awaiting])
    async def test_refusal_names_the_serializer(self, serializer: Any) -> None:
        spy = Spy()
        rig = Rig(value_serializer=serializer, interceptors=[spy])
        error = rig.intake.refusal(rig.pending("v"))
        assert isinstance(error, TypeError)
        name = getattr(serializer, "__qualname__", "Encoder")
        assert str(error) == (
            f"value_serializer {name}: the serializer is async, and send_nowait awaits nothing; use send or enqueue"
        )
        assert [reported.__cause__ for reported, _ in spy.errors] == [error]
