"""Whether a topic is there, before anything is sent to it."""

from __future__ import annotations

import asyncio
from typing import Final

from aioproducer.errors import MetadataTimeout
from aioproducer.producer import Producer

TOPIC_S: Final = 5.0
"""In that time a cluster that makes topics by itself has made it. A misspelt one is not to be waited for a minute."""


async def await_topic(producer: Producer, topic: str) -> None:
    """Return when *topic* is known.

    Raises: MetadataTimeout: no broker knew it in `TOPIC_S`; or whatever the brokers have against it.
    """
    try:
        async with asyncio.timeout(TOPIC_S):
            _ = await producer.partitions_for(topic)
    except TimeoutError:
        raise MetadataTimeout(
            f"no broker knew a topic {topic!r} in {TOPIC_S:.0f} s: is the name right?"
        ) from None
