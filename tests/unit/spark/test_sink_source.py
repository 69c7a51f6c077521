"""What Spark's planner is given, and on which Sparks."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkNotImplementedError, PySparkRuntimeError, PySparkValueError
from pyspark.sql import datasource
from pyspark.sql.types import StringType, StructField, StructType

from aioproducer.spark import AioProducerSource, committing
from aioproducer.spark.arrival import dumps
from aioproducer.spark.stream_writer import StreamWriter
from aioproducer.spark.writer import BatchWriter
from pyspark_aioproducer import DefaultSource

OPTIONS = {"kafka.bootstrap.servers": "a:9092", "topic": "orders"}
ROWS = StructType([StructField("value", StringType())])


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The topics of each check; there is no broker."""
    checked: list[tuple[str, ...]] = []
    monkeypatch.setattr(committing, "check", lambda _host, _settings, topics: checked.append(topics))
    monkeypatch.setattr(committing, "worker", lambda: None)
    return checked


@pytest.mark.parametrize("source", [AioProducerSource, DefaultSource])
def test_the_writers_can_travel_to_the_tasks(source: type[datasource.DataSource]) -> None:
    assert source.name() == "aioproducer"
    assert isinstance(cloudpickle.loads(dumps(source(OPTIONS).writer(ROWS, False))), BatchWriter)
    assert isinstance(cloudpickle.loads(dumps(source(OPTIONS).streamWriter(ROWS, False))), StreamWriter)


def test_a_batch_is_checked_by_its_writer_and_a_stream_as_it_travels(checked: list[tuple[str, ...]]) -> None:
    """A process that commits a micro-batch makes a writer, and may only have to abort."""
    AioProducerSource({**OPTIONS, "onBadRow": "topic:dead"}).writer(ROWS, False)
    assert checked == [("orders", "dead")]
    writer = AioProducerSource(OPTIONS).streamWriter(ROWS, False)
    assert checked == [("orders", "dead")]
    dumps(writer)
    assert checked[1:] == [("orders",)]


def test_spark_may_name_the_arguments() -> None:
    """It does, when it commits a micro-batch: by then the rows would have been written."""
    assert isinstance(DefaultSource(OPTIONS).streamWriter(schema=ROWS, overwrite=True), StreamWriter)


def test_a_topic_is_not_overwritten() -> None:
    with pytest.raises(PySparkValueError, match="Save mode Overwrite not allowed for Kafka"):
        AioProducerSource(OPTIONS).writer(ROWS, True)


def test_spark_4_0_writes_batches_and_names_foreachbatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(datasource, "DataSourceStreamArrowWriter")
    monkeypatch.setattr("pyspark.__version__", "4.0.5")
    assert isinstance(AioProducerSource(OPTIONS).writer(ROWS, False), BatchWriter)
    with pytest.raises(
        PySparkRuntimeError, match=r"this is Spark 4\.0\.5; .*foreachBatch\(lambda rows, batch_id"
    ):
        AioProducerSource(OPTIONS).streamWriter(ROWS, False)


def test_spark_4_0_imports_the_package() -> None:
    program = "from pyspark.sql import datasource; del datasource.DataSourceStreamArrowWriter; import aioproducer.spark"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("kind", [AioProducerSource, DefaultSource])
def test_a_read_names_the_format_that_reads(kind: type[datasource.DataSource]) -> None:
    source = kind({})
    stream = source.streamReader(ROWS)
    for read in (lambda: source.reader(ROWS), stream.initialOffset):
        with pytest.raises(PySparkNotImplementedError, match=r"only writes; read .* format 'kafka'$"):
            read()
    with pytest.raises(
        PySparkNotImplementedError, match=r"'kafka'; CREATE TABLE … .* needs columns, such as"
    ):
        source.schema()


def test_what_spark_imports_to_find_the_format_imports_nothing_of_ours() -> None:
    """An error in there would hide everybody's formats."""
    program = (
        "import sys, pyspark_aioproducer; print([m for m in sys.modules if m.startswith('aioproducer')])"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert output.stdout.decode().strip() == "[]"


@pytest.mark.parametrize(("missing", "package"), [("pyspark.sql.datasource", "spark"), ("pyarrow", "arrow")])
def test_a_missing_package_is_named_with_what_to_install(missing: str, package: str) -> None:
    program = f"import sys; sys.modules['{missing}'] = None; import aioproducer.{package}"
    output = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=60)
    assert 'pip install "pyarrow' in output.stderr.decode().splitlines()[-1]
