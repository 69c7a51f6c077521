"""Sending of rows, without Spark; test_task.py has the task around it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from aioproducer import Producer
from aioproducer._core.clock import wall_ms
from aioproducer.arrow import SendTableError
from aioproducer.arrow.arrow_columns import Columns
from aioproducer.errors import BrokerError, InvalidRecord, TopicAuthorizationFailed, UnknownTopicOrPartition
from aioproducer.spark.messages import BadRows
from aioproducer.spark.rate_limit import RateLimiter
from aioproducer.spark.sending import Sending, Sent
from aioproducer.spark.sink_options import ProducerSettings
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
    assert ("dead", 0) in sent.offsets, "the commit needs a partition even if all rows are bad"


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
    ids=["without dead letters", "retriable error is no bad row", "dead letters cannot be sent"],
)
def test_failed_row_fails_the_call(
    kafka_cluster: ThreadedCluster, host: Worker, row: Any, dead_letters: str | None, message: str
) -> None:
    with pytest.raises(SendTableError, match=message):
        send(kafka_cluster, host, batch(("orders", 0, "a"), row), dead_letters=dead_letters)


class TestRefusedByTheBroker:
    """Rows that a broker refuses for their content are letters, and others are written in their order."""

    COLUMNS = Columns(value="value", key="key", topic="kept", partition="partition")

    def rows(self, count: int, every: int) -> pa.RecordBatch:
        keys = [None if number % every == 1 else b"k" for number in range(count)]
        return pa.record_batch(
            {
                "value": pa.array([b"%05d" % number for number in range(count)], pa.binary()),
                "key": pa.array(keys, pa.binary()),
                "partition": pa.array([number % 2 for number in range(count)], pa.int32()),
            }
        )

    def run(
        self,
        cluster: ThreadedCluster,
        host: Worker,
        *batches: pa.RecordBatch,
        guarantee: str,
        dead: str | None = "dead",
    ) -> Sent:
        items = {"bootstrap.servers": cluster.bootstrap_servers, "batch.size": "500", "max.block.ms": "2000"}
        settings = ProducerSettings(tuple(sorted(items.items())))
        if guarantee == "at-least-once":
            with host.producer(settings) as producer:
                return Sending(producer, host, self.COLUMNS, dead).run(batches)
        with host.transactional(settings, "tx", passes_refusals=dead is not None) as producer:
            host.submit(producer.begin_transaction()).result()
            sent = Sending(producer, host, self.COLUMNS, dead).run(batches)
            host.submit(producer.commit_transaction()).result()
            return sent

    @pytest.mark.parametrize("every", [2, 50], ids=["every second", "few"])
    @pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
    def test_refused_rows_are_letters(
        self, kafka_cluster: ThreadedCluster, host: Worker, guarantee: str, every: int
    ) -> None:
        kafka_cluster.create_topic("kept", 2, compacted=True)
        sent = self.run(kafka_cluster, host, *[self.rows(300, every)] * 2, guarantee=guarantee)
        bad = [number for number in range(300) if number % every == 1]
        expected = [f"{number:05d}" for number in range(300) if number % every != 1]
        assert sent.rows == 2 * len(expected)
        assert sent.bad is not None
        assert (sent.bad.rows, sent.bad.topic) == (2 * len(bad), "dead")
        assert sent.bad.reason.startswith("InvalidRecord: kept-")
        for partition in (0, 1):
            mine = [value for value in expected if int(value) % 2 == partition]
            assert values(kafka_cluster, "kept", partition) == mine * 2
        letters = kafka_cluster.records("dead", 0, isolation_level="read_committed")
        assert sorted(int(each.value or b"") for each in letters) == sorted(bad * 2)

    @pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
    def test_rows_over_the_topics_limit_are_cut_letters(
        self, kafka_cluster: ThreadedCluster, host: Worker, guarantee: str
    ) -> None:
        kafka_cluster.create_topic("kept", 2, message_max_bytes=2_000)
        large = pa.record_batch(
            {**self.rows(1, 2).to_pydict(), "value": pa.array([b"x" * 3_000], pa.binary())}
        )
        large = large.set_column(2, "partition", pa.array([0], pa.int32()))
        sent = self.run(
            kafka_cluster, host, self.rows(10, 100), large, self.rows(10, 100), guarantee=guarantee
        )
        (letter,) = (each for each in kafka_cluster.records("dead", 0) if len(each.value or b"") > 5)
        assert letter.value == b"x" * 1_024
        told = dict(letter.headers)
        assert (told["dead-letter.reason"] or b"").startswith(b"MessageTooLarge: ")
        assert told["dead-letter.bytes"] == b"3001"
        assert sent.rows == 20

    @pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
    def test_refused_row_fails_the_call_without_letters(
        self, kafka_cluster: ThreadedCluster, host: Worker, guarantee: str
    ) -> None:
        kafka_cluster.create_topic("kept", 2, compacted=True)
        with pytest.raises(
            SendTableError, match=r"^row 1 \(topic 'kept', partition 1\): InvalidRecord: "
        ) as raised:
            self.run(kafka_cluster, host, self.rows(40, 100), guarantee=guarantee, dead=None)
        assert raised.value.row == 1

    def test_refused_letter_fails_the_call(self, kafka_cluster: ThreadedCluster, host: Worker) -> None:
        for name in ("kept", "dead too"):
            kafka_cluster.create_topic(name.replace(" ", "-"), 2, compacted=True)
        with pytest.raises(SendTableError, match=r"row 1 \(topic 'dead-too'\): InvalidRecord"):
            self.run(kafka_cluster, host, self.rows(40, 100), guarantee="at-least-once", dead="dead-too")

    def test_rows_of_a_batch_refused_without_names_fail(
        self, kafka_cluster: ThreadedCluster, host: Worker
    ) -> None:
        kafka_cluster.create_topic("kept", 2)
        kafka_cluster.on("produce", topic="kept", times=None).answer(InvalidRecord)
        with pytest.raises(SendTableError, match="InvalidRecord"):
            self.run(kafka_cluster, host, self.rows(40, 100), guarantee="at-least-once")
        assert values(kafka_cluster, "dead") == []


class TestTimes:
    """Rows outside of the time window of their topic."""

    COLUMNS = Columns(value="value", timestamp="at", topic="orders")

    def run(self, cluster: ThreadedCluster, host: Worker, dead: str | None, *ages_ms: int | None) -> Sent:
        now = wall_ms()
        times = [None if age is None else now - age for age in ages_ms]
        rows = pa.record_batch(
            {
                "value": pa.array([str(number) for number in range(len(times))]),
                "at": pa.array(times, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
            }
        )
        settings = ProducerSettings((("bootstrap.servers", cluster.bootstrap_servers),))
        with host.producer(settings) as producer:
            return Sending(producer, host, self.COLUMNS, dead, partial(host.time_window, settings)).run(
                [rows]
            )

    DAY = 86_400_000

    def test_rows_outside_of_the_window_are_letters(
        self, kafka_cluster: ThreadedCluster, host: Worker
    ) -> None:
        for _ in range(2):
            sent = self.run(kafka_cluster, host, "dead", 0, 8 * self.DAY, None, -2 * self.DAY, 6 * self.DAY)
            assert sent.bad is not None
            assert (sent.rows, sent.bad.rows, sent.unchecked) == (3, 2, ())
            assert "is older than topic 'orders' allows (retention.ms=604800000)" in sent.bad.reason
        assert kafka_cluster.request_count("describe_configs") == 1
        assert values(kafka_cluster, "dead") == ["1", "3"] * 2
        written = {*values(kafka_cluster, "orders"), *values(kafka_cluster, "orders", 1)}
        assert written == {"0", "2", "4"}

    def test_row_outside_of_the_window_fails_the_call(
        self, kafka_cluster: ThreadedCluster, host: Worker
    ) -> None:
        with pytest.raises(
            SendTableError, match=r"row 1 \(topic 'orders'\): ValueError: column 'at': .*; 1 more"
        ):
            self.run(kafka_cluster, host, None, 0, 8 * self.DAY, -2 * self.DAY)
        assert kafka_cluster.records("orders", 0) == []

    @pytest.mark.parametrize("error", [TopicAuthorizationFailed, UnknownTopicOrPartition])
    def test_timestamps_are_unchecked_without_the_topic_settings(
        self, kafka_cluster: ThreadedCluster, host: Worker, error: type[BrokerError]
    ) -> None:
        kafka_cluster.on("describe_configs", times=None).answer(error)
        sent = self.run(kafka_cluster, host, "dead", 0, 8 * self.DAY)
        assert (sent.rows, sent.bad) == (2, None)
        assert sent.unchecked[0] == "orders"
        assert sent.unchecked[1].startswith(f"{error.__name__}: ")


@pytest.mark.parametrize("dead_letters", [None, "dead"])
def test_sending_paces_keys_values_headers_and_letters(
    kafka_cluster: ThreadedCluster, host: Worker, dead_letters: str | None
) -> None:
    columns = Columns(value="value", key="key", headers="headers", topic="orders")
    rows = pa.RecordBatch.from_pylist(
        [{"key": "key", "value": "v" * 10, "headers": [{"key": "name", "value": b"abc"}]}] * 100,
        pa.schema(
            {
                "key": pa.string(),
                "value": pa.string(),
                "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
            }
        ),
    )
    slept: list[float] = []
    limiter = RateLimiter(1_000.0, clock=lambda: sum(slept), sleep=slept.append)
    producer = Producer(kafka_cluster.bootstrap_servers)
    host.submit(producer.start()).result()
    try:
        sent = Sending(producer, host, columns, dead_letters, limiter=limiter).run(
            [rows.slice(0, 60), rows.slice(60)]
        )
    finally:
        host.submit(producer.close()).result()
    assert sent.rows == 100
    assert sum(slept) == pytest.approx(100 * (3 + 10 + 4 + 3) / 1_000)
    assert max(slept) <= 0.26, "a piece is a quarter of a second"
