"""Serializers that await while the producer closes or a transaction ends; interceptors and threads around them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from aioproducer import (
    Producer,
    ProducerClosed,
    SendManyError,
)
from aioproducer.testing import ThreadedCluster
from tests.cases import for_each
from tests.scenarios.awaiting import (
    HUNG,
    begin,
    encode,
    every_shape,
    logged,
    named,
    serving,
)
from tests.scenarios.rig import TOPIC, cluster as open_cluster, now, scenario, settle, values


class TestClose:
    @every_shape
    @scenario
    async def test_close_waits_for_serializers(self, shape: str) -> None:
        async with open_cluster() as opened:
            producer = Producer(opened.bootstrap_servers, value_serializer=named(shape))
            await producer.start()
            waits = [begin(producer.send(TOPIC, each)) for each in ("a:1", "b:1")]
            many = begin(producer.send_many(TOPIC, ["c:1", "d:1"]))
            await settle()
            assert await producer.close() == 0
            await asyncio.gather(*waits, many)
            assert logged(opened) == ["a:1", "b:1", "c:1", "d:1"]

    @every_shape
    @for_each("timeout_s", [0, 1])
    @scenario
    async def test_forced_close_fails_calls_with_serializers(self, shape: str, timeout_s: float) -> None:
        async with open_cluster() as opened:
            producer = Producer(opened.bootstrap_servers, value_serializer=named(shape))
            await producer.start()
            await producer.partitions_for(TOPIC)
            calls = [begin(producer.send(TOPIC, each)) for each in (HUNG, "a:1")]
            calls.append(begin(producer.send_many(TOPIC, ["b:1", "c"])))
            await settle()
            began = now()
            assert await producer.close(timeout_s) == 4
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert now() - began < timeout_s + 0.1
            assert [type(each) for each in outcomes] == [ProducerClosed, ProducerClosed, SendManyError]
            assert values(opened) == []

    @pytest.mark.parametrize("timeout_s", [0, 0.1])
    @scenario
    async def test_forced_close_ends_call_with_cancelled_serializer(self, timeout_s: float) -> None:
        async def cleaning_up(_: str) -> bytes:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(1)
            return b""

        async with open_cluster() as opened:
            producer = Producer(opened.bootstrap_servers, value_serializer=cleaning_up, max_block_ms=100)
            await producer.start()
            await producer.partitions_for(TOPIC)
            call = begin(producer.send(TOPIC, "a"))
            await asyncio.sleep(0.2)  # the call is late, and its serializer is cancelled
            assert await producer.close(timeout_s) == 1
            assert producer.state == "closed"
            with pytest.raises(ProducerClosed):
                await call

    @pytest.mark.parametrize("timeout_s", [None, 0])
    @scenario
    async def test_serializer_may_close_the_producer(self, timeout_s: float | None) -> None:
        async def closing(value: str) -> bytes:
            if value == "last":
                await asyncio.sleep(0.1)
                await producer.close(timeout_s)
            return value.encode()

        async with open_cluster() as opened:
            producer = Producer(opened.bootstrap_servers, value_serializer=closing)
            await producer.start()
            await producer.send(TOPIC, "first")
            began = now()
            outcomes = await asyncio.gather(
                *(producer.send(TOPIC, each) for each in ("last", "behind")), return_exceptions=True
            )
            assert isinstance(outcomes[0], ProducerClosed)
            assert isinstance(outcomes[1], ProducerClosed) == (timeout_s == 0)
            assert now() - began < 1
            assert producer.state == "closed"


class TestTransactions:
    @scenario
    async def test_commit_waits_for_serializers(self) -> None:
        async with serving(value_serializer=encode, transactional_id="t") as (
            producer,
            opened,
        ):
            transaction = await producer.begin_transaction()
            assert transaction is not None
            waits = [begin(producer.send(TOPIC, each)) for each in ("a:1", "b:1")]
            await settle()
            await producer.commit_transaction()
            await asyncio.gather(*waits)
            assert logged(opened)[:2] == ["a:1", "b:1"]

    @pytest.mark.parametrize("shape", ["coroutine function", "returns a coroutine"])
    @scenario
    async def test_abort_ends_the_wait_for_serializers(self, shape: str) -> None:
        async with serving(value_serializer=named(shape), transactional_id="t") as (
            producer,
            opened,
        ):
            await producer.begin_transaction()
            await producer.send(TOPIC, "a")
            waits = [begin(producer.send(TOPIC, each)) for each in (HUNG, "b:1")]
            await settle()
            began = now()
            await producer.abort_transaction()
            outcomes = await asyncio.gather(*waits, return_exceptions=True)
            assert now() - began < 0.5
            assert [type(each).__name__ for each in outcomes] == ["TransactionAborted"] * 2
            async with producer.transaction():
                await producer.send(TOPIC, "next")
            assert [each for each in logged(opened) if each.isalpha()] == ["a", "next"]


class Observer:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_send(self, record: Any) -> Any:
        self.seen.append(record.value)
        return record

    def on_acknowledgement(self, metadata: Any, error: Any, where: Any) -> None:
        self.seen.append(type(error).__name__ if error is not None else metadata.offset)


class TestInterceptors:
    @every_shape
    @for_each("many", [False, True])
    @scenario
    async def test_interceptors_see_each_record_once(self, shape: str, many: bool) -> None:
        observer = Observer()
        async with serving(value_serializer=named(shape), interceptors=[observer], max_block_ms=1_000) as (
            producer,
            _,
        ):
            records = ["a", "b:0.1", HUNG]
            sends: list[Coroutine[Any, Any, Any]] = [producer.send(TOPIC, each) for each in records]
            if many:
                for each in sends:
                    each.close()
                sends = [producer.send_many(TOPIC, records)]
            await asyncio.gather(*sends, return_exceptions=True)
            assert [each for each in observer.seen if each in records] == records
            assert sorted(str(each) for each in observer.seen if each not in records) == [
                "0",
                "1",
                "SerializerTimeout",
            ]

    @every_shape
    @scenario
    async def test_interceptors_learn_of_a_cancelled_bulk_call(self, shape: str) -> None:
        observer = Observer()
        async with serving(value_serializer=named(shape), interceptors=[observer]) as (
            producer,
            _,
        ):
            sending = begin(producer.send_many(TOPIC, ["a:0.001", HUNG, "c"]))
            await asyncio.sleep(1)
            sending.cancel()
            await asyncio.wait([sending])
            await producer.flush()
            assert observer.seen == ["a:0.001", HUNG, 0, "ProducerError"]


def test_threads_share_an_async_serializer() -> None:
    from aioproducer.contrib.threads import ThreadedProducer  # noqa: PLC0415

    with (
        ThreadedCluster(topics={TOPIC: 1}) as opened,
        ThreadedProducer(opened.bootstrap_servers, value_serializer=encode) as producer,
    ):
        futures = [producer.enqueue(TOPIC, each) for each in ("a:0.01", "b", "c:0.01")]
        assert [each.result(30).offset for each in futures] == [0, 1, 2]
        assert producer.send_many(TOPIC, ["d", "e:0.01"]).delivered == 2
