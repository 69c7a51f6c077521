"""The sending process is killed amid a task: Spark repeats the task, and the topic is audited."""

from __future__ import annotations

from contextlib import suppress

import psutil
from pyspark.sql import SparkSession, functions as fn

from examples.spark.stream import records_of
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka
from tests.spark.audited import audited
from tests.spark.conftest import Save
from tests.spark.gate import Gate
from tests.spark.log import SparkLog
from tests.spark.test_faults import while_half_done

RUN = "killed"
ROWS = 40_000


def test_killed_sending_process_is_replaced_and_loses_nothing(
    spark: SparkSession, save: Save, topic: str, kafka: ApacheKafka, gate: Gate, spark_log: SparkLog
) -> None:
    killed: list[psutil.Process] = []

    def kill_who_sends() -> None:
        killed.extend(processes_that_send(kafka))
        for each in killed:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        assert not psutil.wait_procs(killed, timeout=20)[1]

    events = spark.range(0, ROWS, numPartitions=1).selectExpr(
        "id as number", "concat('user-', id % 97) as user", "'/' as page"
    )
    number = gate.before(35_000, fn.col("number").cast("string")).cast("bigint")
    with while_half_done(gate, kafka, topic, kill_who_sends):
        save(records_of(events.withColumn("number", number), RUN), topic)
    assert killed
    assert f"rows={ROWS} " in spark_log.wait_for("spark.batch.committed")

    records = read_with_librdkafka(kafka.bootstrap_servers, topic)
    report = audited(records, RUN, expect=ROWS)
    assert report.flaws == {"duplicated": len(records) - ROWS}, str(report)
    assert 0 < report.duplicated < ROWS, "what the first attempt had written"


def processes_that_send(kafka: ApacheKafka) -> list[psutil.Process]:
    """Return the Python processes of this session's Spark that are connected with the broker, idle ones, too."""
    ports = {int(server.rpartition(":")[2]) for server in kafka.bootstrap_servers.split(",")}

    def sends(process: psutil.Process) -> bool:
        try:
            return process.name().startswith("python") and any(
                each.status == psutil.CONN_ESTABLISHED and each.raddr.port in ports
                for each in process.net_connections("tcp")
            )
        except psutil.Error:  # it has ended meanwhile, as idle ones do
            return False

    return [process for process in psutil.Process().children(recursive=True) if sends(process)]
