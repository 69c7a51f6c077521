"""Signatures and behaviour of the compatible producer. tests/scenarios compares it with aiokafka."""

from __future__ import annotations

import asyncio
import gc
import inspect
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
import pytest
from aiokafka.producer.message_accumulator import BatchBuilder as TheirBatchBuilder

from aioproducer import BrokerError, MessageTooLarge, NotEnoughReplicas, TopicAuthorizationFailed
from aioproducer._core.intake.many import CHUNK_RECORDS
from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.compat.aiokafka.aiokafka_producer import BatchBuilder
from aioproducer.compat.aiokafka.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    NodeNotReadyError,
    ProducerClosed,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aioproducer.testing import Cluster, in_virtual_time
from tests.cases import for_each
from tests.unit.producer_rig import SERVERS, TOPIC, cluster

FILLED_IN_LATER = {"acks", "partitioner"}
"""Their defaults are objects that only aiokafka can name."""


@asynccontextmanager
async def started(**options: Any) -> AsyncIterator[tuple[AIOKafkaProducer, Cluster]]:
    async with (
        cluster() as broker,
        AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **options) as producer,
    ):
        yield producer, broker


def filled(producer: AIOKafkaProducer, *values: bytes) -> BatchBuilder:
    batch = producer.create_batch()
    for value in values:
        batch.append(timestamp=None, key=None, value=value)
    return batch


def shape(call: Callable[..., Any]) -> list[tuple[str, Any, bool]]:
    parameters = inspect.signature(call).parameters.values()
    return [(each.name, each.kind, each.default is each.empty) for each in parameters]


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


class TestSignatures:
    def test_constructor_has_the_signature_of_aiokafka(self) -> None:
        ours = inspect.signature(AIOKafkaProducer).parameters
        theirs = inspect.signature(aiokafka.AIOKafkaProducer).parameters
        assert [(each.name, each.kind) for each in ours.values()] == [
            (each.name, each.kind) for each in theirs.values()
        ]
        for name in theirs.keys() - FILLED_IN_LATER:
            assert ours[name].default == theirs[name].default, name

    @for_each("name", sorted(public(aiokafka.AIOKafkaProducer)))
    def test_method_has_the_signature_of_aiokafka(self, name: str) -> None:
        ours, theirs = getattr(AIOKafkaProducer, name), getattr(aiokafka.AIOKafkaProducer, name)
        assert shape(ours) == shape(theirs)
        assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs)

    @for_each("name", sorted(public(TheirBatchBuilder)))
    def test_method_of_a_batch_has_the_signature_of_aiokafka(self, name: str) -> None:
        assert shape(getattr(BatchBuilder, name)) == shape(getattr(TheirBatchBuilder, name))

    def test_public_names_are_those_of_aiokafka(self) -> None:
        assert public(AIOKafkaProducer) == public(aiokafka.AIOKafkaProducer)


class TestConstruction:
    def test_constructor_needs_no_event_loop(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=SERVERS)
        asyncio.run(producer.stop())

    @pytest.mark.parametrize("option", ["loop", "api_version"])
    def test_arguments_without_effect_are_deprecated(self, option: str) -> None:
        with pytest.warns(DeprecationWarning, match=f"{option} has no effect") as caught:
            producer = AIOKafkaProducer(**{option: "auto"})  # type: ignore[arg-type]
        assert caught[0].filename == __file__
        asyncio.run(producer.stop())

    def test_sasl_arguments_are_ignored_in_plaintext(self) -> None:
        producer = AIOKafkaProducer(ssl_context=object(), sasl_plain_username="me", transaction_timeout_ms=1)
        asyncio.run(producer.stop())

    def test_default_of_acks_may_be_passed_from_aiokafka(self) -> None:
        theirs = inspect.signature(aiokafka.AIOKafkaProducer).parameters["acks"].default
        for options, acks in (({}, 1), ({"enable_idempotence": True}, "all")):
            producer = AIOKafkaProducer(acks=theirs, **options)  # type: ignore[arg-type]
            assert producer._producer.config.acks == acks
            asyncio.run(producer.stop())

    def test_refused_producer_gives_no_unclosed_warning(self) -> None:
        with pytest.raises(ValueError, match="`security_protocol` should be SSL or PLAINTEXT"):
            AIOKafkaProducer(security_protocol="SOME")
        gc.collect()


