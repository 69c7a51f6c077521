"""A real Apache Kafka for tests and benchmarks: KRaft brokers on loopback, gone when the `with` block ends."""

from __future__ import annotations

import atexit
import base64
import os
import random
import signal
import socket
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

from tests.kafka.apache.jars import class_path
from tests.kafka.apache.java import find_java, shared_classes
from tests.kafka.apache.leaders import all_answer, all_named
from tests.kafka.apache.node import BrokerFailed, Node

QUICK_START = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For tests: a broker is up in about two seconds; the classes that others have left it are for this (`share_classes`)."""
THROUGHPUT = ("-Xmx1g",)
"""For benchmarks: slower to start, then compiled in full."""

HOST = "127.0.0.1"


class ApacheKafka:
    """One broker, or several with replication; node 1 is also the controller, so killing it stops elections.

    Args:
        brokers: how many; with three and more, topics have three replicas and `min.insync.replicas=2`.
        properties: more lines for every broker's `server.properties`; they win.
        jvm_options: `QUICK_START` or `THROUGHPUT`.
        start_timeout_s: bounds `start()` and `restart()`.
        format_options: more arguments for `kafka-storage format`, such as `--add-scram`.
        ports: the port of each broker, else any that are free.
        plugins: folders with classes that the brokers' properties name.
        transaction_version: the level of the feature `transaction.version`; None leaves it to Kafka, which takes 2.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        properties: Mapping[str, str | int] | None = None,
        jvm_options: Sequence[str] = QUICK_START,
        start_timeout_s: float = 40,
        format_options: Sequence[str] = (),
        ports: Mapping[int, int] | None = None,
        plugins: Sequence[Path] = (),
        transaction_version: int | None = None,
    ) -> None:
        self._brokers = brokers
        self._properties = dict(properties or {})
        self._jvm_options = jvm_options
        self._start_timeout_s = start_timeout_s
        self._plugins = [*plugins]
        self._format_options = [*format_options]
        if transaction_version is not None:
            self._format_options += ["--feature", f"transaction.version={transaction_version}"]
        self._nodes: dict[int, Node] = {}
        self._ports: dict[int, int] = dict(ports or {})
        self._clean_up = ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            for node_id, tail in self.log_tail().items():
                error.add_note(f"The log of broker {node_id} ends with:\n{tail}")
        self.stop()

    def start(self) -> None:
        """Format and start the brokers; return when all of them serve and know each other.

        Raises:
            BrokerFailed: with the tail of the log of the broker that did not start.
            JarsUnavailable, JavaNotFound: what is missing, and what to do.
        """
        deadline = time.monotonic() + self._start_timeout_s
        java = self._java()
        directory = tempfile.TemporaryDirectory(prefix="apache-kafka-", ignore_cleanup_errors=True)
        self._clean_up.callback(directory.cleanup)
        atexit.register(self.stop)
        try:
            self._create_nodes(Path(directory.name), java)
            for node in self._nodes.values():
                node.start()
            for node in self._nodes.values():
                node.wait_started(deadline)
            self._await_brokers(deadline)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill every broker and remove its data: nobody needs it any more. Twice is fine."""
        for node in self._nodes.values():
            node.end(signal.SIGKILL)
        self._nodes.clear()
        self._clean_up.close()
        atexit.unregister(self.stop)

    def kill(self, node_id: int = 1) -> None:
        """End a broker as a power cut would (SIGKILL). `restart` brings it back with its data."""
        self._nodes[node_id].end(signal.SIGKILL)

    def shut_down(self, node_id: int = 1) -> None:
        """End a broker in order (SIGTERM): it hands its partitions over first. `restart` brings it back."""
        self._nodes[node_id].end(signal.SIGTERM)

    def restart(self, node_id: int = 1) -> None:
        """Shut a broker down unless it is down already; start it on the same port and data; wait until it serves."""
        deadline = time.monotonic() + self._start_timeout_s
        self.shut_down(node_id)
        self._nodes[node_id].start()
        self._nodes[node_id].wait_started(deadline)
        self._await_brokers(deadline)

    def move(self, ports: Mapping[int, int]) -> None:
        """Shut brokers down, and start each on the port that *ports* gives for its node; wait until all serve."""
        deadline = time.monotonic() + self._start_timeout_s
        for node_id in ports:
            self.shut_down(node_id)
        self._ports.update(ports)
        for node_id in ports:
            self._nodes[node_id].configure(self._properties_of(node_id))
            self._nodes[node_id].start()
        for node_id in ports:
            self._nodes[node_id].wait_started(deadline)
        self._await_brokers(deadline)

    def port(self, node_id: int) -> int:
        """Return the port of a broker."""
        return self._ports[node_id]

    def freeze(self, node_id: int) -> None:
        """Let a broker's process run no more (SIGSTOP): it takes connections and requests, and answers nothing."""
        self._nodes[node_id].signal(signal.SIGSTOP)

    def thaw(self, node_id: int) -> None:
        """Let a frozen broker go on with all that has piled up."""
        self._nodes[node_id].signal(signal.SIGCONT)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int = -1,
        config: Mapping[str, str] | None = None,
        *,
        timeout_s: float = 30,
    ) -> None:
        """Create a topic; return when every broker knows the leader of each partition, and that one leads. A *replication* of -1 is the brokers' default."""
        topic = NewTopic(
            name, num_partitions=partitions, replication_factor=replication, config=dict(config or {})
        )
        with self._admin() as admin:
            admin.create_topics([topic], request_timeout=timeout_s)[name].result()
        self._await_leaders(name, partitions, timeout_s)

    def add_partitions(self, topic: str, total: int, *, timeout_s: float = 30) -> None:
        """Raise the number of a topic's partitions to *total*; return when every broker knows the leader of each."""
        with self._admin() as admin:
            admin.create_partitions([NewPartitions(topic, total)], request_timeout=timeout_s)[topic].result()
        self._await_leaders(topic, total, timeout_s)

    def delete_topic(self, name: str, *, timeout_s: float = 30) -> None:
        """Delete a topic and its records."""
        with self._admin() as admin:
            admin.delete_topics([name], request_timeout=timeout_s)[name].result()

    def configure_topic(self, name: str, config: Mapping[str, str], *, timeout_s: float = 30) -> None:
        """Change some of a topic's settings; the brokers follow, each when it hears of it."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        with self._admin() as admin:
            changed = admin.incremental_alter_configs([resource], request_timeout=timeout_s)
            changed[resource].result()

    def leader(self, topic: str, partition: int = 0, *, timeout_s: float = 10) -> int:
        """Return the node that leads a partition now; -1 for none."""
        metadata = self._admin().list_topics(topic=topic, timeout=timeout_s)
        return metadata.topics[topic].partitions[partition].leader

    def await_in_sync(self, topic: str, *, timeout_s: float = 30) -> None:
        """Wait until every replica of every partition of a topic is in sync."""
        deadline = time.monotonic() + timeout_s
        admin = self._admin()
        while not _all_in_sync(admin.list_topics(topic=topic, timeout=timeout_s).topics[topic]):
            if time.monotonic() > deadline:
                raise BrokerFailed(f"topic {topic} is not in sync after {timeout_s:.0f} s")
            admin.poll(0.02)

    def await_everywhere(self, topic: str, *, exists: bool, timeout_s: float = 30) -> None:
        """Wait until every broker knows that a topic exists, or that it does not."""
        deadline = time.monotonic() + timeout_s
        for port in self._ports.values():
            while (self._asked_at(port, topic, timeout_s).error is None) != exists:
                if time.monotonic() > deadline:
                    raise BrokerFailed(f"a broker has not heard of {topic} in {timeout_s:.0f} s")

    def first_segment(self, topic: str, partition: int = 0) -> bytes:
        """Return the beginning of a partition's log as its leader has it on disk: record batches."""
        node = self._nodes[self.leader(topic, partition)]
        return (node.data_path / f"{topic}-{partition}" / f"{0:020}.log").read_bytes()

    def log_tail(self, lines: int = 40) -> dict[int, str]:
        """Return the last lines that each broker logged, by node."""
        return {node_id: node.log_tail(lines) for node_id, node in self._nodes.items()}

    @property
    def bootstrap_servers(self) -> str:
        """The address of every broker, for any client."""
        return ",".join(f"{HOST}:{port}" for port in self._ports.values())

    def _java(self) -> list[str | Path]:
        java, classes = find_java(), class_path()
        options = [*self._jvm_options]
        if set(QUICK_START) <= {*options} and (shared := shared_classes(java, classes)).exists():
            options.append(f"-XX:SharedArchiveFile={shared}")
        return [java, *options, "-cp", os.pathsep.join([classes, *map(str, self._plugins)])]

    def _create_nodes(self, directory: Path, java: Sequence[str | Path]) -> None:
        self._controller_port, *ports = free_ports(self._brokers + 1)
        self._ports = self._ports or dict(enumerate(ports, start=1))
        for node_id in self._ports:
            properties = self._properties_of(node_id)
            self._nodes[node_id] = Node(node_id, directory, java, properties)
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        with ThreadPoolExecutor() as pool:
            formatted = [
                pool.submit(node.format, cluster_id, standalone=node_id == 1, options=self._format_options)
                for node_id, node in self._nodes.items()
            ]
        for future in formatted:
            future.result()

    def _properties_of(self, node_id: int) -> dict[str, str | int]:
        controller_port = self._controller_port
        listener = f"PLAINTEXT://{HOST}:{self._ports[node_id]}"
        is_controller = node_id == 1
        replicas = min(3, self._brokers)
        in_sync = max(1, replicas - 1)
        return {
            "process.roles": "broker,controller" if is_controller else "broker",
            "node.id": node_id,
            "broker.rack": f"rack-{node_id}",
            "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener},CONTROLLER://{HOST}:{controller_port}" if is_controller else listener,
            "advertised.listeners": listener,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "transaction.state.log.num.partitions": 4,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
            "group.initial.rebalance.delay.ms": 0,
            # records of tests are as old as the test says, and a broker would delete them whenever it comes to look
            "log.retention.ms": -1,
            # after a kill, new leaders are elected and the broker may come back once its session has run out
            "broker.session.timeout.ms": 4000,
            "broker.heartbeat.interval.ms": 400,
        } | self._properties

    def _await_brokers(self, deadline: float) -> None:
        running = {node_id for node_id, node in self._nodes.items() if node.running}
        admin = self._admin()
        cause: KafkaException | None = None
        while time.monotonic() < deadline:
            try:
                if running <= admin.list_topics(timeout=max(0.1, deadline - time.monotonic())).brokers.keys():
                    return
            except KafkaException as error:
                cause = error
            admin.poll(0.02)
        raise BrokerFailed(f"the cluster did not know its brokers {sorted(running)} in time") from cause

    def _await_leaders(self, topic: str, partitions: int, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        for node_id, port in self._ports.items():
            while self._nodes[node_id].running and not all_named(
                self._asked_at(port, topic, timeout_s), partitions
            ):
                if time.monotonic() > deadline:
                    raise BrokerFailed(
                        f"broker {node_id} knows no leaders of topic {topic} after {timeout_s:.0f} s"
                    )
        admin = self._admin()
        while not all_answer(admin, topic, partitions, timeout_s):
            if time.monotonic() > deadline:
                raise BrokerFailed(f"the leaders of topic {topic} do not lead it after {timeout_s:.0f} s")
            admin.poll(0.02)

    def _asked_at(self, port: int, topic: str, timeout_s: float) -> TopicMetadata:
        # a new client each time: its first question goes to the one broker that it knows of
        admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0})
        return admin.list_topics(topic=topic, timeout=timeout_s).topics[topic]

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, below the range that outgoing connections take theirs from.

    So a port is still free when a killed broker comes back, and no client meets itself on it meanwhile.
    """
    ports: list[int] = []
    for port in random.sample(range(20_000, 32_000), 1_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise BrokerFailed("no free ports between 20,000 and 32,000")


def _all_in_sync(topic: TopicMetadata) -> bool:
    known = topic.partitions.values()  # none, as long as the broker that was asked has not heard of it
    return bool(known) and all(
        partition.leader >= 0 and len(partition.isrs) == len(partition.replicas) for partition in known
    )
