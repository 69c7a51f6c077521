"""Spark's own standalone cluster on loopback: a master and two workers, each with room for one executor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.spark.program import Program
from tests.spark.session import JAVA_OPTIONS, environment

HOSTS = ("127.0.0.1", "127.0.0.2")
"""Two addresses: Spark runs a speculative attempt on another host only. All of 127/8 is loopback on Linux."""

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"

SETTINGS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.locality.wait": "0",  # any free executor runs a task, even if its rows are stored elsewhere
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # no task starts before there are two executors
}
"""What a driver needs to have an executor on each worker."""


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """Start a cluster; give the URL of its master."""
    directory.mkdir()
    variables = (
        environment(directory)
        | {
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{JAVA_OPTIONS} -Dspark.master.rest.enabled=false",  # it has a port of its own
            "PYTHONPATH": "",  # executors are to find aioproducer where it is installed, not here
        }
    )

    def daemon(name: str, kind: str, host: str, *arguments: str) -> Program:
        ports = ("--port", "0", "--webui-port", "0")  # whichever are free
        command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{kind}", "--host", host, *ports, *arguments]
        return Program(command, directory / f"{name}.log", variables)

    with ExitStack() as daemons:
        master = daemons.enter_context(daemon("master", "master.Master", HOSTS[0]))
        said = master.log.wait_for("Starting Spark master at", timeout_s=60)
        url = said.split()[-1]
        room = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory), url)
        workers = [
            daemons.enter_context(daemon(f"worker-{number}", "worker.Worker", host, *room))
            for number, host in enumerate(HOSTS)
        ]
        for worker in workers:
            worker.log.wait_for("Successfully registered with master", timeout_s=60)
        yield url
