"""A Spark session with the full just-in-time compiler and two cores, and the CPU time of its processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

import psutil
from pyspark.sql import SparkSession

from tests.spark.session import spark_session

SETTINGS: Final = {
    "spark.driver.extraJavaOptions": "",  # the tests limit the just-in-time compiler for a fast start
    "spark.driver.memory": "2g",
    "spark.sql.files.openCostInBytes": "128m",  # one task per file, also for small files
    "spark.python.unix.domain.socket.enabled": "true",  # as docs/spark.md advises for small micro-batches
}


class Cpu(NamedTuple):
    """Seconds of CPU."""

    jvm: float
    python: float

    def since(self, before: Cpu) -> Cpu:
        """Return the CPU time since *before*."""
        return Cpu(self.jvm - before.jvm, self.python - before.python)


class Engine:
    """A Spark session and the CPU time of its processes."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        jvm = spark._jvm  # noqa: SLF001 - the only access to the JVM, widely used
        assert jvm is not None
        self._jvm = psutil.Process(jvm.java.lang.ProcessHandle.current().pid())

    @classmethod
    @contextmanager
    def running(cls, directory: Path) -> Iterator[Self]:
        """Start Spark, which writes its files to *directory*."""
        with spark_session(directory, SETTINGS) as spark:
            yield cls(spark)

    def python(self) -> list[psutil.Process]:
        """Return the Python processes that Spark has started."""
        return self._jvm.children(recursive=True)

    def cpu(self) -> Cpu:
        """Return the CPU time so far of Spark's JVM and of the Python processes that it started.

        The CPU time of an ended process counts for its parent, and finally for the JVM.
        """
        own = self._jvm.cpu_times()
        python = own.children_user + own.children_system
        for process in self.python():
            with suppress(psutil.NoSuchProcess):
                python += sum(
                    process.cpu_times()[:4]
                )  # user and system time, of the process and its children
        return Cpu(own.user + own.system, python)
