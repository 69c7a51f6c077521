"""The harness of the tests in this directory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tests.kafka.apache import jars
from tests.kafka.apache.broker import QUICK_START, ApacheKafka, free_ports
from tests.kafka.apache.java import find_java, java_release, shared_classes
from tests.kafka.apache.node import BrokerFailed
from tests.kafka.apache.shared_classes import can_share
from tests.kafka.conftest import NewTopic
from tests.kafka.readback import Record, read_with_aiokafka, read_with_librdkafka


def produce(kafka: ApacheKafka, topic: str, records: list[Record]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all", "linger.ms": 5})
    for record in records:
        producer.produce(
            topic, record.value, record.key, record.partition,
            headers=list(record.headers), timestamp=record.timestamp_ms,
        )  # fmt: skip
    assert producer.flush(30) == 0


def some_records(count: int, *, partitions: int = 1) -> list[Record]:
    """Records with and without keys, values and headers, in the order of reading."""
    records = [
        Record(
            partition=index % partitions,
            offset=index // partitions,
            key=b"key-%d" % index if index % 2 else None,
            value=b"value-%d" % index if index % 5 else None,
            headers=(("trace", b"%d" % index), ("empty", b""), ("null", None)) if index % 3 else (),
            timestamp_ms=1_700_000_000_000 + index,
            log_append_time=False,
        )
        for index in range(count)
    ]
    return sorted(records)


async def test_fresh_topic_is_empty(kafka: ApacheKafka, topic: str) -> None:
    assert read_with_librdkafka(kafka.bootstrap_servers, topic) == []
    assert await read_with_aiokafka(kafka.bootstrap_servers, topic) == []


async def test_librdkafka_and_aiokafka_read_back_a_thousand_records(kafka: ApacheKafka, topic: str) -> None:
    written = some_records(1_000, partitions=3)
    produce(kafka, topic, written)
    assert read_with_librdkafka(kafka.bootstrap_servers, topic) == written
    assert await read_with_aiokafka(kafka.bootstrap_servers, topic) == written


async def test_librdkafka_and_aiokafka_distinguish_log_append_time(
    kafka: ApacheKafka, new_topic: NewTopic
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    produce(kafka, topic, some_records(1))
    [record] = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert record.log_append_time
    assert record.timestamp_ms > 1_700_000_000_000
    assert await read_with_aiokafka(kafka.bootstrap_servers, topic) == [record]


def test_readback_fails_when_the_topic_does_not_exist(kafka: ApacheKafka) -> None:
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
        read_with_librdkafka(kafka.bootstrap_servers, "no-such-topic")


def test_readback_fails_after_its_timeout() -> None:
    with pytest.raises(TimeoutError):
        read_with_librdkafka(f"127.0.0.1:{free_ports(1)[0]}", "orders", timeout_s=0.1)


def test_start_of_a_broker_fails_with_its_log() -> None:
    with pytest.raises(BrokerFailed, match=r"broker 1 .*\n(.*\n)*.*log\.segment\.bytes"):
        ApacheKafka(properties={"log.segment.bytes": "many"}).start()


def test_killed_test_session_leaves_no_broker(tmp_path: Path) -> None:
    """Not even a SIGKILL of the tests leaves a JVM behind."""
    code = """if True:
        from tests.kafka.apache.broker import ApacheKafka, free_ports
        with ApacheKafka() as kafka:
            print(kafka.bootstrap_servers, flush=True)
            input()
    """
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},  # no process is left to remove the data of the broker
    ) as us:
        assert us.stdout is not None
        host, port = us.stdout.readline().strip().split(":")
        with socket.create_connection((host, int(port)), timeout=30) as broker:
            us.send_signal(signal.SIGKILL)
            with suppress(ConnectionResetError):  # the kernel closes the connections of a dead process
                assert broker.recv(1) == b""


def test_damaged_jar_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "CACHE", tmp_path)
    jar = jars.pinned()[0]
    assert not jar.intact
    jar.path.parent.mkdir(parents=True)
    jar.path.write_bytes(b"half a download")
    assert not jar.intact


@pytest.mark.parametrize(
    ("told", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
    ],
)
def test_java_release_is_read_from_its_version_output(tmp_path: Path, told: str, release: int) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    java.chmod(0o755)
    assert java_release(java) == release


def test_java_release_is_none_for_other_programs(tmp_path: Path) -> None:
    assert java_release(tmp_path / "java") is None


def test_class_archive_depends_on_java_and_jars(tmp_path: Path) -> None:
    java, other = tmp_path / "java", tmp_path / "other"
    java.write_text("")
    other.write_text("")
    link = tmp_path / "link"
    link.symlink_to(java)
    assert shared_classes(link, "a.jar") == shared_classes(java, "a.jar")
    assert shared_classes(java, "a.jar") != shared_classes(java, "b.jar")
    assert shared_classes(java, "a.jar") != shared_classes(other, "a.jar")


def test_class_archive_of_a_broker_can_be_loaded() -> None:
    """Unless this Java has none of its own to add to: then nothing is made, and brokers start more slowly."""
    java, classes = find_java(), jars.class_path()
    archive = shared_classes(java, classes)
    assert archive.exists() == can_share(java)
    if archive.exists():
        options = [f"-XX:SharedArchiveFile={archive}", "-Xshare:on", "-cp", classes]  # or it fails
        subprocess.run([java, *QUICK_START, *options, "-version"], check=True, capture_output=True)
