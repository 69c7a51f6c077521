"""The driver of a stream is killed amid a micro-batch, and another driver continues from its checkpoint."""

from __future__ import annotations

from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from examples.spark.stream import events_from, into_topic, make_events, records_of
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import await_records, read_with_librdkafka
from tests.spark.audited import audited
from tests.spark.features import needs_stream_sink
from tests.spark.gate import Gate
from tests.spark.log import SparkLog
from tests.spark.program import ROOT, driver

RUN = "killed"
EVENTS_PER_FILE = 40_000
GATE = EVENTS_PER_FILE + 35_000
GATED_QUERY = ROOT / "tests/spark/gated_stream.py"


@needs_stream_sink
def test_killed_driver_repeats_one_micro_batch_and_loses_nothing(
    spark: SparkSession, spark_log: SparkLog, kafka: ApacheKafka, topic: str, gate: Gate, tmp_path: Path
) -> None:
    events, checkpoint = tmp_path / "events", tmp_path / "checkpoint"
    make_events(events, files=3, events_per_file=EVENTS_PER_FILE)  # each is a micro-batch
    given = (kafka.bootstrap_servers, topic, events, checkpoint, RUN, gate.path, GATE)

    with driver(GATED_QUERY, *given, directory=tmp_path / "killed") as killed:
        killed.log.wait_for(
            f"batch=0 rows={EVENTS_PER_FILE} ", timeout_s=120
        )  # a JVM starts, and everything is cold
        gate.wait_until_reached()
        await_records(kafka.bootstrap_servers, topic, lambda records: len(records) > EVENTS_PER_FILE)
        started_by_it = killed.descendants()
        killed.kill()
        _, alive = psutil.wait_procs(started_by_it, timeout=30)
    assert not alive, "Spark's Python processes end with the JVM, the one with our event loop, too"
    assert committed(checkpoint) == {"0"}, "batch 1 was under way"

    rows = records_of(events_from(spark, events), RUN)
    query = into_topic(rows, kafka.bootstrap_servers, topic, checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    spark_log.wait_for(f"batch=1 rows={EVENTS_PER_FILE} ")
    spark_log.wait_for(f"batch=2 rows={EVENTS_PER_FILE} ")

    records = read_with_librdkafka(kafka.bootstrap_servers, topic)
    report = audited(records, RUN, expect=3 * EVENTS_PER_FILE)
    assert report.flaws == {"duplicated": len(records) - 3 * EVENTS_PER_FILE}, str(report)
    assert 0 < report.duplicated < EVENTS_PER_FILE, "what was there of batch 1, and of no other"


def committed(checkpoint: Path) -> set[str]:
    """Return the micro-batches that a query has done with."""
    return {file.name for file in (checkpoint / "commits").glob("[0-9]*")}
