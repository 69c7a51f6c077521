"""Other releases of Apache Kafka, from 0.11 to the newest, as one broker each: their jars, settings and processes.

To change a release: edit RELEASES, then `python -m tests.kafka.apache.releases` rewrites its file in `locks`.
"""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.kafka.apache.broker import HOST, ApacheKafka, free_ports
from tests.kafka.apache.jars import LOCK, VERSION, fetched, pin, resolved
from tests.kafka.apache.java import find_java
from tests.kafka.apache.node import BrokerFailed, Node

LOCKS: Final = Path(__file__).with_name("locks")
JVM_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PASSWORDS: Final = {"alice": "alices-password"}
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OF_KRAFT: Final = {"process.roles", "node.id", "controller.listener.names", "listener.security.protocol.map"}
_LOGGER: Final = "org.slf4j:slf4j-simple:1.7.36"
_JAXB: Final = "javax.xml.bind:jaxb-api:2.3.1"
"""Package that Kafka 0.11 uses, and that Java 11 removed."""
_SECURITY: Final = "org.apache.kafka.common.security"


class Release(NamedTuple):
    """A release of Apache Kafka."""

    version: str
    zookeeper: bool = False
    """True if the cluster's metadata is in ZooKeeper."""

    @property
    def number(self) -> tuple[int, ...]:
        """Major and minor version."""
        return tuple(map(int, self.version.split(".")[:2]))

    @property
    def lock(self) -> Path:
        """File with the pinned jars."""
        return LOCK if self.version == VERSION else LOCKS / f"{self.version}.lock"

    @property
    def what(self) -> str:
        """Name of the release in messages."""
        return f"Apache Kafka {self.version}"

    def class_path(self, say: Callable[[str], None] = print) -> str:
        """Return the class path, after a download of the missing jars. Raises: JarsUnavailable."""
        return os.pathsep.join(map(str, fetched(self.lock, self.what, say)))


RELEASES: Final = {
    ".".join(map(str, each.number)): each
    for each in (
        Release("0.11.0.3", zookeeper=True),
        Release("1.1.1", zookeeper=True),
        Release("2.5.1", zookeeper=True),
        Release("2.8.2", zookeeper=True),
        Release("3.0.2", zookeeper=True),
        Release("3.6.2"),
        Release("3.9.2"),
        Release("4.0.2"),
        Release(VERSION),
        Release("4.4.0"),
    )
}
"""Tested releases by major and minor version."""


