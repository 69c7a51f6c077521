"""A warm Spark, as a user has it: compiled in full, with two cores. And what its processes have used of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

import psutil
from pyspark.sql import SparkSession

from tests.spark.session import spark_session

SETTINGS: Final = {
    "spark.driver.extraJavaOptions": "",  # the tests have the JVM start fast, and stay slow
    "spark.driver.memory": "2g",
    "spark.sql.files.openCostInBytes": "128m",  # each file is a task, however small
    "spark.python.unix.domain.socket.enabled": "true",  # as docs/spark.md advises for small micro-batches
}


class Cpu(NamedTuple):
    """Seconds of CPU."""

    jvm: float
    python: float

    def since(self, before: Cpu) -> Cpu:
        """Return what came after *before*."""
        return Cpu(self.jvm - before.jvm, self.python - before.python)


class Engine:
    """Spark, and how much it works."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        jvm = spark._jvm  # noqa: SLF001 - the only door to it, which half the world goes through
        assert jvm is not None
        self._jvm = psutil.Process(jvm.java.lang.ProcessHandle.current().pid())

    @classmethod
    @contextmanager
    def running(cls, directory: Path) -> Iterator[Self]:
        """Start Spark; *directory* is for what it writes."""
        with spark_session(directory, SETTINGS) as spark:
            yield cls(spark)

    def python(self) -> list[psutil.Process]:
        """Return the Python processes that Spark has started."""
        return self._jvm.children(recursive=True)

    def cpu(self) -> Cpu:
        """Return what Spark's JVM, and the Python processes that it has started, have used so far.

        What a process has used that has ended is with the one that started it, at the last with the JVM.
        """
        own = self._jvm.cpu_times()
        python = own.children_user + own.children_system
        for process in self.python():
            with suppress(psutil.NoSuchProcess):
                python += sum(process.cpu_times()[:4])  # user and system, its own and those of its children
        return Cpu(own.user + own.system, python)
