"""A session of the Spark benchmark: one broker, one Spark session, all sinks in turn."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from benchmarks.figures import Played, Results, Run
from benchmarks.machine import machine
from benchmarks.parent import rounds
from benchmarks.parent.rounds import Step
from benchmarks.parent.topics import Topics
from benchmarks.row import Row
from benchmarks.settings import PARTITIONS, Tuning
from benchmarks.spark import idle_sink, jobs
from benchmarks.spark.engine import Engine
from benchmarks.spark.table import (
    BATCHES,
    GUARANTEES,
    IDLE,
    ONE_PARTITION,
    ONE_TASK,
    OURS,
    SINKS,
    STREAM,
    TABLE,
    TASKS,
)
from tests.kafka.apache.jars import VERSION
from tests.spark.jars import VERSION as CONNECTOR

REASON_LENGTH: Final = 300
"""Maximum length of a Java error message, in characters."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Options of the command line."""

    rows: int
    """Number of rows of the DataFrame."""
    rounds: int
    work: tuple[str, ...] | None = None
    """Names of the measured rows of the table; None for all."""

    def steps(self) -> list[Step]:
        """Return every run in order, including a first round as a warm-up."""
        rows = [row for name, row in TABLE.items() if self.work is None or name in self.work]
        return rounds.plan(rows, (*SINKS, IDLE, *GUARANTEES), self.rounds + 1, seconds=1)


def run_steps(
    asked: Asked, servers: str, follow: Callable[[Step, str], None]
) -> dict[Tuning, dict[str, Played]]:
    """Start Spark, run all steps, and return their results by table, without the first round."""
    with TemporaryDirectory() as directory, Engine.running(Path(directory)) as engine:
        session = Session(asked, engine, Topics(servers), Path(directory))
        rows = rounds.run_steps(asked.steps(), session.run, follow)
    for played in rows.values():
        for runs in played.runs.values():
            del runs[0]
    tables: dict[Tuning, dict[str, Played]] = {}
    for name, played in rows.items():
        tables.setdefault(TABLE[name].settings.tuning, {})[name] = played
    return tables


class Session:
    """Runs jobs, each with a new topic."""

    def __init__(self, asked: Asked, engine: Engine, topics: Topics, directory: Path) -> None:
        self._engine = engine
        self._topics = topics
        self._directory = directory
        self._count = asked.rows
        self._cached: tuple[Row, DataFrame] | None = None
        """Cached DataFrame of the current row. The DataFrames of other rows are freed."""
        self._numbers = count(1)
        idle_sink.register(engine.spark)

    def run(self, step: Step) -> Run:
        """Run a step and return its result.

        Raises: RuntimeError if the job fails or the topic lacks its rows.
        """
        name = f"{next(self._numbers)}-{step.client}"
        with self._topics.fresh(name, PARTITIONS) as topic:
            sink, guarantee = (OURS, step.client) if step.client in GUARANTEES else (step.client, "")
            target = jobs.Target(sink, self._topics.servers, topic, guarantee, step.row.settings)
            try:
                measured = self._measured(step.row, target, self._directory / name)
            except (Py4JError, PySparkException) as error:
                raise RuntimeError(" ".join(str(error).split())[:REASON_LENGTH]) from error
            written = 0 if step.client == IDLE else measured.sent
            self._topics.check(topic, PARTITIONS, written, committed=target.exactly_once)
        return measured

    def _measured(self, row: Row, target: jobs.Target, directory: Path) -> Run:
        if row in BATCHES:
            return jobs.batch(self._engine, self._rows(row), target)
        spark, batches = self._engine.spark, row.settings.records
        if row.name == STREAM.name:
            return jobs.micro_batches(spark, batches, target, directory)
        return jobs.large_micro_batches(
            self._stream(batches), batches, target, directory, one_task=row.name == ONE_TASK.name
        )

    def _rows(self, row: Row) -> DataFrame:
        """Return the DataFrame of *row*, shared by all sinks."""
        if self._cached is not None and self._cached[0] != row:
            self._cached[1].unpersist()
            self._cached = None
        if self._cached is None:
            rows = min(self._count, row.settings.records or self._count)
            partitions = 1 if row.name == ONE_PARTITION.name else None
            self._cached = row, jobs.cached_rows(self._engine.spark, rows, row.settings, partitions)
        return self._cached[1]

    def _stream(self, batches: int) -> DataFrame:
        """Return the stream of *batches* large micro-batches, shared by all sinks."""
        spark, files = self._engine.spark, self._directory / f"rows-{batches}"
        if not files.exists():
            jobs.write_files(spark, batches, ONE_TASK.settings, files)
        schema = spark.read.parquet(str(files)).schema
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", TASKS).parquet(str(files))


def empty_results(asked: Asked) -> Results:
    """Return results without runs: only date, machine, versions and options."""
    return Results(
        made=datetime.now(UTC).date().isoformat(),
        machine=machine(),
        versions={platform.python_implementation(): platform.python_version()}
        | {name: version(name) for name in ("aioproducer", "pyarrow", "pyspark")}
        | {"Spark's Kafka connector": CONNECTOR, "Apache Kafka": VERSION},
        options=asdict(asked),
    )
