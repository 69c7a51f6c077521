"""A program that sends one record: how long from its start to the acknowledgement? And how long is the import?

Imports nothing but the client: python -m benchmarks.child.cold CLIENT SERVERS TOPIC, or … CLIENT for the import alone.
Prints when the record was acknowledged, by the monotonic clock, which all processes of a machine share; or how many
seconds the import took.
"""

from __future__ import annotations

import asyncio
import sys
import time
from importlib import import_module


async def aioproducer(servers: str, topic: str) -> None:
    """Ours, without a linger: aiokafka has none either."""
    from aioproducer import Producer

    async with Producer(servers, linger_ms=0) as producer:
        await producer.send(topic, b"first")
        print(time.monotonic(), flush=True)


async def aiokafka(servers: str, topic: str) -> None:
    """The aiokafka producer, idempotent and waiting for all replicas, as ours is by default."""
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True, acks="all") as producer:
        await producer.send_and_wait(topic, b"first")
        print(time.monotonic(), flush=True)


CLIENTS = {"aioproducer": aioproducer, "aiokafka": aiokafka}
PRODUCERS = {"aioproducer": "Producer", "aiokafka": "AIOKafkaProducer"}


def import_alone(name: str) -> float:
    """Return how many seconds it takes to get at a client's producer, asyncio being there already."""
    began = time.perf_counter()
    getattr(import_module(name), PRODUCERS[name])
    return time.perf_counter() - began


if __name__ == "__main__":
    name, *where = sys.argv[1:]
    if where:
        asyncio.run(CLIENTS[name](*where))
    else:
        print(import_alone(name))
