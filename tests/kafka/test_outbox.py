"""The relay of an outbox on real databases and a real Kafka: its worker is killed at every step."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from aioproducer import TransactionAdmin
from examples.outbox import postgres, sqlalchemy_store
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.conftest import topic_numbers
from tests.kafka.outbox_worker import ROWS_AT_ONCE, STEPS
from tests.kafka.postgres import running_postgres
from tests.kafka.readback import Record, read_with_librdkafka

ROOT = Path(__file__).parents[2]
KEYS = [b"ada", b"bob", b"cyd"]
ROWS = (len(STEPS) + 1) * ROWS_AT_ONCE

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    with running_postgres() as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite+aiosqlite:///{tmp_path}/shop.db"


async def fill(database: str, topic: str) -> None:
    """Write ROWS rows of shard 0 in transactions of the service, one of them rolled back."""

    def row(number: int) -> tuple[str, bytes, bytes, dict[str, str]]:
        return topic, KEYS[number % len(KEYS)], b"%d" % number, {"traceparent": f"00-{number}"}

    if database.startswith("postgresql"):
        connection = await postgres.connect(database)
        await connection.execute("TRUNCATE outbox")
        for number in range(ROWS):
            async with connection.transaction():
                await postgres.add(connection, *row(number))
        rolled_back = connection.transaction()
        await rolled_back.start()
        await postgres.add(connection, *row(ROWS))
        await rolled_back.rollback()
        await connection.execute("UPDATE outbox SET shard = 0")
        await connection.close()
        return
    engine = create_async_engine(database)
    await sqlalchemy_store.create_tables(engine)
    for number in range(ROWS):
        async with engine.begin() as connection:
            await sqlalchemy_store.add(connection, *row(number))
    async with engine.connect() as connection:
        await sqlalchemy_store.add(connection, *row(ROWS))
        await connection.rollback()
    async with engine.begin() as connection:
        await connection.execute(sqlalchemy_store.OUTBOX.update().values(shard=0))
    await engine.dispose()


def worker(database: str, kafka: ApacheKafka, name: str, *step: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.kafka.outbox_worker",
            database,
            kafka.bootstrap_servers,
            "0",
            name,
            *step,
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
    )


def run(*arguments: Any) -> int:
    """Run a worker to its end. Return 0, or minus the number of the signal that killed it."""
    with worker(*arguments) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode in {0, -signal.SIGKILL}, said.decode()
    return process.returncode


def by_key(records: list[Record]) -> dict[bytes | None, list[int]]:
    found = defaultdict(list)
    for record in records:
        found[record.key].append(int(record.value or b""))
        assert record.headers == (("traceparent", b"00-%b" % (record.value or b"")),)
    return dict(found)


def committed(kafka: ApacheKafka, topic: str) -> dict[bytes | None, list[int]]:
    return by_key(read_with_librdkafka(kafka.bootstrap_servers, topic, isolation_level="read_committed"))


EACH_ONCE = {key: list(range(number, ROWS, len(KEYS))) for number, key in enumerate(KEYS)}


@pytest.mark.slow
@pytest.mark.parametrize(("version", "url"), [(1, "sqlite_url"), (2, "postgres_url")])
def test_rows_are_committed_once_when_the_worker_is_killed(
    brokers: Callable[[int], ApacheKafka], version: int, url: str, request: pytest.FixtureRequest
) -> None:
    kafka, number, database = brokers(version), next(topic_numbers), request.getfixturevalue(url)
    kafka.create_topic(topic := f"outbox-{number}", 3)
    asyncio.run(fill(database, topic))
    for step in STEPS:
        assert run(database, kafka, f"shop-{number}", step) == -signal.SIGKILL, step
    assert run(database, kafka, f"shop-{number}") == 0
    assert committed(kafka, topic) == EACH_ONCE


@pytest.mark.slow
def test_rows_are_repeated_in_order_without_transactions(
    kafka: ApacheKafka, new_topic: Callable[[int], str], postgres_url: str
) -> None:
    topic, database = new_topic(3), postgres_url
    asyncio.run(fill(database, topic))
    for step in ("read", "committed", "finished"):
        assert run(database, kafka, "", step) == -signal.SIGKILL, step
    assert run(database, kafka, "") == 0
    found = committed(kafka, topic)
    assert {key: sorted(set(numbers)) for key, numbers in found.items()} == EACH_ONCE
    for numbers in found.values():  # a repetition restarts at an earlier row and continues without a gap
        assert all(
            after in numbers[:at] or after == numbers[at - 1] + 3 for at, after in enumerate(numbers) if at
        )
    assert sum(map(len, found.values())) > ROWS


@pytest.mark.slow
@pytest.mark.parametrize("step", ["prepared", "noted"])
def test_paused_worker_does_no_harm_to_its_successor(
    kafka: ApacheKafka, new_topic: Callable[[int], str], step: str, sqlite_url: str
) -> None:
    topic, database = new_topic(3), sqlite_url
    asyncio.run(fill(database, topic))
    with worker(database, kafka, topic, step, "stop") as paused:
        try:
            await_stop(paused)
            assert run(database, kafka, topic) == 0
        finally:
            os.kill(paused.pid, signal.SIGCONT)
        _, said = paused.communicate(timeout=60)
    assert paused.returncode == 1
    assert b"ShardTaken" in said or b"Fenced" in said or b"InvalidProducerEpoch" in said, said.decode()
    assert committed(kafka, topic) == EACH_ONCE


def await_stop(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_rows_are_sent_again_when_their_transaction_expired(
    brokers: Callable[[int], ApacheKafka], sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, number = brokers(2), next(topic_numbers)
    kafka.create_topic(topic := f"outbox-{number}", 3)
    database = sqlite_url
    asyncio.run(fill(database, topic))
    monkeypatch.setenv("TRANSACTION_MS", "1000")
    assert run(database, kafka, f"shop-{number}", "noted") == -signal.SIGKILL

    async def expired() -> None:
        async with TransactionAdmin(kafka.bootstrap_servers) as admin:
            while (found := (await admin.describe(f"shop-{number}-1"))[f"shop-{number}-1"]) is not None:
                if found.state == "CompleteAbort":
                    return
                await asyncio.sleep(0.1)

    asyncio.run(asyncio.wait_for(expired(), 30))
    assert run(database, kafka, f"shop-{number}") == 0
    assert committed(kafka, topic) == EACH_ONCE
