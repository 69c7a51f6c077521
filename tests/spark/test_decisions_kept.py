"""Possibly lost decisions, and queries that change guarantee or prefix: an error or a warning."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from aioproducer.spark.decision_records import TOPIC
from examples.spark.stream import events_from, make_events, records_of
from tests.kafka.apache.broker import ApacheKafka
from tests.spark.audited import audited_when_committed
from tests.spark.features import needs_stream_sink
from tests.spark.log import SparkLog
from tests.spark.program import ROOT

ROWS: Final = 500
RUN: Final = "kept"
KEEP: Final = {"cleanup.policy": "compact"}
EXPIRE: Final = {"cleanup.policy": "delete", "retention.ms": "604800000"}
"""The defaults of brokers."""


@pytest.fixture(scope="module")
def broker() -> Iterator[ApacheKafka]:
    """A broker of its own: other tests need the topic of decisions as it is created."""
    with ApacheKafka(properties={"auto.create.topics.enable": "false"}) as kafka:
        yield kafka


def rows(spark: SparkSession) -> DataFrame:
    events = spark.range(0, ROWS, numPartitions=2)
    return records_of(events.selectExpr("id as number", "'u' as user", "'/' as page"), RUN)


def save(spark: SparkSession, broker: ApacheKafka, topic: str, **options: str) -> None:
    (
        rows(spark)
        .write.format("aioproducer")
        .mode("append")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", topic)
        .option("deliveryGuarantee", "exactly-once")
        .option("transactionalIdPrefix", topic)
        .options(**options)
        .save()
    )


def check(broker: ApacheKafka, topic: str, expect: int) -> None:
    """Check that readers of committed records see each row once."""
    report = audited_when_committed(broker.bootstrap_servers, topic, RUN, expect)
    assert not report.lost, str(report)
    assert not report.duplicated, str(report)


def configure(broker: ApacheKafka, config: Mapping[str, str]) -> None:
    """Change settings of the topic of decisions; return when the broker describes and applies them."""
    broker.configure_topic(TOPIC, config)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    deadline = time.monotonic() + 20
    while True:
        told = admin.describe_configs([resource])[resource].result()
        if all(told[name].value == value for name, value in config.items()):
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def remove_records(broker: ApacheKafka) -> None:
    """Remove all records of the topic of decisions, as retention does."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for removed in admin.delete_records([TopicPartition(TOPIC, 0, -1)]).values():
        removed.result()


def confirm(broker: ApacheKafka, prefix: str) -> None:
    command = [sys.executable, "-m", "aioproducer", "spark-recover", prefix, "--confirm"]
    command += ["--bootstrap-servers", broker.bootstrap_servers]
    subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=ROOT)


def test_job_is_written_once_on_a_topic_whose_decisions_expire(
    spark: SparkSession, broker: ApacheKafka
) -> None:
    topic = "kept-job"
    broker.create_topic(topic, 3)
    broker.create_topic(TOPIC, 1, config=EXPIRE)
    with pytest.raises(
        PySparkException, match=r"decisions expire.*--alter --add-config cleanup\.policy=compact"
    ):
        save(spark, broker, topic, jobId="nightly")
    configure(broker, KEEP)
    save(spark, broker, topic, jobId="nightly")
    save(spark, broker, topic, jobId="nightly")
    with pytest.raises(PySparkException, match="job nightly: the job is committed"):
        save(spark, broker, topic, jobId="nightly", onCommittedJob="fail")
    configure(broker, EXPIRE)
    remove_records(broker)
    configure(broker, KEEP)
    for prefix in (topic, "kept-new"):
        with pytest.raises(PySparkException, match=r"decisions are lost|were removed"):
            save(spark, broker, topic, jobId="nightly", transactionalIdPrefix=prefix)
    check(broker, topic, ROWS)
    confirm(broker, topic)
    save(spark, broker, topic, jobId="nightly 2", onCommittedJob="fail")
    broker.delete_topic(TOPIC)
    for _ in range(2):
        with pytest.raises(PySparkException, match=r"decisions are lost|deleted or recreated"):
            save(spark, broker, topic, jobId="nightly 2")


@needs_stream_sink
def test_running_query_changes_guarantee_and_prefix(
    spark: SparkSession, broker: ApacheKafka, tmp_path: Path, spark_log: SparkLog
) -> None:
    topic = "kept-query"
    broker.create_topic(topic, 3)
    files = 0

    def run(prefix: str | None) -> None:
        """Write one more file."""
        nonlocal files
        files += 1
        make_events(tmp_path / "events", files=files, events_per_file=ROWS)
        again(prefix)

    def again(prefix: str | None) -> None:
        writer = (
            records_of(events_from(spark, tmp_path / "events"), RUN)
            .writeStream.format("aioproducer")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        if prefix is not None:
            writer = writer.option("deliveryGuarantee", "exactly-once").option(
                "transactionalIdPrefix", prefix
            )
        assert writer.start().awaitTermination(90)

    run(None)
    run("kept-a")
    query = json.loads((tmp_path / "checkpoint/metadata").read_text())["id"]
    line = spark_log.wait_for(f'spark.batch.may_be_doubled batch=1 of="query {query}" prefix=kept-a')
    assert "WARNING" in line
    assert "no decision yet" in line
    run("kept-b")
    (tmp_path / "checkpoint/commits/2").unlink()  # as if the driver had died before Spark noted the commit
    (tmp_path / "checkpoint/commits/.2.crc").unlink(missing_ok=True)
    with pytest.raises(PySparkException, match="is committed under transactionalIdPrefix 'kept-b'"):
        again("kept-a")
    again("kept-b")
    run("kept-a")
    check(broker, topic, files * ROWS)
    assert spark_log.text().count("spark.batch.may_be_doubled") == 1
