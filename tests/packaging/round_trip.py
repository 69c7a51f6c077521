"""Sends records with an installed wheel to an in-process cluster and reads them back; a release runs it on each platform.

With the argument `accelerated` it fails for a wheel without the C accelerator.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import aioproducer
from aioproducer import Producer
from aioproducer.testing import Cluster

assert Path(aioproducer.__file__).is_relative_to(sys.prefix), aioproducer.__file__
assert aioproducer.accelerated or "accelerated" not in sys.argv[1:], "the wheel has no accelerator"


async def main() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        for codec in ("none", "gzip", "lz4", "zstd"):
            async with Producer(cluster.bootstrap_servers, compression_type=codec) as producer:
                await producer.send("orders", codec.encode(), key=b"k")
                await producer.send_many("orders", [b"many"], keys=[b"k"])
        found = [(record.value or b"").decode() for record in cluster.records("orders", 0)]
    assert found == ["none", "many", "gzip", "many", "lz4", "many", "zstd", "many"], found
    print(aioproducer.accelerated, *found)  # noqa: T201 - the output is the result


asyncio.run(main())
