"""The examples for Spark.

test_restart.py kills stream.py as a program; test_pipeline_examples.py has the examples that read Kafka.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from unittest import mock
from xml.etree import ElementTree as ET

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession, functions as fn

from aioproducer.audit import AuditReport, sequence_of
from aioproducer.spark.audit import audit, from_kafka
from examples.spark import (
    clickstream,
    csv_to_kafka,
    dead_letters,
    dedupe,
    demo,
    kafka_to_kafka,
    killed,
    stream,
)
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import await_records, read_with_librdkafka
from tests.spark.conftest import NewTopic, Save
from tests.spark.features import needs_stream_sink
from tests.spark.log import SparkLog

EXAMPLES = Path(__file__).parents[2] / "examples/spark"

Run = Callable[..., int | None]


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call the `main` of an example with a command line, on the Spark of the session."""
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)

    def call(example: ModuleType, *arguments: object) -> int | None:
        monkeypatch.setattr("sys.argv", [example.__name__, *map(str, arguments)])
        code: int | None = example.main()
        return code

    return call


def test_every_example_is_tested() -> None:
    modules = {
        Path(module.__file__ or "")
        for module in (clickstream, csv_to_kafka, dead_letters, dedupe, demo, kafka_to_kafka, killed, stream)
    }
    modules.add(EXAMPLES / "registry.py")  # by test_registry.py
    assert modules == set(EXAMPLES.glob("*.py"))


# --- csv_to_kafka


CSV = 'order,customer,country,total\n1,c-7,FR,41.50\n2,"c,8",,007\n3,,DE,\n'
EXPECTED = {
    (b"c-7", '{"order":"1","customer":"c-7","country":"FR","total":"41.50"}', b"FR"),
    (b"c,8", '{"order":"2","customer":"c,8","total":"007"}', None),
    (None, '{"order":"3","country":"DE"}', b"DE"),
}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_rows_of_files_become_records_with_keys_and_headers(
    run: Run,
    spark: SparkSession,
    kafka: ApacheKafka,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    form: str,
) -> None:
    file = tmp_path / f"orders.{form}"
    (tmp_path / "orders.csv").write_text(CSV)
    if form == "parquet":
        csv_to_kafka.rows_of(spark, [str(tmp_path / "orders.csv")]).coalesce(1).write.parquet(str(file))
    servers = kafka.bootstrap_servers
    run(csv_to_kafka, servers, topic, file, "--key", "customer", "--header", "country", "--header", "order")

    records = read_with_librdkafka(servers, topic)
    headers = [dict(each.headers) for each in records]
    assert {
        (each.key, (each.value or b"").decode(), named["country"])
        for each, named in zip(records, headers, strict=True)
    } == EXPECTED
    assert sorted(named["order"] or b"" for named in headers) == [b"1", b"2", b"3"]
    assert all((named["file"] or b"").endswith(form.encode()) for named in headers)
    size = sum(len(each.key or b"") + len(each.value or b"") for each in records)
    assert capsys.readouterr().out == f"3 rows, {size} bytes, are in topic {topic}\n"


def test_files_without_a_row_are_no_error(
    run: Run, kafka: ApacheKafka, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "none.csv").write_text("order,customer\n")
    run(csv_to_kafka, kafka.bootstrap_servers, topic, tmp_path / "none.csv")
    assert capsys.readouterr().out == f"0 rows, 0 bytes, are in topic {topic}\n"


# --- stream


@needs_stream_sink
def test_stream_continues_from_its_checkpoint(
    run: Run, spark: SparkSession, kafka: ApacheKafka, topic: str, tmp_path: Path
) -> None:
    events, checkpoint = tmp_path / "events", tmp_path / "checkpoint"
    stream.make_events(events, files=3, events_per_file=500)

    def once() -> AuditReport:
        run(stream, kafka.bootstrap_servers, topic, events, checkpoint, "--run", "r", "--once")
        return audit(from_kafka(spark, kafka.bootstrap_servers, topic, "r"), run="r", expect=1_500)

    assert once().ok
    # as if it had been killed between the last acknowledgement and the note that says so
    for note in (checkpoint / "commits").glob("*2*"):
        note.unlink()
    assert once().flaws == {"duplicated": 500}, "one micro-batch, whole"
    again = Counter(
        sequence_of(each.headers) for each in read_with_librdkafka(kafka.bootstrap_servers, topic)
    )
    twice = {number for number, count in again.items() if count == 2}
    # Spark reads files of the same millisecond in any order, so the last micro-batch may be any file.
    assert twice in [set(range(first, first + 500)) for first in (0, 500, 1_000)]


@needs_stream_sink
def test_stream_without_events_creates_some(
    run: Run, kafka: ApacheKafka, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream.make_events, "__kwdefaults__", {"files": 1, "events_per_file": 40})
    run(stream, kafka.bootstrap_servers, topic, tmp_path / "events", tmp_path / "checkpoint", "--once")
    records = read_with_librdkafka(kafka.bootstrap_servers, topic)
    values = [json.loads(each.value or b"") for each in records]
    assert sorted(value["number"] for value in values) == list(range(40))
    assert [each.key for each in records] == [value["user"].encode() for value in values]


# --- dead_letters


