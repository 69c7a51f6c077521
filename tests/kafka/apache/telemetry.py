"""A broker that takes the metrics of its clients (KIP-714): the plugin for it, and what they have pushed."""

from __future__ import annotations

import os
import socketserver
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from threading import Condition, Thread
from typing import NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData, NumberDataPoint

from tests.kafka.apache.broker import QUICK_START, ApacheKafka
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


class Receiver:
    """Those who wait for what a broker's plugin hands on, each push by a connection of its own."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self.kafka = kafka
        self._pushed: list[Push] = []
        self._arrived = Condition()

    def subscribe(self, prefixes: str, interval_ms: int) -> None:
        """Ask all clients for the metrics whose names begin with one of *prefixes*, separated by commas."""
        _java(
            "org.apache.kafka.tools.ClientMetricsCommand",
            *("--bootstrap-server", self.kafka.bootstrap_servers, "--alter", "--name", "tests"),
            *("--metrics", prefixes, "--interval", str(interval_ms)),
        )

    def take(self, stream: BufferedIOBase) -> None:
        """Read a push as MetricsReceiver.java writes it."""
        client_id, instance, terminating, data = (_part(stream) for _ in range(4))
        with self._arrived:
            self._pushed.append(
                Push(
                    client_id.decode(),
                    instance.decode(),
                    terminating == b"true",
                    MetricsData.FromString(data),
                )
            )
            self._arrived.notify_all()

    def await_pushes(
        self, client_id: str, enough: Callable[[list[Push]], bool], timeout_s: float
    ) -> list[Push]:
        """Return what a client has pushed, in order, once there is enough of it. Raises: TimeoutError."""

        def found() -> list[Push]:
            return [each for each in self._pushed if each.client_id == client_id]

        with self._arrived:
            if not self._arrived.wait_for(lambda: found() and enough(found()), timeout_s):
                raise TimeoutError(f"{client_id} has pushed {len(found())} times, not yet what is waited for")
            return found()


@contextmanager
def receiving(folder: Path) -> Iterator[Receiver]:
    """Start a broker with the plugin, which is compiled into *folder*."""
    _java("--module", "jdk.compiler/com.sun.tools.javac.Main", "-d", str(folder), str(PLUGIN))
    receivers: list[Receiver] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            receivers[0].take(self.rfile)

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        properties = {
            "metric.reporters": PLUGIN.stem,
            "metrics.receiver.port": server.socket.getsockname()[1],
        }
        with ApacheKafka(properties=properties, plugins=[folder]) as kafka:
            receivers.append(Receiver(kafka))
            thread = Thread(target=server.serve_forever)
            thread.start()
            try:
                yield receivers[0]
            finally:
                server.shutdown()
                thread.join()


def can_compile() -> bool:
    """Whether the Java of the tests is a whole JDK."""
    listed = subprocess.run([find_java(), "--list-modules"], check=True, capture_output=True, text=True)
    return "jdk.compiler@" in listed.stdout


def _part(stream: BufferedIOBase) -> bytes:
    """Read as many bytes as the four before them say."""
    return stream.read(struct.unpack(">i", stream.read(4))[0])


def _java(*command: str) -> None:
    done = subprocess.run(
        [find_java(), *QUICK_START, *command],
        check=False,
        env=os.environ | {"CLASSPATH": class_path()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}")
