"""Consume, transform, produce: two members of a group, rebalances and a kill, and each record is transformed once."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

import pytest

from aioproducer import Producer
from tests.kafka.apache.stand import Stand
from tests.kafka.readback import Record, read_with_librdkafka

AT_ONCE = 40
PARTITIONS = 4
TIMEOUT_S = 120


@asynccontextmanager
async def transforming(stand: Stand, topic: str, name: str, killed_at: str = "") -> AsyncIterator[Process]:
    """Run a member of the group of *topic*, which reads it and writes to its sink."""
    arguments = [stand.servers, name, f"group-{topic}", topic, f"{topic}-sink", killed_at]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.kafka.transformer", *arguments, stdout=PIPE
    )
    draining: asyncio.Task[None] | None = None
    try:
        await said(process, "transformed")
        draining = asyncio.create_task(drained(process))
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if draining is not None:
            await draining


async def said(process: Process, what: str) -> None:
    """Wait for a line of the member with *what*."""
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        while what not in (line := (await process.stdout.readline()).decode()):
            assert line, "it has ended"


async def drained(process: Process) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        print(line.decode(), end="")  # noqa: T201 - pytest shows it if the test fails


async def transformed(stand: Stand, topic: str, expected: int) -> Counter[bytes]:
    """Return the records in the sink once there are *count* or more."""
    deadline = time.monotonic() + TIMEOUT_S
    seen: list[Record] = []
    while len(seen) < expected:
        assert time.monotonic() < deadline, f"{len(seen)} of {expected}"
        seen = await asyncio.to_thread(
            read_with_librdkafka, stand.servers, f"{topic}-sink", isolation_level="read_committed"
        )
    return Counter(each.value or b"" for each in seen)


class Source:
    """Numbered records, written at a constant pace."""

    def __init__(self, servers: str, topic: str) -> None:
        self.count = 0
        self._servers, self._topic = servers, topic
        self._enough = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._enough = True
        await self._task

    async def _run(self) -> None:
        async with Producer(self._servers) as producer:
            while not self._enough:
                values = [b"n%06d" % number for number in range(self.count, self.count + AT_ONCE)]
                partitions = [number % PARTITIONS for number in range(AT_ONCE)]
                await producer.send_many(self._topic, values, partitions=partitions)
                self.count += AT_ONCE
                await asyncio.sleep(
                    0.2
                )  # the pace of the load: slower than the group, which rebalances meanwhile


def in_short(case: Mapping[str, Any]) -> bool:
    return (case["stand"], case["killed_at"]) == (2, "offsets")


@pytest.mark.long(unless=in_short)
@pytest.mark.timeout(360)
@pytest.mark.parametrize("killed_at", ["written", "offsets", "committed"])
async def test_consumed_records_are_transformed_once(stand: Stand, stand_topic: str, killed_at: str) -> None:
    topic = f"{stand_topic}-source"
    await asyncio.to_thread(stand.kafka.create_topic, topic, PARTITIONS)
    await asyncio.to_thread(stand.kafka.create_topic, f"{topic}-sink", 3)
    async with AsyncExitStack() as running:

        async def run(name: str, at: str = "") -> Process:
            return await running.enter_async_context(transforming(stand, topic, f"{topic}-{name}", at))

        async with Source(stand.servers, topic) as source:
            await run("one")
            killed = await run("two", killed_at)
            async with asyncio.timeout(TIMEOUT_S):
                await killed.wait()
            await run("two")  # the same id: the open transaction of the killed member is aborted
            await run("three")
        seen = await transformed(stand, topic, source.count)
    assert seen == Counter(b"N%06d" % number for number in range(source.count))
