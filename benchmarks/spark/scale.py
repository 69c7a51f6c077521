"""Costs of a job with many tasks and partitions: time, connections, memory, markers.

    python -m benchmarks.spark.scale --tasks 1000 --partitions 1000
    python -m benchmarks.spark.scale --tasks 1000 --partitions 10 --guarantee exactly-once

Two tasks run at a time, on one broker, so the figures show costs per task and not the speed of a cluster.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final, NamedTuple

import click
import psutil

from benchmarks.parent.session import broker
from benchmarks.parent.topics import Topics, stored
from benchmarks.spark.engine import Engine
from benchmarks.spark.jobs import KEY, VALUE, Target
from benchmarks.spark.table import AT_LEAST_ONCE, GUARANTEES, OURS

SAMPLE_S: Final = 0.5
"""Interval of the samples, in seconds. The kernel lists closed connections for a minute, so the samples include every
connection."""
MIB: Final = 2**20
NUMBERS: Final = count(1)


class Watch:
    """Samples Spark's Python processes and the connections to a broker."""

    def __init__(self, engine: Engine, port: int) -> None:
        self._engine = engine
        self._port = port
        self._over = threading.Event()
        self.opened: set[tuple[str, int]] = set()
        self.at_once = 0
        self.processes = 0
        self.rss_bytes = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Take samples until the end of the `with` block."""
        thread = threading.Thread(target=self._watch)
        before = {local for local, _ in self._connected()}
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self._look()
            self.opened -= before

    def _connected(self) -> Iterator[tuple[tuple[str, int], str]]:
        for each in psutil.net_connections("tcp"):
            if each.laddr and each.raddr and each.raddr.port == self._port:
                yield (each.laddr.ip, each.laddr.port), each.status

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self._look()

    def _look(self) -> None:
        now = list(self._connected())
        self.opened.update(local for local, _ in now)
        self.at_once = max(self.at_once, sum(status == psutil.CONN_ESTABLISHED for _, status in now))
        sizes = []
        for process in self._engine.python():
            with suppress(psutil.NoSuchProcess):
                sizes.append(process.memory_info().rss)
        self.processes = max(self.processes, len(sizes))
        self.rss_bytes = max([self.rss_bytes, *sizes])


class Taken(NamedTuple):
    """Costs of a job."""

    seconds: float
    processes: int
    rss_bytes: int
    """Peak resident memory of the largest Python process, in bytes."""
    opened: int
    """Number of all connections."""
    at_once: int
    """Peak number of open connections."""
    markers: int


def job(engine: Engine, servers: str, *, tasks: int, partitions: int, rows: int, guarantee: str) -> Taken:
    """Write *rows* rows with keys in each task, check the topic, and return the costs."""
    topics, every = Topics(servers), tasks * rows
    with topics.fresh(f"scale-{next(NUMBERS)}", partitions) as topic:
        target = Target(OURS, servers, topic, guarantee)
        frame = engine.spark.range(0, every, numPartitions=tasks)
        writer = frame.selectExpr(KEY, VALUE.format(bytes=100)).write.format(OURS).mode("append")
        if target.exactly_once:
            writer = writer.option("jobId", topic)
        watch = Watch(engine, int(servers.rpartition(":")[2]))
        with watch.watching():
            began = perf_counter()
            writer.options(**target.options).save()
            seconds = perf_counter() - began
        topics.check(topic, partitions, every, committed=target.exactly_once)
        ends = stored(servers, [(topic, partition) for partition in range(partitions)])
    return Taken(
        seconds, watch.processes, watch.rss_bytes, len(watch.opened), watch.at_once, markers=ends - every
    )


@click.command()
@click.option("--tasks", type=click.IntRange(1), default=1_000, show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=1_000, show_default=True)
@click.option("--rows", type=click.IntRange(1), default=1_000, show_default=True, help="Rows per task.")
@click.option("--guarantee", type=click.Choice(GUARANTEES), default=AT_LEAST_ONCE, show_default=True)
@click.option(
    "--times", type=click.IntRange(1), default=1, show_default=True, help="Number of consecutive jobs."
)
def main(tasks: int, partitions: int, rows: int, guarantee: str, times: int) -> None:
    """Write rows with keys in many tasks, and print the costs."""
    with (
        TemporaryDirectory() as directory,
        broker(None) as (servers, _),
        Engine.running(Path(directory)) as engine,
    ):
        for _ in range(times):
            taken = job(engine, servers, tasks=tasks, partitions=partitions, rows=rows, guarantee=guarantee)
            click.echo(
                f"{guarantee}: {tasks:,} tasks × {partitions:,} partitions, {tasks * rows:,} rows:"
                f" {taken.seconds:.1f} s; {taken.processes} Python processes of at most"
                f" {taken.rss_bytes / MIB:.0f} MiB; {taken.opened:,} connections opened, {taken.at_once} at once;"
                f" {taken.markers:,} markers"
            )


if __name__ == "__main__":
    main()
