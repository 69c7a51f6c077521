"""A Faust app that sends by key and checks the partitions of its keys."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import uuid

import faust
from aiokafka import AIOKafkaConsumer

NAME = f"compatibility-{uuid.uuid4().hex[:8]}"
KAFKA = os.environ["KAFKA"]
app = faust.App(NAME, broker=f"kafka://{KAFKA}", datadir=tempfile.mkdtemp(), web_enabled=False)
words = app.topic(NAME, key_type=str, value_type=str)


async def main() -> None:
    await app.maybe_start_client()
    try:
        sending = [await words.send(key=f"w{number % 7}", value=f"{number}") for number in range(100)]
        sent = await asyncio.gather(*sending)
        for each, number in zip(sent, range(7), strict=False):
            assert app.producer.key_partition(NAME, f"w{number}".encode()) == each.topic_partition
    finally:
        await app.stop()
    async with AIOKafkaConsumer(NAME, bootstrap_servers=KAFKA, auto_offset_reset="earliest") as consumer:
        read = [await consumer.getone() for _ in range(100)]
    assert sorted(int(json.loads(each.value)) for each in read) == list(range(100))


asyncio.run(main())
sys.stdout.write("a Faust app sent 100 records by key\n")
