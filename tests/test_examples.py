"""The examples run as their readers run them: as programs, against a broker."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from aioproducer.testing import DecodedRecord, ThreadedCluster
from examples.outbox import sqlalchemy_store
from tests.services.serving import APPS

EXAMPLES = Path(__file__).parents[1] / "examples"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.kafka_cluster(topics={"orders": 3, "readings": 4}),
]


def run(*arguments: str | Path) -> list[str]:
    """Run Python on an example, and return the lines that it printed."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def everything(cluster: ThreadedCluster, topic: str, partitions: int) -> list[DecodedRecord]:
    return [record for partition in range(partitions) for record in cluster.records(topic, partition)]


def test_examples_are_all_tested() -> None:
    names = {path.name for path in EXAMPLES.glob("*.py")}
    here = {"quickstart.py", "service.py", "bulk.py", "errors.py", "secured.py", "test_your_code.py"}
    by_kafka = {f"exactly_once_{consumer}.py" for consumer in ("aiokafka", "confluent", "kafka_python")}
    assert names == here | by_kafka  # by tests/kafka/test_exactly_once.py
    assert {path.parent.name for path in EXAMPLES.glob("*_app/app.py")} == set(APPS)  # by tests/services
    outbox = {path.name for path in EXAMPLES.glob("outbox/*.py")}  # by tests/kafka/test_outbox.py
    assert outbox == {"postgres.py", "sqlalchemy_store.py", "worker.py"}


def test_quickstart_example_delivers_its_orders(kafka_cluster: ThreadedCluster) -> None:
    first, rest = run(EXAMPLES / "quickstart.py", kafka_cluster.bootstrap_servers)
    assert first.startswith("acknowledged: orders, partition ")
    assert rest == "acknowledged: 100 more"
    records = everything(kafka_cluster, "orders", 3)
    assert sorted(json.loads(record.value or b"")["order"] for record in records) == list(range(1, 102))
    assert [record.headers for record in records if record.headers] == [(("trace", b"9f1c"),)]


def test_secured_example_logs_in_and_is_refused() -> None:
    assert run(EXAMPLES / "secured.py") == [
        "acknowledged: offset 0",
        "acknowledged: offset 1, with the new password and certificate",
        "SaslAuthenticationFailed: by SCRAM-SHA-512",
    ]


def test_service_example_keeps_the_order_per_key(kafka_cluster: ThreadedCluster) -> None:
    [line] = run(EXAMPLES / "service.py", kafka_cluster.bootstrap_servers)
    assert line.startswith("500 of 500 orders were placed, in ")
    for partition in range(3):
        last: dict[bytes | None, int] = {}
        for record in kafka_cluster.records("orders", partition):
            order = json.loads(record.value or b"")["order"]
            assert order > last.get(record.key, -1)
            last[record.key] = order
    assert len(everything(kafka_cluster, "orders", 3)) == 500


def test_bulk_example_delivers_its_readings(kafka_cluster: ThreadedCluster) -> None:
    delivered, last, some, failed = run(EXAMPLES / "bulk.py", kafka_cluster.bootstrap_servers)
    assert delivered == "20,000 of 20,000 readings were delivered"
    assert last.startswith("the last one is at partition ")
    assert some == "9 of 10 were delivered"
    assert failed == "reading 3 was not: RecordTooLarge"
    assert len(everything(kafka_cluster, "readings", 4)) == 20_009


def test_errors_example_prints_every_kind_of_error() -> None:
    assert run(EXAMPLES / "errors.py") == [
        "a: paid: offset 0",
        "b: refused: no attempt will ever succeed",
        "c: failed: safe to pay again, once the cause is gone",
        "d: unknown: ask before paying again",
        "in the log: a, d",
    ]


@pytest.mark.kafka_cluster(topics={"orders": 1})
async def test_outbox_worker_sends_rows_until_sigterm(kafka_cluster: ThreadedCluster, tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/shop.db"
    engine = create_async_engine(url)
    await sqlalchemy_store.create_tables(engine)
    async with engine.begin() as connection:
        for number in range(20):
            await sqlalchemy_store.add(connection, "orders", b"k", b"%d" % number, {"traceparent": "00-1"})
        await connection.execute(sqlalchemy_store.OUTBOX.update().values(shard=0))
    await engine.dispose()
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "examples.outbox.worker", url, kafka_cluster.bootstrap_servers, "0"),
        cwd=EXAMPLES.parent,
        stderr=subprocess.PIPE,
    )
    try:
        records = await asyncio.to_thread(kafka_cluster.wait_for_records, "orders", 0, 20)
    finally:
        worker.terminate()
    _, said = await worker.communicate()
    assert (worker.returncode, b"ERROR" in said) == (0, False), said.decode()
    assert [record.value for record in records] == [b"%d" % number for number in range(20)]
    assert {record.headers for record in records} == {(("traceparent", b"00-1"),)}


async def test_outbox_worker_logs_one_line_without_a_broker(unused_tcp_port: int, tmp_path: Path) -> None:
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "examples.outbox.worker", f"sqlite+aiosqlite:///{tmp_path}/shop.db"),
        *(f"127.0.0.1:{unused_tcp_port}", "0"),
        cwd=EXAMPLES.parent,
        stderr=subprocess.PIPE,
    )
    assert worker.stderr is not None
    try:
        lines = [await asyncio.wait_for(worker.stderr.readline(), 30) for _ in range(2)]
    finally:
        worker.terminate()
        await worker.communicate()
    assert all(line.startswith(b"WARNING outbox.failed shard=0 retry_in=2 s error=") for line in lines), lines


def test_test_your_code() -> None:
    own_settings = [
        "-c",
        os.devnull,
        "-p",
        "no:cacheprovider",
    ]  # a reader has none of the settings of these tests
    *_, last = run("-m", "pytest", *own_settings, "-q", EXAMPLES / "test_your_code.py")
    assert last.startswith("3 passed")
