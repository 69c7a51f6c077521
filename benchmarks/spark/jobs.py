"""The jobs: the same for each sink, which is a word in `format(…)`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from benchmarks.figures import Run
from benchmarks.settings import Settings
from benchmarks.spark.engine import Engine
from benchmarks.spark.table import WARM_UP_BATCHES

KEY = "substr(sha2(cast(id as string), 256), 1, 16) as key"
VALUE = "rpad(concat(id, ':', sha2(cast(id as string), 256)), {bytes}, '.') as value"
"""Distinct, and of that many bytes."""


class Target(NamedTuple):
    """Where rows go, and through what."""

    sink: str
    """What stands in `format(…)`."""
    servers: str
    topic: str

    @property
    def options(self) -> dict[str, str]:
        """Of the sink: beside these each has its producer's own defaults."""
        return {"kafka.bootstrap.servers": self.servers, "topic": self.topic}


def cached_rows(spark: SparkSession, rows: int, settings: Settings) -> DataFrame:
    """Return *rows* rows with keys, in Spark's memory: what is measured is a sink, not where its rows come from."""
    frame = spark.range(rows).selectExpr(KEY, VALUE.format(bytes=settings.value_bytes)).cache()
    frame.count()
    return frame


def batch(engine: Engine, rows: DataFrame, target: Target) -> Run:
    """Write *rows*, and return how fast they were acknowledged, and what that took."""
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
    """Stream *count* files of one row each, one at a time, after some more; return how long a micro-batch takes.

    As many files as there are, as many micro-batches: so the rows can be counted when the query has ended by itself.
    """
    rows = directory / "rows"
    rows.mkdir(parents=True)
    files = WARM_UP_BATCHES + count
    for number in range(files):
        (rows / f"{number:05}.txt").write_text(f"{number}\n", encoding="utf-8")
    query = (
        spark.readStream.option("maxFilesPerTrigger", 1)
        .text(str(rows))
        .writeStream.format(target.sink)
        .options(**target.options)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return Run(sent=files, figures=latencies([each.durationMs for each in query.recentProgress], files))


def latencies(durations: Sequence[dict[str, Any]], files: int) -> dict[str, float]:
    """Return the medians of a query that took *files* micro-batches, without the first ones.

    Raises: RuntimeError: it was another number of them, so that they were not of one row each.
    """
    written = [each for each in durations if "addBatch" in each]
    if len(written) != files:
        raise RuntimeError(f"{files} micro-batches were expected, there were {len(written)}")
    counted = written[WARM_UP_BATCHES:]
    return {
        "p50_ms": median(each["triggerExecution"] for each in counted),
        "sink_ms": median(each["addBatch"] for each in counted),
    }