class TestLife:
    @pytest.mark.parametrize("stopped", [False, True])
    @in_virtual_time
    async def test_failed_start_can_be_repeated_after_a_stop(self, stopped: bool) -> None:
        async with cluster() as broker:
            broker.freeze_broker(1)
            producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
            with pytest.raises(KafkaConnectionError):
                await producer.start()
            if stopped:
                await producer.stop()
            broker.thaw_broker(1)
            async with producer:
                assert (await producer.send_and_wait(TOPIC, b"v", partition=0)).offset == 0

    async def test_second_start_does_nothing(self) -> None:
        async with started() as (producer, _):
            first = await producer.send_and_wait(TOPIC, b"1", partition=0)
            await producer.start()
            assert (await producer.send_and_wait(TOPIC, b"2", partition=0)).offset == first.offset + 1

    async def test_stopped_producer_cannot_be_started_again(self) -> None:
        async with started() as (producer, _):
            await producer.stop()
            with pytest.raises(ProducerClosed, match="is started once"):
                await producer.start()

    @pytest.mark.parametrize("end", ["flush", "stop"])
    async def test_flush_and_stop_complete_the_future_of_a_record(self, end: str) -> None:
        async with started(linger_ms=10_000) as (producer, _):
            future = await producer.send(TOPIC, b"v")
            await getattr(producer, end)()
            assert future.done()

    @pytest.mark.parametrize("end", ["flush", "stop"])
    async def test_flush_and_stop_complete_the_future_of_a_batch(self, end: str) -> None:
        async with started() as (producer, _):
            future = await producer.send_batch(filled(producer, b"a", b"b"), TOPIC, partition=1)
            await getattr(producer, end)()
            assert future.done()

    @in_virtual_time
    async def test_stop_completes_batch_futures_without_brokers(self) -> None:
        async with started(request_timeout_ms=1_000) as (producer, broker):
            await producer.partitions_for(TOPIC)
            await broker.stop_broker(1)
            future = await producer.send_batch(filled(producer, b"a"), TOPIC, partition=1)
            await producer.stop()
            with pytest.raises(NodeNotReadyError):
                future.result()


