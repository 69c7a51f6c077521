"""Brokers that come back at other ports, another cluster at the port of a broker, and idle producers meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest

from aioproducer import Producer
from tests.kafka.apache.broker import ApacheKafka, free_ports
from tests.kafka.readback import read_with_librdkafka
from tests.kafka.under_load import under_load

in_thread = asyncio.to_thread
numbers = count()


async def send_numbers(producer: Producer, topic: str) -> None:
    for number in range(20):
        await producer.send(topic, b"%d" % number)


@asynccontextmanager
async def closing(producer: Producer) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await producer.close()


@pytest.mark.timeout(120)
async def test_broker_that_returns_at_another_port_is_followed(three_brokers: ApacheKafka) -> None:
    (port,) = free_ports(1)
    async with under_load(three_brokers) as loads:
        await in_thread(three_brokers.move, {2: port})
        await loads.in_sync()
        await loads.acknowledged_by()


@pytest.mark.timeout(120)
async def test_brokers_that_exchange_ports_are_followed(three_brokers: ApacheKafka) -> None:
    async with under_load(three_brokers) as loads:
        ports = {2: three_brokers.port(3), 3: three_brokers.port(2)}
        for each in (2, 3):  # one at a time, so that two replicas stay in sync, by way of a free port
            (free,) = free_ports(1)
            await in_thread(three_brokers.move, {each: free})
            await loads.in_sync()
        for each in (2, 3):
            await in_thread(three_brokers.move, {each: ports[each]})
            await loads.in_sync()
            await loads.acknowledged_by()


@pytest.mark.timeout(120)
async def test_other_cluster_at_a_brokers_port_gets_no_record(three_brokers: ApacheKafka) -> None:
    topic = f"taken-over-{next(numbers)}"
    await in_thread(three_brokers.create_topic, topic, 3)
    await in_thread(three_brokers.await_in_sync, topic)
    async with Producer(three_brokers.bootstrap_servers, request_timeout_ms=2_000) as producer:
        for partition in range(3):
            await producer.send(topic, b"before", partition=partition)
        await in_thread(three_brokers.shut_down, 3)
        try:
            with ApacheKafka(ports={1: three_brokers.port(3)}) as other:
                await in_thread(other.create_topic, topic, 3)
                for number in range(60):
                    await producer.send(topic, b"%d" % number, partition=number % 3)
                    await asyncio.sleep(0.05)
                assert await in_thread(read_with_librdkafka, other.bootstrap_servers, topic) == []
        finally:
            await in_thread(three_brokers.restart, 3)
        assert producer.state == "ready"
    records = await in_thread(read_with_librdkafka, three_brokers.bootstrap_servers, topic)
    assert sorted(each.value or b"" for each in records) == sorted(
        [b"before"] * 3 + [b"%d" % number for number in range(60)]
    )


@pytest.mark.timeout(120)
async def test_bootstrap_server_of_a_new_cluster_is_followed() -> None:
    """The new cluster gives the producer id of the old one again: to this producer, or to another one."""
    topic, not_unasked = "moved", {"auto.create.topics.enable": "false"}
    with ApacheKafka() as old:
        port = old.port(1)
        await in_thread(old.create_topic, topic)
        producer = Producer(old.bootstrap_servers)
        await producer.start()
        await send_numbers(producer, topic)
        assert len(await in_thread(read_with_librdkafka, old.bootstrap_servers, topic)) == 20
    async with closing(producer):
        with ApacheKafka(ports={1: port}, properties=not_unasked) as new:
            await in_thread(new.create_topic, topic)
            async with Producer(new.bootstrap_servers) as neighbour:
                await neighbour.send(topic, b"neighbour")
            await send_numbers(producer, topic)
            records = await in_thread(read_with_librdkafka, new.bootstrap_servers, topic)
    assert [each.value for each in records] == [b"neighbour", *(b"%d" % number for number in range(20))]


@pytest.mark.timeout(120)
async def test_idle_producer_is_ready_after_a_restart(spare_kafka: ApacheKafka) -> None:
    async with Producer(spare_kafka.bootstrap_servers) as producer:
        await in_thread(spare_kafka.restart)
        async with asyncio.timeout(5):
            while producer.state != "ready":  # noqa: ASYNC110 - nothing reports the state
                await asyncio.sleep(0.05)
