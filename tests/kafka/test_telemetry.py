"""Client metrics (KIP-714) on a real broker, beside those that the JVM client pushes to it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from aioproducer import Producer
from tests.kafka.apache.jars import class_path
from tests.kafka.apache.java import find_java
from tests.kafka.apache.telemetry import Push, Receiver, can_compile, receiving

pytestmark = pytest.mark.timeout(180)
PREFIX = "org.apache.kafka.producer."
STANDARD = {
    "connection.creation.rate",
    "connection.creation.total",
    "node.request.latency.avg",
    "node.request.latency.max",
    "produce.throttle.time.avg",
    "produce.throttle.time.max",
    "record.queue.time.avg",
    "record.queue.time.max",
}
"""What KIP-714 wants every producer to have: an average or a maximum once there is something that it is of."""
TOPIC_TOTAL = f"{PREFIX}topic.record.send.total['telemetry']"
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    if not can_compile():
        pytest.skip("the broker's plugin has to be compiled, and this Java is no JDK")
    with receiving(tmp_path_factory.mktemp("telemetry")) as receiver:
        receiver.subscribe(PREFIX, interval_ms=1_000)
        yield receiver


async def pushes(receiver: Receiver, client_id: str, enough: Callable[[list[Push]], bool]) -> list[Push]:
    """Return the pushes of a client once there are enough."""
    return await asyncio.to_thread(receiver.await_pushes, client_id, enough, TIMEOUT_S)


@contextmanager
def java_producing(*properties: str) -> Iterator[None]:
    """Run the JVM client until the body ends."""
    tool = (find_java(), "-cp", class_path(), "org.apache.kafka.tools.ProducerPerformance")
    rate = ("--num-records", "1000000", "--throughput", "20", "--record-size", "10")
    with subprocess.Popen(
        [*tool, "--topic", "telemetry", *rate, "--command-property", *properties],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:
        try:
            yield
        finally:
            running.kill()


def sent(found: list[Push], name: str = f"{PREFIX}record.send.total") -> float:
    return sum(points[name].as_double for each in found if name in (points := each.points()))


def names(found: list[Push]) -> set[str]:
    return {name for each in found for name in each.points()}


@pytest.mark.parametrize("transactional_id", [None, "telemetry-1"])
async def test_broker_accepts_pushed_metrics(receiver: Receiver, transactional_id: str | None) -> None:
    client_id = f"ours-{transactional_id}"
    async with Producer(
        receiver.kafka.bootstrap_servers, client_id=client_id, transactional_id=transactional_id
    ) as producer:
        if transactional_id is None:
            await producer.send_many("telemetry", [b"v"] * 5)
        else:
            async with producer.transaction():
                await producer.send_many("telemetry", [b"v"] * 5)
        await pushes(receiver, client_id, lambda found: len(found) >= 3 and sent(found) >= 5)
        instance = producer.client_instance_id
    found = await pushes(receiver, client_id, lambda found: found[-1].terminating)
    assert [each.terminating for each in found] == [False] * (len(found) - 1) + [True]
    assert {each.client_instance_id for each in found} == {instance}
    assert sent(found) == sent(found, TOPIC_TOTAL) == 5
    last = found[-1].points()
    assert {f"{PREFIX}{each}" for each in STANDARD} <= {name.split("[")[0] for name in last}
    assert f"{PREFIX}node.request.latency.max['node-1']" in last


async def test_metric_names_are_those_of_the_jvm_client(receiver: Receiver) -> None:
    """All metrics pushed here are pushed by the JVM client, which adds those of its threads and selectors."""
    servers = (f"bootstrap.servers={receiver.kafka.bootstrap_servers}", "client.id=theirs")
    with java_producing(*servers):  # two pushes with records: by then some were answered
        theirs = await pushes(receiver, "theirs", lambda found: sum(sent([each]) > 0 for each in found) >= 2)
    async with Producer(receiver.kafka.bootstrap_servers, client_id="ours") as producer:
        await producer.send("telemetry", b"v")
        await pushes(receiver, "ours", lambda found: sent(found) >= 1)
    ours = await pushes(receiver, "ours", lambda found: found[-1].terminating)
    assert names(ours) - names(theirs) == set()