class TestSendBatch:
    async def test_batch_keeps_its_place_among_records(self) -> None:
        async with started() as (producer, broker):
            _ = await producer.send(TOPIC, b"1", partition=0)
            _ = await producer.send_batch(filled(producer, b"2", b"3"), TOPIC, partition=0)
            _ = await producer.send(TOPIC, b"4", partition=0)
            await producer.flush()
            assert [each.value for each in broker.records(TOPIC, 0)] == [b"1", b"2", b"3", b"4"]

    @in_virtual_time
    async def test_records_after_a_split_batch_stay_behind_it(self) -> None:
        async with started(max_batch_size=1_000_000) as (producer, broker):
            await producer.partitions_for(TOPIC)
            values = [b"%d" % number for number in range(CHUNK_RECORDS + 1)]
            _ = await producer.send_batch(filled(producer, *values), TOPIC, partition=0)
            await producer.send_and_wait(TOPIC, b"after", partition=0)
            await producer.flush()
            assert [each.value for each in broker.records(TOPIC, 0)] == [*values, b"after"]

    async def test_full_batch_is_one_batch_in_the_log(self) -> None:
        async with started(max_batch_size=5_000) as (producer, broker):
            batch = producer.create_batch()
            while batch.append(timestamp=None, key=b"key", value=b"v" * 90, headers=[("a", b"b")]):
                pass
            await (await producer.send_batch(batch, TOPIC, partition=0))
            (stored,) = broker.batches(TOPIC, 0)
            assert len(stored.records) == batch.record_count() > 10

    async def test_serializers_are_asked_once(self) -> None:
        async with started(value_serializer=lambda value: b"<%s>" % value) as (producer, broker):
            _ = await producer.send_batch(filled(producer, b"a"), TOPIC, partition=0)
            _ = await producer.send(TOPIC, b"b", partition=0)
            await producer.send_and_wait(TOPIC, b"c", partition=0)
            assert [each.value for each in broker.records(TOPIC, 0)] == [b"<a>", b"<b>", b"<c>"]

    @in_virtual_time
    async def test_second_batch_of_a_partition_waits_for_the_first(self) -> None:
        async with started() as (producer, broker):
            await producer.partitions_for(TOPIC)
            first_of_0 = broker.on("produce", partition=0).delay(1)
            _ = await producer.send_batch(filled(producer, b"1"), TOPIC, partition=0)
            began_at = asyncio.get_running_loop().time()
            _ = await producer.send_batch(filled(producer, b"2"), TOPIC, partition=1)  # another partition
            assert asyncio.get_running_loop().time() == began_at
            _ = await producer.send_batch(filled(producer, b"3"), TOPIC, partition=0)
            assert asyncio.get_running_loop().time() >= began_at + 1
            assert first_of_0.hits == 1
            await producer.flush()
            assert [each.value for each in broker.records(TOPIC, 0)] == [b"1", b"3"]

    @in_virtual_time
    async def test_batch_is_not_sent_after_timeout_or_cancellation(self) -> None:
        async with started(enable_idempotence=True, request_timeout_ms=1_000) as (producer, broker):
            await producer.partitions_for(TOPIC)
            refusals = broker.on("produce", times=None).answer(NotEnoughReplicas)
            first = await producer.send_batch(filled(producer, b"1"), TOPIC, partition=0)
            late = filled(producer, b"late")
            with pytest.raises(KafkaTimeoutError, match="orders-0: the previous batch has no outcome yet"):
                _ = await producer.send_batch(late, TOPIC, partition=0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    _ = await producer.send_batch(filled(producer, b"cancelled"), TOPIC, partition=0)
            assert not late.closed()  # it may be tried again
            refusals.remove()
            assert (await first).offset == 0
            await (await producer.send_batch(late, TOPIC, partition=0))
            assert [each.value for each in broker.records(TOPIC, 0)] == [b"1", b"late"]

    async def test_batch_future_has_the_failure(self) -> None:
        async with started() as (producer, broker):
            broker.on("produce").answer(TopicAuthorizationFailed)
            future = await producer.send_batch(filled(producer, b"a", b"b"), TOPIC, partition=0)
            with pytest.raises(TopicAuthorizationFailedError) as caught:
                await future
            assert not caught.value.possibly_persisted
            assert isinstance(caught.value.__cause__, BrokerError)
            again = await producer.send_batch(filled(producer, b"c"), TOPIC, partition=0)  # it is not held up
            assert (await again).offset == 0

    async def test_failed_split_batch_is_possibly_persisted(self) -> None:
        async with started() as (producer, broker):
            broker.on("produce").answer(MessageTooLarge)
            broker.on("produce", after=2).answer(TopicAuthorizationFailed)
            future = await producer.send_batch(filled(producer, b"1", b"2", b"3", b"4"), TOPIC, partition=0)
            with pytest.raises(TopicAuthorizationFailedError) as caught:
                await future
            assert [each.value for each in broker.records(TOPIC, 0)] == [b"1", b"2"]
            assert caught.value.possibly_persisted

    async def test_empty_batch_is_not_sent(self) -> None:
        async with started() as (producer, _):
            sent = await (await producer.send_batch(producer.create_batch(), TOPIC, partition=1))
            assert sent is None

    async def test_batch_without_a_partition_is_sent_to_any(self) -> None:
        async with started() as (producer, broker):
            for _ in range(5):
                sent = await (await producer.send_batch(filled(producer, b"a", b"b"), TOPIC, partition=None))
                assert [each.value for each in broker.records(TOPIC, sent.partition)][-2:] == [b"a", b"b"]

    async def test_partitioner_chooses_the_partition_of_a_batch(self) -> None:
        async with started(partitioner=lambda _, every, __: max(every)) as (producer, _):
            sent = await (await producer.send_batch(filled(producer, b"a"), TOPIC, partition=None))
            assert sent.partition == 1

    async def test_batch_to_a_missing_partition_is_refused(self) -> None:
        async with started() as (producer, _):
            with pytest.raises(ValueError, match="topic 'orders' has no partition 2"):
                _ = await producer.send_batch(filled(producer, b"a"), TOPIC, partition=2)


class TestWithoutAcknowledgement:
    async def test_result_is_none_with_acks_0(self) -> None:
        async with started(acks=0) as (producer, broker):
            assert await producer.send_and_wait(TOPIC, b"1", partition=0) is None
            assert await (await producer.send(TOPIC, b"2", partition=0)) is None
            assert await (await producer.send_batch(filled(producer, b"3"), TOPIC, partition=0)) is None
        assert len(broker.records(TOPIC, 0)) == 3


class TestPrivateAttributes:
    async def test_closed_attribute_follows_the_state(self) -> None:
        async with started() as (producer, _):
            assert producer._closed is False
        assert producer._closed is True

    async def test_send_and_wait_calls_the_send_of_a_subclass(self) -> None:
        class Counting(AIOKafkaProducer):
            calls = 0

            async def send(self, *args: Any, **kwargs: Any) -> Any:
                self.calls += 1
                return await super().send(*args, **kwargs)

        async with cluster() as broker, Counting(bootstrap_servers=broker.bootstrap_servers) as producer:
            assert (await producer.send_and_wait(TOPIC, b"v", partition=0)).offset == 0
            assert producer.calls == 1

    async def test_send_and_wait_calls_a_patched_send(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plain, calls = AIOKafkaProducer.send, []

        async def traced(self: AIOKafkaProducer, *args: Any, **kwargs: Any) -> Any:
            calls.append(args)
            return await plain(self, *args, **kwargs)

        async with started() as (producer, _):
            monkeypatch.setattr(AIOKafkaProducer, "send", traced)
            await producer.send_and_wait(TOPIC, b"v", partition=0)
        assert len(calls) == 1

    async def test_partition_returns_the_partition_of_a_record(self) -> None:
        async with started() as (producer, _):
            with pytest.raises(UnknownTopicOrPartitionError):
                producer._partition(TOPIC, None, None, None, b"k", None)
            for key in (b"a", b"b", b"c", b"d"):
                sent = await producer.send_and_wait(TOPIC, b"v", key=key)
                assert producer._partition(TOPIC, None, None, None, key, None) == sent.partition
            assert producer._partition(TOPIC, 1, None, None, None, None) == 1
            assert {producer._partition(TOPIC, None, None, None, None, None) for _ in range(50)} == {0, 1}
            with pytest.raises(ValueError, match="no partition 2"):
                producer._partition(TOPIC, 2, None, None, None, None)

    def test_unstopped_producer_gives_a_resource_warning(self) -> None:
        with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaProducer"):
            AIOKafkaProducer(bootstrap_servers=SERVERS)

    async def test_unclosed_producer_is_reported_to_the_loop_and_freed(self) -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        async with cluster() as broker:
            producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
            await producer.start()
            inner, reference = producer._producer, weakref.ref(producer)
            with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaProducer"):
                del producer
            (context,) = told
            assert context["message"] == "Unclosed AIOKafkaProducer"
            told.clear()
            context.clear()
            gc.collect()
            assert reference() is None
            await inner.close()


async def test_unread_failure_is_not_reported_to_asyncio() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with started() as (producer, broker):
        broker.on("produce", times=2).answer(TopicAuthorizationFailed)
        _ = await producer.send(TOPIC, b"v", partition=0)
        await producer.flush()
        _ = await producer.send_batch(filled(producer, b"v"), TOPIC, partition=0)
        await producer.flush()
    assert told == []


FEW_BYTES = 16
"""So much larger than the real one is a record's size here, at most, if it is a small one."""


def builder(max_size: int = 1_000, **serializers: Any) -> BatchBuilder:
    return BatchBuilder(max_size, **{"key_serializer": None, "value_serializer": None} | serializers)


def test_batch_keeps_records_in_columns() -> None:
    batch = builder()
    batch.append(timestamp=1, key=b"k", value=bytearray(b"v"), headers=[("trace", b"1f")])
    batch.append(timestamp=2.7, key=None, value=b"w")
    assert (batch.keys, batch.values) == ([b"k", None], [b"v", b"w"])
    assert (batch.headers, batch.timestamps_ms) == ([(("trace", b"1f"),), ()], [1, 2])


def test_append_returns_offset_size_and_timestamp() -> None:
    batch = builder()
    first = batch.append(timestamp=1, key=None, value=b"v" * 100)
    second = batch.append(timestamp=None, key=None, value=b"v")
    assert first is not None
    assert second is not None
    assert (first.offset, first.timestamp, first.crc) == (0, 1, None)
    assert 100 < first.size <= 100 + FEW_BYTES
    assert second.offset == 1
    assert abs(second.timestamp - time.time() * 1000) < 60_000
    assert batch.size() == 61 + first.size + second.size
    assert batch.record_count() == 2


def test_batch_closes_when_a_record_does_not_fit() -> None:
    batch = builder(max_size=320)
    assert batch.append(timestamp=None, key=None, value=b"v" * 100)
    assert batch.append(timestamp=None, key=None, value=b"v" * 100)
    size = batch.size()
    assert batch.append(timestamp=None, key=None, value=b"v" * 100) is None
    assert (batch.record_count(), batch.size()) == (2, size)
    assert batch.closed()
    assert batch.append(timestamp=None, key=None, value=b"v") is None  # though a smaller one would fit


def test_first_record_fits_at_any_size() -> None:
    assert builder(max_size=10).append(timestamp=None, key=None, value=b"v" * 100)


def test_closed_batch_accepts_no_record() -> None:
    batch = builder()
    assert not batch.closed()
    batch.close()
    assert batch.closed()
    assert batch.append(timestamp=None, key=None, value=b"v") is None
    assert batch.record_count() == 0


def test_serializers_are_asked() -> None:
    batch = builder(key_serializer=str.encode, value_serializer=lambda value: b"%d" % value)
    batch.append(timestamp=None, key="k", value=7)
    assert (batch.keys, batch.values) == ([b"k"], [b"7"])
    with pytest.raises(TypeError, match="descriptor 'encode'"):
        batch.append(timestamp=None, key=7, value=7)
    assert batch.record_count() == 1


def test_serializer_that_returns_no_bytes_is_named() -> None:
    batch = builder(value_serializer=str)
    with pytest.raises(TypeError, match="the result of value_serializer must be bytes"):
        batch.append(timestamp=None, key=None, value=7)


def test_headers_may_be_none() -> None:
    batch = builder()
    batch.append(timestamp=None, key=None, value=b"v", headers=None)
    assert batch.headers == [()]


@for_each(
    ("changed", "match"),
    [
        ({"key": "k"}, "key must be bytes"),
        ({"value": 7}, "value must be bytes"),
        ({"timestamp": "1"}, "timestamp must be int"),
        ({"headers": [("a", "b")]}, "headers: the value of 'a' must be bytes"),
        ({"headers": {"a": b"b"}}, "headers must be pairs"),
    ],
)
def test_append_refuses_wrong_types(changed: dict[str, Any], match: str) -> None:
    batch = builder()
    with pytest.raises(TypeError, match=match):
        batch.append(**{"timestamp": None, "key": None, "value": b"v"} | changed)
    assert batch.record_count() == 0
