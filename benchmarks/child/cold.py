"""A program that sends one record, for the time from its start to the acknowledgement, and for the import time.

The program imports only the client. `python -m benchmarks.child.cold CLIENT SERVERS TOPIC` prints the time of the
acknowledgement (monotonic clock, shared by all processes of a machine). `python -m benchmarks.child.cold CLIENT` prints
the duration of the import in seconds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from importlib import import_module


async def aioproducer(servers: str, topic: str) -> None:
    """Send by aioproducer without a linger, as by aiokafka."""
    from aioproducer import Producer

    async with Producer(servers, linger_ms=0) as producer:
        await producer.send(topic, b"first")
        print(time.monotonic(), flush=True)


async def aiokafka(servers: str, topic: str) -> None:
    """Send by an idempotent aiokafka producer with acks=all, as aioproducer's defaults."""
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True, acks="all") as producer:
        await producer.send_and_wait(topic, b"first")
        print(time.monotonic(), flush=True)


CLIENTS = {"aioproducer": aioproducer, "aiokafka": aiokafka}
PRODUCERS = {"aioproducer": "Producer", "aiokafka": "AIOKafkaProducer"}


def import_alone(name: str) -> float:
    """Return the import time of a client's producer class in seconds. asyncio is already imported."""
    began = time.perf_counter()
    getattr(import_module(name), PRODUCERS[name])
    return time.perf_counter() - began


if __name__ == "__main__":
    name, *where = sys.argv[1:]
    if where:
        asyncio.run(CLIENTS[name](*where))
    else:
        print(import_alone(name))