class ReleasedKafka(ApacheKafka):
    """One broker of *release* with a listener without security, and one for SASL/PLAIN and SCRAM."""

    def __init__(self, release: Release, *, properties: Mapping[str, str | int] | None = None) -> None:
        scram = release.number >= (3, 5) and not release.zookeeper
        super().__init__(
            properties=properties,
            jvm_options=JVM_OPTIONS,
            start_timeout_s=90,
            format_options=[
                f"--add-scram={mechanism}=[name={user},password={password}]"
                for mechanism in MECHANISMS[1:]
                for user, password in PASSWORDS.items()
                if scram
            ],
        )
        self.release: Final = release

    def at_sasl(self) -> str:
        """Return the address of the SASL listener."""
        return f"{HOST}:{self._sasl_port}"

    def _java(self) -> list[str | Path]:
        return [find_java(), *self._jvm_options, "-cp", self.release.class_path()]

    def _create_nodes(self, directory: Path, java: Sequence[str | Path]) -> None:
        port, self._sasl_port, self._controller_port = free_ports(3)
        self._ports = {1: port}
        java = [*java[:1], *_options(directory), *java[1:]]
        if self.release.zookeeper:
            zookeeper = ZooKeeper(directory, java, self._controller_port)
            self._clean_up.callback(zookeeper.end, signal.SIGKILL)
            zookeeper.start()
            zookeeper.wait_started(time.monotonic() + self._start_timeout_s)
            for user, password in PASSWORDS.items():
                zookeeper.add_scram(user, password)
        node = self._nodes[1] = Node(1, directory, java, self._properties_of(1))
        if not self.release.zookeeper:
            cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            node.format(cluster_id, standalone=False, options=self._format_options)

    def _properties_of(self, node_id: int) -> dict[str, str | int]:
        listeners = f"PLAINTEXT://{HOST}:{self._ports[1]},SASL_PLAINTEXT://{HOST}:{self._sasl_port}"
        controller = f"{HOST}:{self._controller_port}"
        properties = super()._properties_of(node_id) | {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        }
        del properties["controller.quorum.bootstrap.servers"]  # since 3.9
        if self.release.zookeeper:
            return {name: value for name, value in properties.items() if name not in OF_KRAFT} | {
                "broker.id": node_id,
                "zookeeper.connect": controller,
            }
        return properties | {
            "listeners": f"{listeners},CONTROLLER://{controller}",
            "controller.quorum.voters": f"{node_id}@{controller}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        }


class ZooKeeper(Node):
    """The ZooKeeper of one broker."""

    MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    STARTED = re.compile("binding to port")

    def __init__(self, directory: Path, java: Sequence[str | Path], port: int) -> None:
        properties: dict[str, str | int] = {
            "dataDir": str(directory / "zookeeper"),
            "clientPort": port,
            "clientPortAddress": HOST,
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
        }
        super().__init__(0, directory, java, properties)
        self._address = f"{HOST}:{port}"

    def add_scram(self, user: str, password: str) -> None:
        """Store the credentials of *user* for each SCRAM mechanism. Raises: BrokerFailed."""
        config = ",".join(f"{mechanism}=[password={password}]" for mechanism in MECHANISMS[1:])
        command = [*self.java, "kafka.admin.ConfigCommand", "--zookeeper", self._address, "--alter"]
        command += ["--add-config", config, "--entity-type", "users", "--entity-name", user]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise BrokerFailed(f"SCRAM credentials of {user} were refused:\n{done.stdout}{done.stderr}")


def _options(directory: Path) -> list[str]:
    """Return JVM options for the users of SASL, for the log format of Kafka 0.11 (Log4j 1), and for ZooKeeper."""
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    jaas = directory / "jaas.conf"
    jaas.write_text(
        f"KafkaServer {{\n{_SECURITY}.plain.PlainLoginModule required {users};\n"
        f"{_SECURITY}.scram.ScramLoginModule required;\n}};\n",
        encoding="utf-8",
    )
    log4j = directory / "log4j.properties"
    log4j.write_text(
        "log4j.rootLogger=INFO, err\n"
        "log4j.appender.err=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.err.target=System.err\n"
        "log4j.appender.err.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.err.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %c{1} - %m%n\n",
        encoding="utf-8",
    )
    return [
        f"-Djava.security.auth.login.config={jaas}",
        f"-Dlog4j.configuration=file:{log4j}",
        "-Dzookeeper.jmx.log4j.disable=true",  # else ZooKeeper 3.4 needs Log4j 1
        "-Dzookeeper.sasl.client=false",
    ]


def rewrite_locks(releases: Iterable[Release]) -> None:
    """Resolve the jars of *releases*, download and pin them."""
    LOCKS.mkdir(exist_ok=True)
    for each in releases:
        scala = "2.12" if each.number < (2, 0) else "2.13"
        jars = resolved(f"org.apache.kafka:kafka_{scala}:{each.version}")
        if not any(":slf4j-log4j12:" in jar for jar in jars):  # 0.11 logs with Log4j 1
            jars |= {_LOGGER}
        if each.number < (1, 0):
            jars |= {_JAXB}
        pin(jars, each.lock, each.what, "tests.kafka.apache.releases")


if __name__ == "__main__":
    rewrite_locks(each for each in RELEASES.values() if each.lock != LOCK)
