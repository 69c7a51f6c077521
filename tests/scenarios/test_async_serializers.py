"""Serializers that await: the order of a topic, and the waits of its calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextvars import ContextVar
from typing import Any

import pytest

from aioproducer import (
    BufferTimeout,
    Producer,
    RecordTooLarge,
    SendManyError,
    SerializationError,
    SerializerTimeout,
    SerializerUnavailable,
)
from tests.cases import for_each
from tests.scenarios.awaiting import (
    DECLARED,
    HUNG,
    PLAIN,
    SeesTopic,
    begin,
    coroutine_of,
    delays,
    encode,
    every_shape,
    logged,
    named,
    serving,
    sometimes,
)
from tests.scenarios.rig import TOPIC, cluster as open_cluster, now, producing, scenario, settle, values


class TestOrder:
    @every_shape
    @for_each("count", [1, 3, 50])
    @scenario
    async def test_calls_keep_their_order(self, shape: str, count: int) -> None:
        async with serving(value_serializer=named(shape)) as (producer, opened):
            records = delays(count)
            sent = await asyncio.gather(*(producer.send(TOPIC, each) for each in records))
            assert logged(opened) == records
            assert [each.offset for each in sent] == list(range(count))

    @every_shape
    @scenario
    async def test_mixed_send_calls_keep_their_order(self, shape: str) -> None:
        async with serving(value_serializer=named(shape)) as (producer, opened):
            await asyncio.gather(
                producer.send(TOPIC, "a:0.2"),
                producer.enqueue(TOPIC, "b"),
                producer.send(TOPIC, "c", timeout_s=5),
                producer.send_many(TOPIC, ["d:0.1", "e"]),
            )
            await producer.flush()
            assert logged(opened) == ["a:0.2", "b", "c", "d:0.1", "e"]

    @every_shape
    @scenario
    async def test_first_record_of_a_topic_waits_for_both(self, shape: str) -> None:
        async with producing(acquainted=False, value_serializer=named(shape)) as (producer, opened):
            await asyncio.gather(*(producer.send(TOPIC, each) for each in ("a:0.2", "b", "c:0.1")))
            assert logged(opened) == ["a:0.2", "b", "c:0.1"]

    @scenario
    async def test_order_is_kept_while_memory_is_short(self) -> None:
        async with serving(value_serializer=encode, buffer_memory=4_000, max_request_size=4_000) as (
            producer,
            opened,
        ):
            records = [f"{index}{'x' * 700}:0.01" for index in range(30)]
            records = [each if int(each[0]) % 2 else each.removesuffix(":0.01") for each in records]
            await asyncio.gather(*(producer.send(TOPIC, each) for each in records))
            assert logged(opened) == records

    @scenario
    async def test_slow_serializer_delays_no_other_topic(self) -> None:
        async with (
            open_cluster() as opened,
            Producer(opened.bootstrap_servers, value_serializer=encode) as producer,
        ):
            await producer.partitions_for("acquaintance")
            await producer.partitions_for(TOPIC)
            waits = begin(producer.send(TOPIC, "slow:10"))
            await asyncio.sleep(0.1)
            await producer.send("acquaintance", "fast")
            assert now() < 5
            await waits

    @scenario
    async def test_key_is_awaited_before_the_value(self) -> None:
        seen: list[str] = []

        async def note(value: str) -> bytes:
            seen.append(f"begin {value}")
            await asyncio.sleep(0.1)
            seen.append(f"end {value}")
            return value.encode()

        async with serving(key_serializer=note, value_serializer=note) as (producer, opened):
            await producer.send(TOPIC, "value", "key")
            assert seen == ["begin key", "end key", "begin value", "end value"]
            [record] = opened.records(TOPIC, 0)
            assert (record.key, record.value) == (b"key", b"value")

    @pytest.mark.parametrize("many", [False, True])
    @scenario
    async def test_key_stays_when_the_value_alone_awaits(self, many: bool) -> None:
        keys: list[str] = []

        def key_once(key: str) -> bytes:
            keys.append(key)
            return key.upper().encode()

        async with serving(key_serializer=key_once, value_serializer=coroutine_of) as (
            producer,
            opened,
        ):
            if many:
                await producer.send_many(TOPIC, ["a", "b:0.1"], keys=["x", "y"])
            else:
                await producer.send(TOPIC, "a", "x")
                await producer.send(TOPIC, "b:0.1", "y")
            assert keys == ["x", "y"]
            assert [record.key for record in opened.records(TOPIC, 0)] == [b"X", b"Y"]

    @pytest.mark.parametrize("many", [False, True])
    @scenario
    async def test_headers_of_serializers_are_sent(self, many: bool) -> None:
        async with serving(key_serializer=SeesTopic(), value_serializer=SeesTopic()) as (producer, opened):
            if many:
                await producer.send_many(TOPIC, ["v:0.1"], keys=["k"], common_headers={"own": b"1"})
            else:
                await producer.send(TOPIC, "v:0.1", "k", headers={"own": b"1"})
            [record] = opened.records(TOPIC, 0)
            assert list(record.headers) == [("own", b"1"), ("for", b"orders"), ("for", b"orders")]

    @scenario
    async def test_serializer_sees_the_context_of_its_call(self) -> None:
        tenant: ContextVar[str] = ContextVar("tenant", default="none")

        async def prefixed(value: str) -> bytes:
            await asyncio.sleep(0.1)
            return f"{tenant.get()} {value}".encode()

        async def send(name: str) -> None:
            tenant.set(name)
            await producer.send(TOPIC, "v")

        async with serving(value_serializer=prefixed) as (producer, opened):
            await asyncio.gather(send("a"), send("b"), send("c"))
            assert logged(opened) == ["a v", "b v", "c v"]


class TestSendNowait:
    @pytest.mark.parametrize("shape", DECLARED)
    @scenario
    async def test_async_serializer_is_refused_always(self, shape: str) -> None:
        async with serving(value_serializer=named(shape)) as (producer, opened):
            for topic in (TOPIC, "unknown"):
                with pytest.raises(
                    TypeError, match=r"^value_serializer .*send_nowait.* use send or enqueue$"
                ):
                    _ = producer.send_nowait(topic, "v")
            waits = begin(producer.send(TOPIC, "a:0.1"))
            await settle()
            with pytest.raises(TypeError, match="value_serializer"):
                _ = producer.send_nowait(TOPIC, "b")
            await waits
            assert logged(opened) == ["a:0.1"]

    @pytest.mark.parametrize("shape", PLAIN)
    @scenario
    async def test_awaitable_result_is_refused(self, shape: str) -> None:
        async with serving(key_serializer=named(shape)) as (producer, opened):
            with pytest.raises(TypeError, match=r"^key_serializer .*: the serializer is async"):
                _ = producer.send_nowait(TOPIC, b"v", "k:1")
            await settle()
            assert values(opened) == []

    @scenario
    async def test_bytes_of_a_serializer_that_awaits_at_times_are_sent(self) -> None:
        async with serving(value_serializer=sometimes) as (producer, opened):
            await producer.send_nowait(TOPIC, "at once")
            assert logged(opened) == ["at once"]


class TestCancellation:
    @every_shape
    @scenario
    async def test_cancelled_call_is_withdrawn(self, shape: str) -> None:
        async with serving(value_serializer=named(shape)) as (producer, opened):
            hung = begin(producer.send(TOPIC, HUNG))
            later = [begin(producer.send(TOPIC, each)) for each in ("a:0.1", "b")]
            await settle()
            hung.cancel()
            await asyncio.gather(*later)
            assert hung.cancelled()
            assert logged(opened) == ["a:0.1", "b"]
            assert producer.metrics()["producer"]["calls_waiting"] == 0

    @every_shape
    @scenario
    async def test_queued_call_leaves_when_cancelled(self, shape: str) -> None:
        async with serving(value_serializer=named(shape)) as (producer, opened):
            first = begin(producer.send(TOPIC, "a:0.5"))
            queued = [begin(producer.send(TOPIC, each)) for each in ("b:0.1", "c:0.1", "d")]
            await settle()
            queued[0].cancel()
            await asyncio.sleep(0.5)  # the next call has its turn in this iteration
            queued[1].cancel()
            await asyncio.gather(first, queued[2])
            assert logged(opened) == ["a:0.5", "d"]

    @every_shape
    @scenario
    async def test_cancelled_send_many_keeps_its_first_chunks(self, shape: str) -> None:
        async with serving(value_serializer=named(shape)) as (producer, opened):
            sending = begin(producer.send_many(TOPIC, ["a", "b:0.1", HUNG, "c"]))
            await asyncio.sleep(1)
            sending.cancel()
            await producer.send(TOPIC, "d")
            assert logged(opened) == ["a", "b:0.1", "d"]


class TestFailures:
    @every_shape
    @scenario
    async def test_hung_serializer_fails_its_record_in_time(self, shape: str) -> None:
        async with serving(value_serializer=named(shape), max_block_ms=5_000) as (producer, opened):
            began = now()
            hung = begin(producer.send(TOPIC, HUNG))
            await asyncio.sleep(2)
            later = begin(producer.send(TOPIC, "later"))
            with pytest.raises(
                SerializerTimeout, match=r"value of a record for 'orders' .*value_serializer .* 5\.000 s"
            ) as raised:
                await hung
            assert now() - began == pytest.approx(5, abs=0.1)
            assert isinstance(raised.value, TimeoutError)
            assert isinstance(raised.value, SerializerUnavailable)
            assert (raised.value.retriable, raised.value.possibly_persisted) == (True, False)
            await later
            assert logged(opened) == ["later"]

    @scenario
    async def test_call_behind_a_hung_serializer_names_the_calls(self) -> None:
        async with serving(value_serializer=encode, max_block_ms=5_000) as (producer, _):
            outcomes = await asyncio.gather(
                *(producer.send(TOPIC, each) for each in (HUNG, "a", "b")), return_exceptions=True
            )
            assert [type(each) for each in outcomes] == [SerializerTimeout, BufferTimeout, BufferTimeout]
            assert all("earlier calls for 'orders'" in str(each) for each in outcomes[1:])

    @scenario
    async def test_timeout_of_the_call_bounds_the_serializer(self) -> None:
        async with serving(value_serializer=encode) as (producer, _):
            began = now()
            with pytest.raises(SerializerTimeout, match=r"timeout_s"):
                await producer.send(TOPIC, HUNG, timeout_s=0.5)
            assert now() - began < 1

    @pytest.mark.parametrize("stubborn", [ValueError("no"), None])
    @scenario
    async def test_timeout_counts_when_the_serializer_catches_it(self, stubborn: Exception | None) -> None:
        async def catch(value: str) -> bytes:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if stubborn is not None:
                    raise stubborn from None
            return b"late"

        async with serving(value_serializer=catch, max_block_ms=1_000) as (producer, opened):
            with pytest.raises(SerializerTimeout):
                await producer.send(TOPIC, "v")
            assert values(opened) == []

    @for_each("many", [False, True])
    @for_each(
        ("error", "kind"),
        [
            (KeyError("field"), SerializationError),
            (ConnectionRefusedError("registry"), SerializerUnavailable),
            (TimeoutError("registry"), SerializerUnavailable),
        ],
    )
    @for_each("is_plain", [False, True])
    @scenario
    async def test_error_fails_the_record_alone(
        self, is_plain: bool, error: Exception, kind: type[SerializationError], many: bool
    ) -> None:
        async def failing(value: str) -> bytes:
            await asyncio.sleep(0.1)
            if value == "bad":
                raise error
            return value.encode()

        def plainly(value: str) -> Awaitable[bytes]:
            return failing(value)

        async with serving(value_serializer=plainly if is_plain else failing) as (
            producer,
            opened,
        ):
            if many:
                with pytest.raises(SendManyError) as raised:
                    await producer.send_many(TOPIC, ["a", "bad", "b"])
                [(position, failure)] = raised.value.result.failures.items()
                assert position == 1
                subject = "value of record 1 for 'orders'"
            else:
                outcomes = await asyncio.gather(
                    *(producer.send(TOPIC, each) for each in ("a", "bad", "b")), return_exceptions=True
                )
                [failure] = [each for each in outcomes if isinstance(each, SerializationError)]
                subject = "value of a record for 'orders'"
            assert type(failure) is kind
            assert subject in str(failure)
            assert failure.__cause__ is error
            assert logged(opened) == ["a", "b"]

    @pytest.mark.parametrize("many", [False, True])
    @scenario
    async def test_result_must_be_bytes_of_a_legal_size(self, many: bool) -> None:
        async def odd(value: Any) -> Any:
            await asyncio.sleep(0.1)
            return value

        async with serving(value_serializer=odd, max_request_size=1_000) as (producer, opened):
            if many:
                with pytest.raises(SendManyError) as raised:
                    await producer.send_many(TOPIC, ["text", b"x" * 2_000, bytearray(b"v")])
                failures = [type(each) for each in raised.value.result.failures.values()]
                assert failures == [SerializationError, RecordTooLarge]
            else:
                with pytest.raises(SerializationError, match="the result of value_serializer must be bytes"):
                    await producer.send(TOPIC, "text")
                with pytest.raises(RecordTooLarge):
                    await producer.send(TOPIC, b"x" * 2_000)
                await producer.send(TOPIC, bytearray(b"v"))
            assert logged(opened) == ["v"]

    @every_shape
    @scenario
    async def test_hung_serializer_fails_the_rest_of_send_many(self, shape: str) -> None:
        async with serving(value_serializer=named(shape), max_block_ms=5_000) as (producer, opened):
            began = now()
            with pytest.raises(SendManyError) as raised:
                await producer.send_many(TOPIC, ["a", "b:0.1", HUNG, "c", "d"])
            failures = raised.value.result.failures
            assert list(failures) == [2, 3, 4]
            assert {type(each) for each in failures.values()} == {SerializerTimeout}
            assert "record 2 for 'orders'" in str(failures[2])
            assert now() - began < 7
            assert logged(opened) == ["a", "b:0.1"]

    @every_shape
    @scenario
    async def test_send_many_appends_before_it_awaits(self, shape: str) -> None:
        async with serving(value_serializer=named(shape), max_block_ms=5_000) as (producer, opened):
            sending = begin(producer.send_many(TOPIC, ["a", "b", HUNG]))
            await asyncio.sleep(1)
            assert logged(opened) == ["a", "b"]
            sending.cancel()
            await asyncio.wait([sending])

    @scenario
    async def test_send_many_lets_other_calls_between_its_records(self) -> None:
        async with serving(value_serializer=encode) as (producer, opened):
            sending = begin(producer.send_many(TOPIC, ["a:1", "b:1", "c:1"]))
            await settle()
            await producer.send(TOPIC, "between")
            await sending
            assert logged(opened) == ["a:1", "between", "b:1", "c:1"]
