"""One call to two producers, aiokafka's and the compatible producer, and the result of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka

from aioproducer.compat import aiokafka as compat
from aioproducer.testing import Cluster

TOPIC = "orders"
CLIENTS = (aiokafka, compat)


async def outcome(of: Awaitable[Any]) -> Any:
    """Return the result, or the name of the error."""
    try:
        return await of
    except Exception as error:  # noqa: BLE001 - its name is what the test compares
        return type(error).__name__


async def of_both(
    ask: Callable[[Any, Cluster], Awaitable[Any]], client: type[Any] | None = None, **options: Any
) -> list[Any]:
    """Return the results of *ask* with a producer of aiokafka and a compatible one, each on its own cluster."""
    got = []
    for module in CLIENTS:
        kind = (
            module.AIOKafkaProducer if client is None else type("Own", (client, module.AIOKafkaProducer), {})
        )
        async with Cluster(topics={TOPIC: 3}, auto_create_topics=False) as cluster:
            producer = kind(bootstrap_servers=cluster.bootstrap_servers, **options)
            await producer.start()
            try:
                got.append(await outcome(ask(producer, cluster)))
            finally:
                await producer.stop()
    return got


def filled(producer: Any, *values: bytes) -> Any:
    batch = producer.create_batch()
    for number, value in enumerate(values, 1_000):
        batch.append(key=None, value=value, timestamp=number)
    return batch


async def sent(producer: Any, batch: Any, partition: int | None = 0) -> Any:
    return await (await producer.send_batch(batch, TOPIC, partition=partition))
