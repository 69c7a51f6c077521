"""The examples that read Kafka, transform records and write exactly once, also when killed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession, functions as fn

from aioproducer.audit import stamp
from examples.spark import dedupe, kafka_to_kafka, killed, stream
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import Record, await_records
from tests.spark.audited import audited
from tests.spark.conftest import NewTopic, Save
from tests.spark.features import needs_stream_sink
from tests.spark.program import ROOT, driver, submit_environment

RUN = "events"
EVENTS = 12_000
TRANSACTION = 2_000

Once = Callable[..., None]


@pytest.fixture
def once(spark: SparkSession, kafka: ApacheKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Once:
    """Run an example in the Spark of the session until it has written all input."""
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)

    def run(example: ModuleType, *arguments: object) -> None:
        given = (kafka.bootstrap_servers, *arguments, tmp_path / "checkpoint", "--once")
        monkeypatch.setattr("sys.argv", [example.__name__, *map(str, given)])
        example.main()

    return run


def committed(kafka: ApacheKafka, topic: str, count: int) -> list[Record]:
    """Return the committed records once there are *count* or more."""
    servers = kafka.bootstrap_servers
    return await_records(servers, topic, lambda found: len(found) >= count, isolation_level="read_committed")


def write_transactions(kafka: ApacheKafka, topic: str) -> None:
    """Write the events, with librdkafka, in transactions; before each is one with the same events that is aborted."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for first in range(0, EVENTS, TRANSACTION):
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for number in range(first, first + TRANSACTION):
                value = json.dumps(
                    {"number": number, "user": f"user-{number % 97}", "page": f"/{number % 13}"}
                )
                producer.produce(topic, value, f"user-{number % 97}", headers=list(stamp(RUN, number)))
            producer.flush(30)
            end(30)


@needs_stream_sink
@pytest.mark.timeout(300)
def test_event_is_copied_once_when_the_query_is_killed(
    kafka: ApacheKafka, new_topic: NewTopic, once: Once, tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    write_transactions(kafka, source)
    some = ("--at-a-time", 2_500)
    given = (kafka.bootstrap_servers, source, target, tmp_path / "checkpoint", *some)
    script = ROOT / "examples/spark/kafka_to_kafka.py"
    with driver(script, *given, directory=tmp_path / "killed") as killed:
        killed.log.wait_for("spark.batch.committed", timeout_s=120)
        killed.kill()
    notes = {note.name for note in (tmp_path / "checkpoint/commits").glob("[0-9]*")}
    once(kafka_to_kafka, source, target, *some)

    records = committed(kafka, target, EVENTS)
    report = audited(records, RUN, expect=EVENTS)
    assert (report.lost, report.duplicated, report.unexpected) == (0, 0, 0), str(report)
    assert len(records) == EVENTS
    assert len(notes) < EVENTS // 2_500, "it was killed on the way"
    values = [json.loads(each.value or b"") for each in records]
    assert {value["section"] for value in values} == {"shop", "rest"}
    assert [each.key for each in records] == [value["section"].encode() for value in values]
    assert all((value["page"] in {"/1", "/2", "/3"}) == (value["section"] == "shop") for value in values)


@needs_stream_sink
def test_first_of_two_equal_events_is_kept(
    spark: SparkSession, kafka: ApacheKafka, save: Save, new_topic: NewTopic, once: Once
) -> None:
    """The second event may be in the same or a later micro-batch, with other fields; much later duplicates are kept."""
    source, target = new_topic(), new_topic()

    def events(first: int, last: int, said: str, at: str = "10:00:00") -> None:
        time = fn.lit(f"2026-07-01T{at}Z")
        event = fn.struct(
            fn.concat(fn.lit("e-"), "id").alias("id"), time.alias("time"), fn.lit("u").alias("user"),
            fn.lit(said).alias("said"),
        )  # fmt: skip
        save(spark.range(first, last).select(fn.to_json(event).alias("value")), source)

    def seen(count: int) -> list[tuple[str, str]]:
        values = [json.loads(each.value or b"") for each in committed(kafka, target, count)]
        return sorted((value["id"], value["said"]) for value in values)

    def expected(**numbers: range) -> list[tuple[str, str]]:
        return sorted((f"e-{number}", said) for said, each in numbers.items() for number in each)

    events(0, 500, "first")
    once(dedupe, source, target)
    events(400, 600, "again")
    events(550, 600, "again")
    once(dedupe, source, target)
    assert seen(600) == expected(first=range(500), again=range(500, 600))

    events(1_000, 1_001, "later", at="23:00:00")  # the watermark follows
    once(dedupe, source, target)
    events(0, 1, "late", at="23:30:00")
    once(dedupe, source, target)
    assert seen(602) == expected(
        first=range(500), again=range(500, 600), later=range(1_000, 1_001), late=range(1)
    )


@needs_stream_sink
@pytest.mark.skipif(os.environ.get("EXACTLY_ONCE") != "all", reason="takes a minute; EXACTLY_ONCE=all has it")
@pytest.mark.timeout(300)
def test_killed_and_restarted_stream_is_on_the_page(
    kafka: ApacheKafka,
    new_topic: NewTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic, page, files = new_topic(), tmp_path / "killed.html", 6
    stream.make_events(tmp_path / "events", files=files, events_per_file=5_000)
    for name, value in submit_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    assert killed.run_through(kafka.bootstrap_servers, topic, tmp_path, page)
    assert "read_committed:   30,000 rows in, 30,000 rows out, 0 lost, 0 doubled\n" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert "<h1>Each row is there once, whatever died</h1>" in text
    (committed_by_it,) = re.findall(rf"it had committed (\d+) of {files} micro-batches", text)
    assert killed.COMMITTED <= int(committed_by_it) < files
    assert not re.search(r'(src|href)="(?!#)', text), "it needs no other file"
    ET.fromstring(text[text.index("<svg") : text.index("</svg>") + len("</svg>")])


def test_rows_that_are_lost_or_doubled_are_on_the_page(
    spark: SparkSession, kafka: ApacheKafka, save: Save, topic: str
) -> None:
    rows = spark.range(10).withColumnRenamed("id", "number").where("number != 3")
    records = stream.records_of(rows.selectExpr("number", "'u' as user", "'/' as page"), topic)
    save(records.union(records.where("value like '%:5,%'")), topic)
    report = killed.read_back(kafka.bootstrap_servers, topic, "read_committed", 10)
    assert not killed.is_exact(report)
    page = killed.page_of({"read_committed": report, "read_uncommitted": report}, 3, 8)
    assert "<h1>Not all is well</h1>" in page
    assert "<td>10</td><td>10</td>\n<td>1</td><td>1</td>" in page
