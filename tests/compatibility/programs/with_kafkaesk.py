"""A kafkaesk application that publishes models and checks the health of its producer."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid

import kafkaesk
import pydantic
from aiokafka import AIOKafkaConsumer

STREAM = f"compatibility-{uuid.uuid4().hex[:8]}"
KAFKA = os.environ["KAFKA"]
app = kafkaesk.Application([KAFKA])


@app.schema("Content", streams=[STREAM])
class Content(pydantic.BaseModel):
    number: int


async def main() -> None:
    async with app:
        for number in range(100):
            await app.publish_and_wait(STREAM, Content(number=number))
        await app.health_check()
        assert app.producer_healthy()
    async with AIOKafkaConsumer(STREAM, bootstrap_servers=KAFKA, auto_offset_reset="earliest") as consumer:
        read = [json.loads((await consumer.getone()).value) for _ in range(100)]
    assert sorted(each["data"]["number"] for each in read) == list(range(100))


asyncio.run(main())
sys.stdout.write("a kafkaesk application published 100 models, and was healthy\n")
