"""The programs of examples/ that read, process and write: exactly once, while members come, go and are killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aioproducer import Producer
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
ORDERS = 2_400
TIMEOUT_S = 100
"""Longer than the transaction of one that was killed in it stays open (60 s, and the coordinator looks every 10): whoever
has its orders then waits for that."""


@pytest.fixture
def fresh_kafka(request: pytest.FixtureRequest) -> Iterator[ApacheKafka]:
    """A broker with the topic names of the programs."""
    with ApacheKafka(
        transaction_version=request.getfixturevalue("version"),
        properties={"group.min.session.timeout.ms": 1_000, "auto.create.topics.enable": "false"},
    ) as kafka:
        for topic in ("orders", "parcels"):
            kafka.create_topic(topic, PARTITIONS)
        yield kafka


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The programs, but that a member that was killed is missed sooner."""
    for path in (ROOT / "examples").glob("exactly_once_*.py"):
        text, sessions = re.subn(r"(?m)^SESSION_MS = .*", "SESSION_MS = 6_000", path.read_text())
        assert sessions == 1
        (tmp_path / path.name).write_text(re.sub(r"(?m)^TRANSACTION_MS = .*", "TRANSACTION_MS = 3_000", text))
    return tmp_path


@contextmanager
def running(program: Path, kafka: ApacheKafka, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of the programs, and check that it still runs at the end unless it was killed."""
    with subprocess.Popen(
        [
            sys.executable,
            program,
            kafka.bootstrap_servers,
            name,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            gone = process.poll()
            process.kill()
            told = (process.stderr.read() if process.stderr else b"").decode()
            assert gone in {None, -signal.SIGTERM, -signal.SIGKILL}, told


async def order(kafka: ApacheKafka, first: int, count: int) -> None:
    """Send *count* more orders, numbered from *first* on."""
    async with Producer(kafka.bootstrap_servers) as producer:
        numbers = range(first, first + count)
        await producer.send_many(
            "orders", [b"%d" % each for each in numbers], partitions=[each % PARTITIONS for each in numbers]
        )


def parcels(kafka: ApacheKafka) -> Counter[bytes | None]:
    read = read_with_librdkafka(kafka.bootstrap_servers, "parcels", isolation_level="read_committed")
    return Counter(each.value for each in read)


def await_parcels(kafka: ApacheKafka, count: int) -> None:
    """Return once there are *count* or more."""
    deadline = time.monotonic() + TIMEOUT_S
    while (there := parcels(kafka).total()) < count:
        assert time.monotonic() < deadline, f"{there} of {count} parcels"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("which", "version"), [("aiokafka", 1), ("aiokafka", 2), ("confluent", 1), ("kafka_python", 2)]
)
def test_order_is_processed_once_while_consumers_change(
    fresh_kafka: ApacheKafka, programs: Path, which: str, version: int
) -> None:
    """The second joins while the first works; then the first is killed, and the third joins; then the second leaves."""
    kafka, third = fresh_kafka, ORDERS // 3
    program = programs / f"exactly_once_{which}.py"
    asyncio.run(order(kafka, 0, third))
    with running(program, kafka, "1") as first:
        await_parcels(kafka, third // 4)
        with running(program, kafka, "2") as second:
            asyncio.run(order(kafka, third, third))
            await_parcels(kafka, third + third // 4)
            first.kill()
            with running(program, kafka, "1"):
                asyncio.run(order(kafka, 2 * third, third))
                await_parcels(kafka, 2 * third)
                second.terminate()
                await_parcels(kafka, ORDERS)
    expected = Counter(b"parcel of %d" % number for number in range(ORDERS))
    assert parcels(kafka) == expected
