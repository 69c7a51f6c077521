from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aioproducer.testing import ThreadedCluster
from tests.unit.testing.client import Client


def test_synchronous_test_gets_a_cluster(kafka_cluster: ThreadedCluster) -> None:
    assert len(kafka_cluster.bootstrap_servers.split(",")) == 1


@pytest.mark.kafka_cluster(2, topics={"orders": 1})
def test_marker_takes_the_arguments_of_a_cluster(kafka_cluster: ThreadedCluster) -> None:
    assert len(kafka_cluster.bootstrap_servers.split(",")) == 2
    assert kafka_cluster.records("orders", 0) == []


@pytest.mark.kafka_cluster(topics={"orders": 1})
async def test_asynchronous_test_gets_a_cluster_on_another_thread(kafka_cluster: ThreadedCluster) -> None:
    async with await Client.to(kafka_cluster) as client:
        await client.produce()
    assert len(kafka_cluster.records("orders", 0)) == 1


def test_plugin_alone_imports_nothing_of_the_cluster() -> None:
    code = (
        "import sys, aioproducer.testing.plugin;"
        "print(*sorted(name for name in sys.modules if name.startswith('aioproducer')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["aioproducer", "aioproducer.testing", "aioproducer.testing.plugin"]


SYNC = """
import confluent_kafka
import pytest


@pytest.mark.kafka_cluster(topics={"orders": 1})
def test_sync(kafka_cluster):
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    producer.produce("orders", b"v")
    assert producer.flush(10) == 0
    assert [record.value for record in kafka_cluster.records("orders", 0)] == [b"v"]


def test_each_has_a_cluster_of_its_own(kafka_cluster):
    assert kafka_cluster.request_count("produce") == 0
"""

ASYNC = """
import asyncio
import pytest
IMPORTS
from aioproducer import NotLeaderOrFollower, Producer

pytestmark = [MARKS, pytest.mark.kafka_cluster(brokers=2, topics={"orders": 1})]


@FIXTURE
async def producer(kafka_cluster):
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        yield producer


async def test_async(kafka_cluster, producer):
    rule = kafka_cluster.on("produce").answer(NotLeaderOrFollower)
    sending = asyncio.create_task(producer.send("orders", b"v", partition=0))
    await asyncio.wait_for(rule.happened(), 10)
    assert (await sending).offset == 0
    assert [record.value for record in kafka_cluster.records("orders", 0)] == [b"v"]


@pytest.mark.parametrize("number", [0, 1])
async def test_each_has_a_cluster_and_a_producer_of_its_own(producer, number):
    assert (await producer.send("orders", b"v", partition=0)).offset == 0
"""


def asynchronous(*, imports: str = "", marks: str = "", fixture: str = "pytest.fixture") -> str:
    return ASYNC.replace("IMPORTS", imports).replace("MARKS, ", marks).replace("FIXTURE", fixture)


SCOPE = ["-o", "asyncio_default_fixture_loop_scope=function"]  # unset, pytest-asyncio warns
MODES = {
    "sync tests alone": (["-p", "no:asyncio", "-p", "no:anyio"], SYNC),
    "pytest-asyncio, auto": ([*SCOPE, "-o", "asyncio_mode=auto"], asynchronous()),
    "pytest-asyncio, strict": (
        [*SCOPE, "-o", "asyncio_mode=strict"],
        asynchronous(
            imports="import pytest_asyncio",
            marks="pytest.mark.asyncio, ",
            fixture="pytest_asyncio.fixture",
        ),
    ),
    "anyio": (
        ["-p", "no:asyncio"],
        asynchronous(
            imports="anyio_backend = pytest.fixture(lambda: 'asyncio')", marks="pytest.mark.anyio, "
        ),
    ),
}


@pytest.mark.slow
def test_plugin_serves_all_kinds_of_tests_in_parallel(tmp_path: Path) -> None:
    runs = {}
    for number, (mode, (options, source)) in enumerate(MODES.items()):
        path = tmp_path / f"test_mode_{number}.py"
        path.write_text(source)
        settings = ["-c", os.devnull, "-q", "-W", "error", "--assert=plain"]
        settings += ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
        runs[mode] = subprocess.Popen(
            [sys.executable, "-m", "pytest", *settings, *options, path], stdout=subprocess.PIPE, text=True
        )
    outputs = {mode: run.communicate(timeout=50)[0] for mode, run in runs.items()}
    for mode, run in runs.items():
        assert run.returncode == 0, outputs[mode]
        assert f"{2 if mode == 'sync tests alone' else 3} passed" in outputs[mode]
