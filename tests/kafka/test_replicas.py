"""Partitions change their replicas, a log directory fails, and an unclean leader truncates the log: under load."""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from aioproducer import Producer, RecordMetadata
from tests.kafka.apache.broker import QUICK_START, ApacheKafka
from tests.kafka.readback import read_with_librdkafka
from tests.kafka.under_load import PARTITIONS, Loads, under_load

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of its import of importlib.resources
    from kafka import TopicPartition
    from kafka.admin import KafkaAdminClient

RECORDS = 50
SMALL = ("-Xmx256m", *QUICK_START[1:])
SOON = {
    "broker.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 200,
    "replica.lag.time.max.ms": 3_000,  # until then, acks=all waits for a follower whose log directory has failed
}
FAILED = 2
"""The broker whose log directory fails."""

pytestmark = pytest.mark.timeout(180)
long = pytest.mark.skipif(
    os.environ.get("REPLICAS") != "all", reason="takes half a minute: make test-replicas"
)
in_thread = asyncio.to_thread


class TwoLogDirs(ApacheKafka):
    """Brokers with two log directories each, and another one for metadata."""

    def __init__(self) -> None:
        super().__init__(
            brokers=3, properties={**SOON, "log.flush.offset.checkpoint.interval.ms": 200}, jvm_options=SMALL
        )

    def _create_nodes(self, directory: Path, java: Sequence[str | Path]) -> None:
        self.directory = directory
        super()._create_nodes(directory, java)

    def _properties_of(self, node_id: int) -> dict[str, str | int]:
        folder = self.directory / f"node-{node_id}"
        own: dict[str, str | int] = {
            "log.dirs": f"{folder}-one,{folder}-two",
            "metadata.log.dir": str(folder),
        }
        return super()._properties_of(node_id) | own

    def log_dirs(self, node_id: int, topic: str) -> set[Path]:
        """Return the log directories with partitions of *topic*."""
        return {path.parent for path in self.directory.glob(f"node-{node_id}-*/{topic}-[0-9]")}


@contextmanager
def broken(folder: Path) -> Iterator[None]:
    """Replace a log directory by a file, so that no checkpoint can be written."""
    away = folder.with_name(f"{folder.name}-away")
    folder.rename(away)
    folder.touch()
    try:
        yield
    finally:
        folder.unlink()
        away.rename(folder)


def reassign(kafka: ApacheKafka, loads: Loads, replicas: Sequence[Sequence[int]]) -> None:
    """Give each partition of each topic other replicas; the brokers copy the records later."""
    wanted = {
        TopicPartition(load.topic, partition): list(nodes)
        for load in loads
        for partition, nodes in enumerate(replicas)
    }
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        accepted = admin.alter_partition_reassignments(wanted)
    assert {*accepted.values()} <= {None}, accepted


def wait_until_reassigned(kafka: ApacheKafka) -> None:
    """Wait until the brokers have copied all records."""
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        wait_until(lambda: not admin.list_partition_reassignments())


def wait_until(happened: Callable[[], bool], timeout_s: float = 60) -> None:
    """Ask the cluster until something has *happened*."""
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, f"it did not happen in {timeout_s:.0f} s"
        time.sleep(0.1)


@pytest.mark.parametrize("restarted", [False, True], ids=["steady", "restarted"])
async def test_records_survive_reassignment(three_brokers: ApacheKafka, *, restarted: bool) -> None:
    async with under_load(three_brokers) as loads:
        # each partition loses its leader, which is its first replica
        leaders = [
            three_brokers.leader(next(iter(loads)).topic, partition) for partition in range(PARTITIONS)
        ]
        others = [sorted({1, 2, 3} - {leader}) for leader in leaders]
        await in_thread(reassign, three_brokers, loads, others)
        await in_thread(wait_until_reassigned, three_brokers)
        await loads.acknowledged_by()
        back = [[*two, leader] for two, leader in zip(others, leaders, strict=True)]
        await in_thread(reassign, three_brokers, loads, back)
        if restarted:
            three_brokers.kill(3)
            await in_thread(three_brokers.restart, 3)
        await in_thread(wait_until_reassigned, three_brokers)
        await loads.acknowledged_by()


@long
async def test_records_survive_a_failed_log_directory() -> None:
    with TwoLogDirs() as kafka:
        async with under_load(kafka) as loads:
            topics = [load.topic for load in loads]
            [folder, *_] = kafka.log_dirs(FAILED, topics[0])
            with broken(folder):
                await in_thread(wait_until, lambda: has_moved(kafka, topics, folder))
                await loads.acknowledged_by()
                kafka.kill(FAILED)
            await in_thread(kafka.restart, FAILED)
            await loads.acknowledged_by()


def has_moved(kafka: ApacheKafka, topics: Sequence[str], folder: Path) -> bool:
    """Return True if FAILED leads no partition of *topics* that it stored in the broken *folder*."""
    stored = [
        path.name.rpartition("-")
        for topic in topics
        for path in folder.with_name(f"{folder.name}-away").glob(f"{topic}-[0-9]")
    ]
    assert stored
    return FAILED not in {kafka.leader(topic, int(partition)) for topic, _, partition in stored}


@long
async def test_producer_continues_after_an_unclean_election() -> None:
    """The new leader never had the records that the old one acknowledged alone; all later records are written once."""
    config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    with ApacheKafka(brokers=3, properties=SOON, jvm_options=SMALL) as kafka:
        topics = ["idempotent", "plain"]
        admin = kafka._admin()  # its Futures fail once it is collected
        created = admin.create_topics(
            [NewTopic(topic, 1, replica_assignment=[[2, 3]], config=config) for topic in topics]
        )
        for each in created.values():
            each.result()
        for topic in topics:
            await in_thread(kafka.await_in_sync, topic)
        async with (
            Producer(kafka.bootstrap_servers, request_timeout_ms=2_000) as idempotent,
            Producer(kafka.bootstrap_servers, request_timeout_ms=2_000, enable_idempotence=False) as plain,
        ):

            async def send(first: int) -> list[RecordMetadata]:
                """Send RECORDS numbers to each topic."""
                return await asyncio.gather(
                    *(
                        producer.send(topic, b"%d" % number, partition=0)
                        for topic, producer in zip(topics, (idempotent, plain), strict=True)
                        for number in range(first, first + RECORDS)
                    )
                )

            await send(0)  # both replicas have these
            kafka.kill(3)
            await in_thread(wait_until, lambda: {in_sync(kafka, topic) for topic in topics} == {1})
            await send(RECORDS)  # the leader alone has these
            kafka.kill(2)
            sending = asyncio.create_task(send(2 * RECORDS))
            await in_thread(kafka.restart, 3)
            later = await sending
            await in_thread(kafka.restart, 2)  # truncates its log
            for topic in topics:
                await in_thread(kafka.await_in_sync, topic)
            later += await send(3 * RECORDS)
        lost = range(RECORDS, 2 * RECORDS)
        for topic in topics:
            log = await in_thread(read_with_librdkafka, kafka.bootstrap_servers, topic)
            assert [int(each.value or b"") for each in log] == [
                number for number in range(4 * RECORDS) if number not in lost
            ]
            told = [each.offset for each in later if each.topic == topic]
            assert told == [each.offset for each in log[RECORDS:]]


def in_sync(kafka: ApacheKafka, topic: str) -> int:
    """Return the number of in-sync replicas of the only partition."""
    return len(kafka._admin().list_topics(topic, timeout=10).topics[topic].partitions[0].isrs)
