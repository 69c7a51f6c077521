"""Rows on their way, without Spark; what a task makes of it is in test_task.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from aioproducer import Producer
from aioproducer.arrow import SendTableError
from aioproducer.arrow.arrow_schema import Columns
from aioproducer.spark.messages import BadRows
from aioproducer.spark.sending import Sending, Sent
from aioproducer.spark.worker import Worker
from aioproducer.testing import ThreadedCluster

pytestmark = pytest.mark.kafka_cluster(topics={"orders": 2, "dead": 1}, auto_create_topics=False)
COLUMNS = Columns(value="value", topic_column="topic", partition="partition")


@pytest.fixture
def host() -> Iterator[Worker]:
    host = Worker()
    yield host
    host.close()


def batch(*rows: tuple[str | None, int | None, str]) -> pa.RecordBatch:
    schema = pa.schema({"topic": pa.string(), "partition": pa.int32(), "value": pa.string()})
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def send(
    cluster: ThreadedCluster, host: Worker, *batches: pa.RecordBatch, dead_letters: str | None = "dead"
) -> Sent:
    producer = Producer(cluster.bootstrap_servers, max_request_size=4_000, max_block_ms=2_000)
    host.submit(producer.start()).result()
    try:
        return Sending(producer, host, COLUMNS, dead_letters).run(batches)
    finally:
        host.submit(producer.close()).result()


def values(cluster: ThreadedCluster, topic: str, partition: int = 0) -> list[str]:
    return [(each.value or b"").decode() for each in cluster.records(topic, partition)]


def test_bad_rows_become_letters_and_the_others_keep_their_order(
    kafka_cluster: ThreadedCluster, host: Worker
) -> None:
    first = batch(
        ("orders", 0, "a"), (None, 0, "no topic"), ("orders", 0, "b"), ("orders", 2, "no partition")
    )
    second = batch((None, 0, "none again"))
    third = batch(("orders", 0, "c"), ("orders", 1, "x" * 5_000), ("orders", 1, "d"))
    sent = send(kafka_cluster, host, first, second, third)
    assert values(kafka_cluster, "orders") == ["a", "b", "c"]
    assert values(kafka_cluster, "orders", 1) == ["d"]
    assert values(kafka_cluster, "dead") == ["no topic", "no partition", "none again", "x" * 1_024]
    assert (sent.rows, sent.bytes) == (4, 4), "letters are counted by themselves"
    assert sent.bad == BadRows(4, "dead", "column 'topic': there is no topic (null)")
    assert ("dead", 0) in sent.offsets, "whoever commits has to know a partition, if all rows are bad"


def test_letters_say_why(kafka_cluster: ThreadedCluster, host: Worker) -> None:
    send(kafka_cluster, host, batch(("orders", 7, "v")))
    (letter,) = kafka_cluster.records("dead", 0)
    assert {name: (value or b"").decode() for name, value in letter.headers} == {
        "dead-letter.reason": "there is no partition 7: 'orders' has 2, from 0",
        "dead-letter.topic": "orders",
        "dead-letter.partition": "7",
    }


@pytest.mark.parametrize(
    ("row", "dead_letters", "message"),
    [
        ((None, 0, "v"), None, "row 1: ValueError: column 'topic': there is no topic"),
        (("unknown", None, "v"), "dead", r"row 1 \(topic 'unknown'\): MetadataTimeout"),
        ((None, 0, "v"), "gone", r"row 1 \(topic 'gone'\): MetadataTimeout"),
    ],
    ids=["nobody wants letters", "what may be mended is no bad row", "letters cannot be sent"],
)
def test_a_row_that_fails_fails_the_call(
    kafka_cluster: ThreadedCluster, host: Worker, row: Any, dead_letters: str | None, message: str
) -> None:
    with pytest.raises(SendTableError, match=message):
        send(kafka_cluster, host, batch(("orders", 0, "a"), row), dead_letters=dead_letters)
