"""Spark Connect: the same format, for a program that has no JVM of its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import await_records
from tests.spark.connect_job import ROWS, WAYS
from tests.spark.program import ROOT, Program
from tests.spark.session import environment, settings

pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")


@pytest.mark.skipif(
    os.environ.get("EXACTLY_ONCE") != "all", reason="a Spark of its own; EXACTLY_ONCE=all has it"
)
def test_batches_and_streams_are_written_through_spark_connect(
    kafka: ApacheKafka, topic: str, tmp_path: Path
) -> None:
    """At least once and exactly once; with a jobId from foreachBatch, where a query's id is not to be known."""
    (tmp_path / "settings.json").write_text(json.dumps(settings(tmp_path)), encoding="utf-8")
    command = [sys.executable, str(ROOT / "tests/spark/connect_job.py")]
    command += [kafka.bootstrap_servers, topic, str(tmp_path)]
    variables = {**environment(tmp_path), "PYTHONPATH": str(ROOT)}
    with Program(command, tmp_path / "connect.log", variables) as program:
        program.wait(170)
    expected = sorted(f"{way}-{number}".encode() for way in WAYS for number in range(ROWS))
    records = await_records(
        kafka.bootstrap_servers,
        topic,
        lambda found: len(found) >= len(expected),
        isolation_level="read_committed",
    )
    assert sorted(each.value or b"" for each in records) == expected
