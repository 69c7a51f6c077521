"""A broker that takes the metrics of its clients (KIP-714): the plugin for it, and what they have pushed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData, NumberDataPoint

from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.apache.jars import class_path
from tests.kafka.apache.java import find_java

PLUGIN = Path(__file__).with_name("MetricsReceiver.java")


class Push(NamedTuple):
    """What a client has pushed."""

    client_id: str
    client_instance_id: str
    terminating: bool
    data: MetricsData

    def points(self) -> dict[str, NumberDataPoint]:
        """Return the values by metric, attributes in brackets behind its name."""
        return {
            f"{metric.name}{[each.value.string_value for each in point.attributes] or ''}": point
            for resource in self.data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in (*metric.gauge.data_points, *metric.sum.data_points)
        }


class Receiver(NamedTuple):
    """A broker, and where its plugin writes."""

    kafka: ApacheKafka
    directory: Path

    def subscribe(self, prefixes: str, interval_ms: int) -> None:
        """Ask all clients for the metrics whose names begin with one of *prefixes*, separated by commas."""
        _java(
            "org.apache.kafka.tools.ClientMetricsCommand",
            *("--bootstrap-server", self.kafka.bootstrap_servers, "--alter", "--name", "tests"),
            *("--metrics", prefixes, "--interval", str(interval_ms)),
        )

    def pushes(self, client_id: str) -> list[Push]:
        """Return what a client has pushed, in order."""
        found = []
        for path in sorted(self.directory.glob("*.otlp")):
            _, client, instance, terminating = path.stem.split(",")
            if client == client_id:
                data = MetricsData()
                data.ParseFromString(path.read_bytes())
                found.append(Push(client, instance, terminating == "true", data))
        return found


@contextmanager
def receiving(folder: Path) -> Iterator[Receiver]:
    """Start a broker with the plugin, which is compiled into *folder*."""
    classes, directory = folder / "classes", folder / "pushed"
    for each in (classes, directory):
        each.mkdir()
    _java("--module", "jdk.compiler/com.sun.tools.javac.Main", "-d", str(classes), str(PLUGIN))
    properties = {
        "metric.reporters": PLUGIN.stem,
        "metrics.receiver.directory": str(directory),
    }
    with ApacheKafka(properties=properties, plugins=[classes]) as kafka:
        yield Receiver(kafka, directory)


def can_compile() -> bool:
    """Whether the Java of the tests is a whole JDK."""
    listed = subprocess.run([find_java(), "--list-modules"], check=True, capture_output=True, text=True)
    return "jdk.compiler@" in listed.stdout


def _java(*command: str) -> None:
    done = subprocess.run(
        [find_java(), *command],
        check=False,
        env=os.environ | {"CLASSPATH": class_path()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}")
