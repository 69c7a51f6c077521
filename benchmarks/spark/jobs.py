"""Spark jobs of the benchmark, equal for each sink except for the name in `format(…)`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from benchmarks.figures import Run
from benchmarks.settings import Settings, Tuning, Work
from benchmarks.spark.engine import Engine
from benchmarks.spark.table import AT_LEAST_ONCE, MICRO_BATCH_ROWS, TASKS, WARM_UP_BATCHES

KEY = "substr(sha2(cast(id as string), 256), 1, 16) as key"
VALUE = "rpad(concat(id, ':', sha2(cast(id as string), 256)), {bytes}, '.') as value"
"""SQL expression of a distinct value with *bytes* bytes."""
HEADERS = """array(
    named_struct('key', 'trace', 'value', encode(substr(sha2(cast(id as string), 256), 1, 16), 'utf-8')),
    named_struct('key', 'type', 'value', encode('created', 'utf-8'))
) as headers"""


class Target(NamedTuple):
    """Destination of the rows: sink, servers and topic."""

    sink: str
    """Name in `format(…)`."""
    servers: str
    topic: str
    guarantee: str = ""
    """`deliveryGuarantee` of aioproducer's sink; empty for the default."""
    settings: Settings = Settings(work=Work.BULK, tuning=Tuning.DEFAULTS)

    @property
    def options(self) -> dict[str, str]:
        """Options of the sink: every other option keeps the sink's default."""
        options = {"kafka.bootstrap.servers": self.servers, "topic": self.topic}
        if self.settings.compression != "none":
            options["kafka.compression.type"] = self.settings.compression
        if self.settings.tuning is Tuning.EQUAL:
            options["kafka.linger.ms"] = str(self.settings.linger_ms)
            options["kafka.batch.size"] = str(self.settings.batch_bytes)
        if self.guarantee:
            options["deliveryGuarantee"] = self.guarantee
        if self.exactly_once:
            options["transactionalIdPrefix"] = self.topic
        return options

    @property
    def exactly_once(self) -> bool:
        """True if rows are written in transactions."""
        return self.guarantee not in ("", AT_LEAST_ONCE)


def cached_rows(
    spark: SparkSession, rows: int, settings: Settings, partitions: int | None = None
) -> DataFrame:
    """Return a DataFrame of *rows* rows in Spark's memory, so that a run measures the sink alone.

    *partitions* is the number of Spark partitions; None keeps Spark's default.
    """
    columns = [VALUE.format(bytes=settings.value_bytes)]
    columns += [KEY] if settings.keys else []
    columns += [HEADERS] if settings.headers else []
    frame = spark.range(0, rows, numPartitions=partitions).selectExpr(*columns).cache()
    frame.count()
    return frame


def batch(engine: Engine, rows: DataFrame, target: Target) -> Run:
    """Write *rows*, and return their rate and CPU time."""
    count = rows.count()
    before, began = engine.cpu(), perf_counter()
    rows.write.format(target.sink).mode("append").options(**target.options).save()
    seconds, used = perf_counter() - began, engine.cpu().since(before)
    figures = {
        "records_s": count / seconds,
        "cpu_us": (used.jvm + used.python) / count * 1e6,
        "python_us": used.python / count * 1e6,
    }
    return Run(sent=count, figures=figures)


def micro_batches(spark: SparkSession, count: int, target: Target, directory: Path) -> Run:
    """Stream *count* files of one row, one file per micro-batch, after a warm-up; return the duration of a micro-batch.

    The query ends after the last file, so the number of micro-batches and rows is fixed.
    """
    rows = directory / "rows"
    rows.mkdir(parents=True)
    files = WARM_UP_BATCHES + count
    for number in range(files):
        (rows / f"{number:05}.txt").write_text(f"{number}\n", encoding="utf-8")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(rows))
    return _to_the_end(lines, files, files, target, directory)


def write_files(spark: SparkSession, count: int, settings: Settings, directory: Path) -> None:
    """Write the files for *count* large micro-batches and for the warm-up."""
    batches = WARM_UP_BATCHES + count
    (
        spark.range(0, batches * MICRO_BATCH_ROWS, numPartitions=batches * TASKS)
        .selectExpr(KEY, VALUE.format(bytes=settings.value_bytes))
        .write.parquet(str(directory))
    )


def large_micro_batches(
    rows: DataFrame, count: int, target: Target, directory: Path, *, one_task: bool
) -> Run:
    """Stream *rows* in micro-batches of TASKS files, with one task per file, or with *one_task* for all files."""
    batches = WARM_UP_BATCHES + count
    written = rows.coalesce(1) if one_task else rows
    return _to_the_end(written, batches, batches * MICRO_BATCH_ROWS, target, directory)


def _to_the_end(rows: DataFrame, batches: int, sent: int, target: Target, directory: Path) -> Run:
    query = (
        rows.writeStream.format(target.sink)
        .options(**target.options)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return Run(sent=sent, figures=latencies([each.durationMs for each in query.recentProgress], batches))


def latencies(durations: Sequence[dict[str, Any]], batches: int) -> dict[str, float]:
    """Return the median durations of a query with *batches* micro-batches, without the warm-up.

    Raises: RuntimeError if the number of micro-batches differs, because their sizes then differ.
    """
    written = [each for each in durations if "addBatch" in each]
    if len(written) != batches:
        raise RuntimeError(f"expected {batches} micro-batches, got {len(written)}")
    counted = written[WARM_UP_BATCHES:]
    return {
        "p50_ms": median(each["triggerExecution"] for each in counted),
        "sink_ms": median(each["addBatch"] for each in counted),
    }
