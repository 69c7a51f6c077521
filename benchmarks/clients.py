"""One client, one kind of work, in a process of its own: prints records per second and CPU per record as JSON.

Run by `benchmarks.compare`; by hand: python -m benchmarks.clients aioproducer closed localhost:9092 topic 50000
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

VALUE = b"x" * 100
TASKS = 256
WINDOW = 10_000
CALL = 10_000
CALLS_IN_FLIGHT = 4

Send = Callable[[], Awaitable[Any]]


def measured(records: int, seconds: float, cpu_seconds: float) -> dict[str, float]:
    """Return the figures of one run."""
    return {"records_s": records / seconds, "cpu_us": cpu_seconds / records * 1e6}


async def closed_loop(send: Send, records: int) -> None:
    """Let 256 tasks send, each awaiting every acknowledgement before its next record."""

    async def one_after_another(count: int) -> None:
        for _ in range(count):
            await send()

    async with asyncio.TaskGroup() as group:
        for task in range(TASKS):
            group.create_task(one_after_another(records // TASKS + (task < records % TASKS)))


async def fire(enqueue: Send, records: int) -> None:
    """Send without waiting for the broker, in windows whose Futures are awaited one by one."""
    for start in range(0, records, WINDOW):
        futures = [await enqueue() for _ in range(min(WINDOW, records - start))]
        for future in futures:
            await future


async def aioproducer(work: str, servers: str, topic: str, records: int) -> dict[str, float]:
    """Ours."""
    from aioproducer import Producer

    async with Producer(servers, linger_ms=0 if work == "closed" else 5) as producer:
        await producer.send(topic, VALUE)
        if work == "bulk":
            values = [VALUE] * CALL

            async def calls(count: int) -> None:
                for _ in range(count):
                    await producer.send_many(topic, values)

            async def run() -> None:
                async with asyncio.TaskGroup() as group:
                    for _ in range(CALLS_IN_FLIGHT):
                        group.create_task(calls(records // CALL // CALLS_IN_FLIGHT))

            return await timed(run(), records)
        if work == "closed":
            return await timed(closed_loop(lambda: producer.send(topic, VALUE), records), records)
        return await timed(fire(lambda: producer.enqueue(topic, VALUE), records), records)


async def aiokafka(work: str, servers: str, topic: str, records: int) -> dict[str, float]:
    """The aiokafka producer, idempotent as ours is."""
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, linger_ms=0 if work == "closed" else 5
    )
    async with producer:
        await producer.send_and_wait(topic, VALUE)
        if work == "closed":
            return await timed(closed_loop(lambda: producer.send_and_wait(topic, VALUE), records), records)
        return await timed(fire(lambda: producer.send(topic, VALUE), records), records)


async def confluent_aio(work: str, servers: str, topic: str, records: int) -> dict[str, float]:
    """confluent-kafka's AIOProducer."""
    from confluent_kafka.aio import AIOProducer

    linger_ms = 0 if work == "closed" else 5
    config = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": linger_ms}
    producer = AIOProducer(config)

    async def send() -> None:
        await (await producer.produce(topic, VALUE))

    await send()
    if work == "closed":
        figures = await timed(closed_loop(send, records), records)
    else:
        figures = await timed(fire(lambda: producer.produce(topic, VALUE), records), records)
    await producer.close()
    return figures


async def confluent_batch(work: str, servers: str, topic: str, records: int) -> dict[str, float]:
    """confluent-kafka's produce_batch: the fastest way there is into librdkafka from Python."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5, "batch.size": 16384}
    )
    messages = [{"value": VALUE} for _ in range(CALL)]

    async def run() -> None:
        sent = 0
        while sent < records:
            sent += producer.produce_batch(topic, messages[: records - sent])
            producer.poll(0)
        producer.flush()

    return await timed(run(), records)


async def timed(work: Awaitable[None], records: int) -> dict[str, float]:
    """Return the figures of *work*, which sends so many *records*."""
    began, cpu_began = time.perf_counter(), time.process_time()
    await work
    return measured(records, time.perf_counter() - began, time.process_time() - cpu_began)


CLIENTS = {
    "aioproducer": aioproducer,
    "aiokafka": aiokafka,
    "confluent-aio": confluent_aio,
    "confluent-batch": confluent_batch,
}

if __name__ == "__main__":
    client, work, servers, topic, records = sys.argv[1:6]
    if "--uvloop" in sys.argv:
        import uvloop

        print(json.dumps(uvloop.run(CLIENTS[client](work, servers, topic, int(records)))))
    else:
        print(json.dumps(asyncio.run(CLIENTS[client](work, servers, topic, int(records)))))
