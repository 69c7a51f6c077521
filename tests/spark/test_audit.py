"""The audit on Spark of a topic or of files, compared with the audit in memory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as fn

from aioproducer import Producer
from aioproducer.audit import Audit, AuditReport, stamp
from aioproducer.cli.audit_command import audit_and_report
from aioproducer.config import ProducerConfig
from aioproducer.spark.audit import (
    audit,
    from_json,
    from_kafka,
    from_parquet,
    of_run,
    stamp as stamp_column,
)
from tests.kafka.apache.broker import ApacheKafka
from tests.spark.conftest import NewTopic, Save

PAGE = Path(__file__).parents[2] / "docs/reference/audit.md"

Row = tuple[int, int, int | None]
COLUMNS = "partition int, offset bigint, sequence bigint"


def logs(*partitions: list[int | None]) -> list[Row]:
    """Return the rows of logs that are given as lists of sequences."""
    return [
        (partition, offset, sequence)
        for partition, log in enumerate(partitions)
        for offset, sequence in enumerate(log, 100)
    ]


def random_logs(seed: int) -> list[Row]:
    """Return logs with some of everything that an audit looks for."""
    random = Random(seed)
    sent = [number for number in range(600) if random.random() > 0.02]
    partitions: list[list[int | None]] = [[] for _ in range(5)]
    for number in sent:
        for _ in range(1 + (random.random() < 0.03)):
            random.choice(partitions).append(number)
    for log in partitions:
        log.insert(random.randrange(len(log)), random.choice((None, -1, 10**17, 650)))
        at = random.randrange(len(log) - 3)
        log[at : at + 3] = reversed(log[at : at + 3])
    return logs(*partitions)


CASES: dict[str, tuple[list[Row], int | None]] = {
    "fine": (logs([0, 2, 4], [1, 3]), 5),
    "lost": (logs([0], [], [9, 30]), 1_000),
    "duplicated here and there": (logs([0, 1, 2, 0, 1, 3], [4, 2, 5]), 6),
    "out of order": (logs([0, 3, 1, 2, 4], [5, 6]), None),
    "a copy hides no order": (logs([0, 1, 2, 3, 4, 9], [9, 5, 6, 7, 8]), None),
    "unexpected": (logs([0, None, 1, -1, 2, 3, None]), 3),
    "far off": (logs([0, 10**17, 1, 5]), None),
    "nothing": ([], 3),
    "nothing at all": ([], None),
    "some of everything, not told": (random_logs(1), None),
    "some of everything, told": (random_logs(2), 620),
}


def in_memory(rows: list[Row], expect: int | None) -> AuditReport:
    counted = Audit("r", expect=expect)
    for row in rows:
        counted.add(*row)
    return counted.report()


@pytest.mark.parametrize(("rows", "expect"), CASES.values(), ids=CASES)
def test_audit_equals_the_audit_in_memory(spark: SparkSession, rows: list[Row], expect: int | None) -> None:
    shuffled = Random(0).sample(rows, len(rows))
    found = audit(spark.createDataFrame(shuffled, COLUMNS), run="r", expect=expect)
    assert found == in_memory(rows, expect)


def test_lanes_and_order_agree_with_the_audit_in_memory(spark: SparkSession) -> None:
    rows = random_logs(4)
    lanes = [Random(1).choice((None, b"a", b"b")) for _ in rows]
    counted = Audit("r", order=True)
    for row, lane in zip(rows, lanes, strict=True):
        counted.add(*row, lane)
    with_lanes = [(*row, lane) for row, lane in zip(rows, lanes, strict=True)]
    found = audit(spark.createDataFrame(with_lanes, f"{COLUMNS}, lane binary"), run="r", order=True)
    assert found == counted.report()
    assert found.flaws["out of order"] > 0


def test_run_through_the_sink_is_read_back_from_kafka(
    spark: SparkSession, save: Save, new_topic: NewTopic, kafka: ApacheKafka
) -> None:
    topic = new_topic(3)
    columns = ("id", "cast(id % 3 as int) as partition", "cast(id as string) as key", "'v' as value")
    trace = fn.expr("array(named_struct('key', 'trace', 'value', cast('1f' as binary)))")

    def write(rows: DataFrame, run: str) -> None:
        records = rows.coalesce(1).selectExpr(*columns)
        save(records.withColumn("headers", fn.concat(trace, stamp_column(run, fn.col("id")))), topic)

    write(spark.range(2_000), "nightly-7")
    write(spark.range(500), "nightly-70")
    save(spark.range(10).selectExpr("cast(id as string) as value"), topic)
    records = from_kafka(spark, kafka.bootstrap_servers, topic, "nightly-7")
    report = audit(records, run="nightly-7", expect=2_000)
    assert report.ok, str(report)
    assert report.records == 2_000
    assert [part.partition for part in report.partitions] == [0, 1, 2]

    tasks = spark.range(3_000, numPartitions=3).selectExpr(*columns)
    lane = fn.spark_partition_id()
    save(tasks.withColumn("headers", stamp_column("tasks", fn.col("id"), lane)), topic)
    assert audit(from_kafka(spark, kafka.bootstrap_servers, topic, "tasks"), order=True).ok

    write(spark.range(1_990, 2_010), "nightly-7")
    report = audit(records, run="nightly-7", expect=2_020)
    assert report.flaws == {"lost": 10, "duplicated": 10}
    assert report.first_lost == tuple(range(2_010, 2_020))
    assert report.records == 2_020


async def test_audits_of_the_command_line_and_spark_agree(
    spark: SparkSession, save: Save, topic: str, kafka: ApacheKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = [b"0", b"1", b"1", b"5", b"3", b"", b"+7", b"8\n", b"9" * 19, b"0004", b"\xff", None]
    headers = [[*stamp("r", 0)[:1], ("aioproducer-seq", number)] for number in numbers]
    headers += [
        [*stamp("r", 6), *stamp("s", 0)],
        [*stamp("s", 0), *stamp("r", 7)],
        [("aioproducer-run", None)],
    ]
    rows = [(b"v", 0, header) for header in headers]
    columns = "value binary, partition int, headers array<struct<key:string,value:binary>>"
    save(spark.createDataFrame(rows, columns).coalesce(1), topic)
    report = audit(from_kafka(spark, kafka.bootstrap_servers, topic, "r"), run="r")
    assert report.flaws == {"lost": 1, "duplicated": 1, "unexpected": 6}
    assert report.out_of_order == 2
    capsys.readouterr()
    config = ProducerConfig(bootstrap_servers=kafka.bootstrap_servers)
    assert not await audit_and_report(config, topic, "r", expect=None, as_json=True)
    assert json.loads(capsys.readouterr().out) == report.to_dict()


async def test_transactions_are_read_as_on_the_command_line(
    spark: SparkSession, topic: str, kafka: ApacheKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    """Aborted transactions amid and at the end of a partition, an open one, two lanes, and a repeated lane."""

    async def send(producer: Producer, *sequences: int) -> None:
        headers = [stamp("r", number, f"task {number % 2}") for number in sequences]
        await producer.send_many(topic, [b"v"] * len(sequences), partition=sequences[0] % 3, headers=headers)

    servers = kafka.bootstrap_servers
    async with Producer(servers, transactional_id=topic) as producer:
        for number in range(3):
            await producer.begin_transaction()
            await send(producer, *range(number, 60, 6))
            await producer.abort_transaction()
            await producer.begin_transaction()
            await send(producer, *range(number + 3, 60, 6), *range(number, 60, 6))
            await producer.commit_transaction()
            await producer.begin_transaction()
            await send(producer, *range(number, 60, 3))
            await producer.abort_transaction()
        await producer.begin_transaction()
        await send(producer, 0, 3)
        for order in (False, True):
            report = audit(from_kafka(spark, servers, topic, "r"), run="r", expect=60, order=order)
            capsys.readouterr()
            config = ProducerConfig(bootstrap_servers=servers)
            assert await audit_and_report(config, topic, "r", expect=60, as_json=True, order=order)
            assert json.loads(capsys.readouterr().out) == report.to_dict()
        uncommitted = from_kafka(spark, servers, topic, "r", isolation_level="read_uncommitted")
        assert audit(uncommitted, run="r", expect=60).flaws == {"duplicated": 92}
        await producer.abort_transaction()


def test_examples_of_the_audit_page_run(
    spark: SparkSession,
    save: Save,
    new_topic: NewTopic,
    kafka: ApacheKafka,
    capsys: pytest.CaptureFixture[str],
) -> None:
    send, _, on_spark_stamp, on_spark = re.findall(
        r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    sent, written = new_topic(2), new_topic(1)
    exec(send.replace("localhost:9092", kafka.bootstrap_servers).replace('"orders"', f'"{sent}"'), {})
    names: dict[str, Any] = {}
    exec(on_spark_stamp, names)
    save(names["records"].coalesce(1), written)
    for topic in (sent, written):
        exec(
            on_spark.replace("localhost:9092", kafka.bootstrap_servers).replace('"orders"', f'"{topic}"'), {}
        )
    told = "1,000 records of run nightly-7, 1,000 expected: each once, in order"
    assert capsys.readouterr().out.splitlines().count(told) == 2


def test_export_is_audited_like_the_topic(spark: SparkSession, tmp_path: Path) -> None:
    rows = random_logs(3)
    exported = spark.createDataFrame(
        [*((*row, "r", "k") for row in rows), (0, 1, 0, "s", "k"), (0, 2, 0, None, None)],
        f"{COLUMNS}, run string, key string",
    )
    exported.write.parquet(str(tmp_path / "parquet"))
    exported.write.json(str(tmp_path / "json"))
    expected = in_memory(rows, 620)
    for records in (
        from_parquet(spark, str(tmp_path / "parquet")),
        from_json(spark, str(tmp_path / "json")),
    ):
        assert audit(records, run="r", expect=620) == expected


def test_audit_without_a_run_counts_every_row(spark: SparkSession) -> None:
    rows = [(0, 0, 0, "r"), (0, 1, 1, "s")]
    report = audit(spark.createDataFrame(rows, f"{COLUMNS}, run string"), expect=2)
    assert (report.run, report.ok, report.records) == (None, True, 2)


def test_records_read_with_another_reader_are_accepted(spark: SparkSession) -> None:
    rows = [(0, 5, b"k", [*stamp("r", 0, "7")]), (0, 6, b"k", None), (0, 7, b"k", [*stamp("s", 1)])]
    columns = "partition int, offset bigint, key binary, headers array<struct<key:string,value:binary>>"
    found = of_run(spark.createDataFrame(rows, columns), "r")
    assert found.columns == ["partition", "offset", "key", "run", "sequence", "lane"]
    assert [tuple(row) for row in found.collect()] == [(0, 5, b"k", "r", 0, b"7")]


@pytest.mark.parametrize(
    "rows",
    [
        [(0, 7, 0), (0, 7, 0)],
        [(0, 7, 0), (0, 7, 1)],
        [(0, None, 0)],
        [(None, 7, 0)],
    ],
)
def test_rows_that_are_no_records_of_a_log_are_refused(
    spark: SparkSession, rows: list[tuple[int | None, int | None, int]]
) -> None:
    with pytest.raises(
        ValueError, match="records: 1 rows without a partition or an offset, or with those of another row"
    ):
        audit(spark.createDataFrame(rows, COLUMNS))


def test_columns_are_checked_before_anything_is_read(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="needs a column 'sequence'; the columns are partition, offset, seq"):
        audit(spark.createDataFrame([], "partition int, offset bigint, seq bigint"))
    with pytest.raises(TypeError, match="column 'sequence' is of type string, not of integers"):
        audit(spark.createDataFrame([], "partition int, offset bigint, sequence string"))
    with pytest.raises(ValueError, match="isolation_level='committed': expected read_committed or"):
        from_kafka(spark, "localhost:1", "orders", "r", isolation_level="committed")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expect = -1"):
        audit(spark.createDataFrame([], COLUMNS), expect=-1)


def test_malformed_json_line_fails_the_audit(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "export.json").write_text('{"partition": 0, "offset": 0, "sequence": 0}\n{"partition"\n')
    with pytest.raises(Exception, match="MALFORMED_RECORD_IN_PARSING"):
        audit(from_json(spark, str(tmp_path)))
