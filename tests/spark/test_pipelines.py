"""A declarative pipeline with this sink, run by `spark-pipelines run`."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka
from tests.spark.program import LOCAL, Program
from tests.spark.session import environment, settings

pytest.importorskip("pyspark.pipelines", reason="declarative pipelines came with Spark 4.1")
pytest.importorskip("grpc", reason="declarative pipelines need pyspark[pipelines]")

DEFINITIONS = Path(__file__).with_name("pipeline.py")
SPARK_HOME = Path(pyspark.__file__).parent


def test_pipeline_writes_each_row_once(kafka: ApacheKafka, topic: str, tmp_path: Path) -> None:
    """Spark gives its query the name of the flow."""
    events = tmp_path / "events"
    events.mkdir()
    (events / "1.json").write_text("".join(f'{{"value": "{number}"}}\n' for number in range(1_000)))
    variables = {"BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "TOPIC": topic, "EVENTS": str(events)}
    with pipeline(tmp_path / "project", variables) as program:
        program.wait(150)  # two JVMs start, one after the other
    said = program.log.text()
    assert "Run is COMPLETED" in said
    assert "batch=0 rows=1000 " in said
    assert "spark.source_option.without_effect name=failOnDataLoss" in said
    records = read_with_librdkafka(kafka.bootstrap_servers, topic)
    assert sorted(int(each.value or b"") for each in records) == list(range(1_000))


def pipeline(project: Path, variables: dict[str, str]) -> Program:
    """Start DEFINITIONS as a project of their own, on a Spark of its own."""
    project.mkdir()
    (project / DEFINITIONS.name).symlink_to(DEFINITIONS)
    specification = project / "spark-pipeline.yml"
    specification.write_text(
        f"name: tests\nstorage: {(project / 'storage').as_uri()}\n"
        f"libraries:\n  - glob:\n      include: {DEFINITIONS.name}\n"
    )
    options = [f"--conf={name}={value}" for name, value in settings(project).items()]
    return Program(
        [
            *(str(SPARK_HOME / "bin" / "spark-pipelines"), f"--remote={LOCAL}", *options),
            *("run", "--spec", str(specification)),
        ],
        project / "pipeline.log",
        {**environment(project), "SPARK_HOME": str(SPARK_HOME), **variables},
    )