@needs_stream_sink
def test_unsendable_lines_become_dead_letters(
    run: Run, kafka: ApacheKafka, new_topic: NewTopic, tmp_path: Path, spark_log: SparkLog
) -> None:
    orders, dead, files = new_topic(2), new_topic(1), tmp_path / "in"
    files.mkdir()
    lines = [
        {"topic": orders, "key": "a", "value": "1"},
        {"topic": None, "key": "b", "value": "2"},
        {"topic": orders, "partition": 1, "value": "3"},
        {"topic": orders, "partition": 2, "key": "c", "value": "4"},
    ]
    (files / "1.json").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    servers = kafka.bootstrap_servers
    for _ in range(2):  # the second time there is nothing to do
        run(dead_letters, servers, files, dead, tmp_path / "checkpoint", "--prefix", dead, "--once")

    def seen(topic: str) -> list[tuple[bytes | None, bytes | None]]:
        records = await_records(
            servers, topic, lambda found: len(found) >= 2, isolation_level="read_committed"
        )
        return sorted((each.value, each.key) for each in records)

    assert seen(orders) == [(b"1", b"a"), (b"3", None)]
    assert seen(dead) == [(b"2", b"b"), (b"4", b"c")]
    line = spark_log.wait_for("spark.batch.bad_rows")
    assert f" batch=0 rows=2 topic={dead} reason=\"column 'topic': there is no topic (null)\"" in line


# --- clickstream


def test_demo_page_reports_success(
    spark: SparkSession, kafka: ApacheKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "DIRECTORY", tmp_path / "demo")
    monkeypatch.setattr(demo, "ApacheKafka", lambda: nullcontext(kafka))
    monkeypatch.setattr(demo, "spark_session", lambda _: nullcontext(spark))
    survive_a_kill = mock.Mock(return_value=True)  # test_pipeline_examples.py tests its effect
    monkeypatch.setattr(demo, "survive_a_kill", survive_a_kill)
    assert demo.main(6_000) == 0
    survive_a_kill.assert_called_once_with(kafka)

    page = (tmp_path / "demo/clickstream.html").read_text(encoding="utf-8")
    assert "<h1>Every click is there once, in order</h1>" in page
    assert not re.search(r'(src|href)="(?!#)', page), "it needs no other file"
    drawing = ET.fromstring(page[page.index("<svg") : page.index("</svg>") + len("</svg>")])
    text = {each.text for each in drawing.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Records per partition", *map(str, range(demo.CLICKS_PARTITIONS)), *clickstream.COUNTRIES} <= text

    country_of = {row.user_id: row.country for row in clickstream.users_of(spark, 7).collect()}
    where: dict[bytes | None, int] = {}
    for each in read_with_librdkafka(kafka.bootstrap_servers, demo.CLICKS):
        value = json.loads(each.value or b"")
        assert each.key == b"user-%d" % value["user_id"]
        assert value["country"] == country_of[value["user_id"]]
        assert value["section"] == clickstream.PAGES[value["path"]]
        assert where.setdefault(each.key, each.partition) == each.partition
    assert set(where.values()) == set(range(demo.CLICKS_PARTITIONS))


def test_flawed_clicks_are_on_the_page_and_in_the_exit_code(
    run: Run,
    spark: SparkSession,
    save: Save,
    kafka: ApacheKafka,
    new_topic: NewTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, page = new_topic(2), tmp_path / "clickstream.html"
    save(spark.range(5).selectExpr("'of somebody else' as value"), topic)
    write = clickstream.write

    def write_badly(records: DataFrame, bootstrap_servers: str, topic: str) -> None:
        late = (
            records.where("number != 7").coalesce(1).sortWithinPartitions(fn.expr("number = 500"), "number")
        )
        write(late, bootstrap_servers, topic)
        write(records.where("number = 8"), bootstrap_servers, topic)

    monkeypatch.setattr(clickstream, "write", write_badly)
    assert run(clickstream, kafka.bootstrap_servers, topic, "--clicks", 1_000, "--page", page) == 1
    text = page.read_text(encoding="utf-8")
    assert "<h1>Not all is well</h1>" in text
    assert "1,000 records of run clicks-" in text
    assert "1,000 expected: 1 lost, 1 duplicated, 1 out of order." in text


def test_topic_is_read_equally_without_sparks_kafka_source(
    spark: SparkSession, save: Save, kafka: ApacheKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(b"k", b"v", [("a", b"1"), ("b", None)]), (None, None, None), (None, b"w", [])]
    columns = "key binary, value binary, headers array<struct<key:string,value:binary>>"
    save(spark.createDataFrame(rows * 50, columns), topic)

    def read() -> list[Row]:
        found = clickstream.rows_of(spark, kafka.bootstrap_servers, topic)
        return found.select(*clickstream.ROWS.names).orderBy("partition", "offset").collect()

    by_spark = read()
    assert len(by_spark) == 150

    def load(_: DataFrameReader) -> DataFrame:
        raise AnalysisException("Failed to find data source: kafka.")

    monkeypatch.setattr(DataFrameReader, "load", load)
    assert read() == by_spark


def test_clicks_depend_only_on_the_seed(spark: SparkSession) -> None:
    def clicks(count: int, seed: int) -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in clickstream.clicks_of(spark, count, seed).collect())

    few = clicks(300, 1)
    assert few == clicks(900, 1)[:300]
    assert few != clicks(300, 2)
