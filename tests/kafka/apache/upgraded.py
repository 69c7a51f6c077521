"""Three brokers with KRaft that are upgraded to another release one after the other."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.kafka.apache.broker import HOST, ApacheKafka, free_ports
from tests.kafka.apache.java import find_java
from tests.kafka.apache.node import Node
from tests.kafka.apache.releases import JVM_OPTIONS, Release

NODES: Final = (1, 2, 3)


class UpgradedKafka(ApacheKafka):
    """Three nodes, each broker and controller, that start with *release*."""

    def __init__(self, release: Release) -> None:
        super().__init__(brokers=len(NODES), jvm_options=JVM_OPTIONS, start_timeout_s=180)
        self._release = release

    def upgrade(self, node_id: int, release: Release) -> None:
        """Shut a broker down, start it with *release*, and wait until it serves."""
        deadline = time.monotonic() + self._start_timeout_s
        self.shut_down(node_id)
        node = self._nodes[node_id]
        node.java = _java(release)
        node.start()
        node.wait_started(deadline)
        self._await_brokers(deadline)

    def _java(self) -> list[str | Path]:
        return _java(self._release)

    def _create_nodes(self, directory: Path, java: Sequence[str | Path]) -> None:
        ports = free_ports(2 * len(NODES))
        self._ports = dict(zip(NODES, ports, strict=False))
        self._controller_ports = dict(zip(NODES, ports[len(NODES) :], strict=True))
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        for node_id in NODES:
            node = self._nodes[node_id] = Node(node_id, directory, java, self._properties_of(node_id))
            node.format(cluster_id, standalone=False)

    def _properties_of(self, node_id: int) -> dict[str, str | int]:
        self._controller_port = self._controller_ports[node_id]
        properties = super()._properties_of(node_id) | {
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{HOST}:{self._ports[node_id]},CONTROLLER://{HOST}:{self._controller_port}",
            "controller.quorum.voters": ",".join(
                f"{each}@{HOST}:{port}" for each, port in self._controller_ports.items()
            ),
            "auto.create.topics.enable": "false",
        }
        del properties[
            "controller.quorum.bootstrap.servers"
        ]  # without it, the quorum is static, as before 3.9
        return properties


def _java(release: Release) -> list[str | Path]:
    return [find_java(), *JVM_OPTIONS, "-cp", release.class_path()]
