"""The rate limit of a job: a write takes at least the time that the limit asks for."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from pyspark.sql import SparkSession

from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka

ROWS, BYTES = 2_000, 100
EXACTLY_ONCE = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "paced", "jobId": "paced"}


@pytest.mark.parametrize("more", [{}, EXACTLY_ONCE], ids=["at-least-once", "exactly-once"])
def test_job_takes_the_time_of_its_rate_limit(
    spark: SparkSession, topic: str, kafka: ApacheKafka, more: Mapping[str, str]
) -> None:
    rows = spark.range(0, ROWS, 1, 2).selectExpr(f"lpad(id, {BYTES}, '0') AS value")
    options = {
        "topic": topic,
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "maxBytesPerSecond": "100000",
    }
    began = time.monotonic()
    rows.write.format("aioproducer").mode("append").options(**options, **more).option(
        "maxConcurrentTasks", "2"
    ).save()
    assert time.monotonic() - began >= 0.98 * ROWS * BYTES / 100_000
    assert len(read_with_librdkafka(kafka.bootstrap_servers, topic)) == ROWS
