"""A FastStream app: publish, publish a batch, subscribe, and its ping."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid

from faststream.kafka import KafkaBroker

TOPIC = f"compatibility-{uuid.uuid4().hex[:8]}"
broker = KafkaBroker(os.environ["KAFKA"])
seen: list[str] = []
done = asyncio.Event()


@broker.subscriber(TOPIC, auto_offset_reset="earliest")  # type: ignore[untyped-decorator]
async def read(body: str) -> None:
    seen.append(body)
    if len(seen) == 13:
        done.set()


async def main() -> None:
    async with broker:
        await broker.start()
        for number in range(10):
            await broker.publish(f"m{number}", TOPIC, key=b"k", headers={"n": str(number)})
        await broker.publish_batch("b0", "b1", "b2", topic=TOPIC)
        assert await broker.ping(timeout=5)
        async with asyncio.timeout(60):
            await done.wait()
    assert sorted(seen) == sorted([f"m{number}" for number in range(10)] + ["b0", "b1", "b2"])


asyncio.run(main())
sys.stdout.write("a FastStream app published 10 messages and a batch of 3, and read them\n")
