"""The in-process Kafka cluster: its interface for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from operator import attrgetter
from typing import Any, Generic, Literal, Self, TypeVar

from aioproducer._core.records.decode import DecodedBatch, DecodedRecord
from aioproducer.testing.broker import Broker, Listener
from aioproducer.testing.cluster_security import KnownTokens, Security, SecurityProtocol
from aioproducer.testing.faults import Rule, Script, Target, check_number
from aioproducer.testing.handlers.table import APIS
from aioproducer.testing.listener import MemoryListener, TcpListener
from aioproducer.testing.sasl_server import Tokens
from aioproducer.testing.state import ClusterState, CommittedOffset, Node, TopicConfig
from aioproducer.testing.telemetry_receiver import MetricsPushed, MetricsSubscription, codecs

LOOPBACK = "127.0.0.1"
MESSAGE_MAX_BYTES = 1_048_588
"""Kafka's default for `message.max.bytes`."""

TRANSACTION_VERSIONS = range(3)
"""Levels of the feature `transaction.version`."""

Transport = Literal["tcp", "memory"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
T = TypeVar("T")


class Attribute(Generic[T]):
    """Descriptor that reads and sets the attribute at *path*, from the object that has the descriptor."""

    def __init__(self, path: str) -> None:
        self._read = attrgetter(path)
        self._path, _, self._name = path.rpartition(".")

    def __get__(self, owner: object, kind: type | None = None) -> T:
        if owner is None:
            return self  # type: ignore[return-value]  # as a property of the class
        value: T = self._read(owner)
        return value

    def __set__(self, owner: object, value: T) -> None:
        setattr(attrgetter(self._path)(owner), self._name, value)


class Cluster:
    """A Kafka cluster within this process: the protocol of Kafka, logs in memory, and faults on demand.

        async with Cluster(brokers=2, topics={"orders": 3}) as cluster:
            producer = Producer(cluster.bootstrap_servers)

    Any Kafka client can produce to the cluster, with and without transactions, and fetch without a consumer group. The
    cluster rejects the requests that a broker rejects. All data is in memory and deleted at the end of the `async
    with`.

    Nodes are numbered from 1. Partition p is led by node 1 + p modulo *brokers* until its leader is moved.
    With *port*, node n listens on port + n - 1; otherwise on any free port. With `transport="memory"` there are no
    sockets: only clients of this package in the same event loop can connect, and `virtual_time` works. The memory
    transport delays bytes by *latency_s* each way.

    A *security_protocol* other than PLAINTEXT requires TLS, authentication, or both; `client_options` has the matching
    options of a producer. Certificates are generated; *client_auth* requires certificates of clients. *users* maps
    names to passwords. *tokens* maps tokens to names, or is a callable that returns the name or None. *sasl_mechanisms*
    defaults to all mechanisms that *users* and *tokens* support. With *session_lifetime_s* clients have to
    re-authenticate within this number of seconds.

    *transaction_version* is the level of the feature `transaction.version`: 0 and 1 select transactions without
    KIP-890.
    """

    def __init__(
        self,
        brokers: int = 1,
        topics: Mapping[str, int] | None = None,
        *,
        transport: Transport = "tcp",
        latency_s: float = 0.0,
        port: int | None = None,
        auto_create_topics: bool = True,
        default_partitions: int = 1,
        message_max_bytes: int = MESSAGE_MAX_BYTES,
        security_protocol: SecurityProtocol = "PLAINTEXT",
        client_auth: bool = False,
        sasl_mechanisms: Iterable[str] | None = None,
        users: Mapping[str, str] | None = None,
        tokens: KnownTokens | None = None,
        session_lifetime_s: float | None = None,
        transaction_version: int = 2,
    ) -> None:
        check_number("brokers", brokers)
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker, not {brokers}")
        _check_topics(topics)
        if latency_s and transport != "memory":
            raise ValueError(f"latency_s={latency_s}: only the memory transport can be slowed down")
        self._topics = dict(topics or {})
        self._transport, self._latency_s = transport, latency_s
        hosts = [LOOPBACK, "::1", "localhost", *(_memory_host(node_id) for node_id in range(1, brokers + 1))]
        self._security = Security(
            security_protocol,
            hosts=hosts,
            sasl_mechanisms=sasl_mechanisms,
            users=users,
            tokens=tokens,
            session_lifetime_s=session_lifetime_s,
            client_auth=client_auth,
        )
        self._script = Script()
        self._state = ClusterState(
            auto_create_topics=auto_create_topics,
            default_partitions=default_partitions,
            message_max_bytes=message_max_bytes,
            transaction_version=_checked_version(transaction_version),
        )
        self._brokers = {
            node_id: Broker(node_id, self._listener(node_id, port), self._security, self._state, self._script)
            for node_id in range(1, brokers + 1)
        }
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            opened.callback(self._state.timers.stop)
            for node_id, broker in self._brokers.items():
                await broker.start()
                opened.callback(broker.release)
                opened.push_async_callback(broker.stop)
                self._state.nodes[node_id] = Node(node_id, broker.listener.address)
            for name, partitions in self._topics.items():
                self.create_topic(name, partitions)
            self._exit = opened.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    # --- records and requests

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, `host:port,host:port`."""
        return ",".join(str(broker.listener.address) for broker in self._brokers.values())

    cluster_id: Attribute[str | None] = Attribute("_state.cluster_id")
    """Cluster id in metadata and ApiVersions v5 (KIP-1242). None is sent as null, as by a broker without a cluster id."""

    def records(
        self, topic: str, partition: int, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> list[DecodedRecord]:
        """Return the records of a partition by offset; with `read_committed`, without open and aborted transactions."""
        log = self._state.partition(topic, partition).log
        batches = log.data_batches(read_committed=isolation_level == "read_committed")
        return [record for batch in batches for record in batch.records]

    def batches(self, topic: str, partition: int) -> list[DecodedBatch]:
        """Return every batch of a partition with the fields of its header; transaction markers are `control` batches."""
        return self._state.partition(topic, partition).log.batches()

    async def wait_for_records(self, topic: str, partition: int, count: int) -> list[DecodedRecord]:
        """Wait until a partition has *count* records, and return its records."""
        partition_log = self._state.partition(topic, partition).log
        appended = asyncio.Event()
        partition_log.watchers.add(appended.set)
        try:
            while partition_log.record_count < count:
                appended.clear()
                await appended.wait()
        finally:
            partition_log.watchers.discard(appended.set)
        return self.records(topic, partition)

    def produce_requests(self, topic: str, partition: int) -> list[int]:
        """Return the ids of the nodes that received produce requests for a partition, in order."""
        return list(self._state.produce_requests.get(Target(topic, partition), ()))

    def request_count(self, request: str, *, node: int | None = None) -> int:
        """Return the number of requests of a kind that *node*, or all nodes, received; kinds as in `on`."""
        kind = _known(request)
        return sum(
            count
            for (name, node_id), count in self._state.requests.items()
            if name == kind and node in {None, node_id}
        )

    # --- security

    @property
    def client_options(self) -> dict[str, Any]:
        """The options of a producer for this cluster: `Producer(cluster.bootstrap_servers, **cluster.client_options)`.

        The options authenticate by the first mechanism, as the first of *users* or with the first of *tokens*. Tokens
        of a callable and credentials for AWS are left out. The dict is empty with PLAINTEXT.
        """
        return self._security.client_options

    @property
    def ca_pem(self) -> str:
        """Certificate of the authority that signed the brokers' certificates, as PEM. Raises: RuntimeError without TLS."""
        return self._security.ca_pem

    @property
    def users(self) -> dict[str, str]:
        """Passwords by name; for AWS_MSK_IAM, secret keys by access key. Changes apply to the next authentication."""
        return self._security.accounts.users

    @property
    def tokens(self) -> Tokens:
        """Names by token, or the callable that returns names. Changes apply to the next authentication."""
        return self._security.accounts.tokens

    def renew_certificates(
        self, *, hosts: Iterable[str] | None = None, expired: bool = False, new_authority: bool = False
    ) -> None:
        """Use a new certificate for connections from now on, valid for the brokers by default.

        The certificate may be for other *hosts*, be *expired*, or be signed by a *new_authority*; `ca_pem` and the
        client certificate in `client_options` then change.

        Raises: RuntimeError without TLS.
        """
        self._security.renew(hosts=hosts, expired=expired, new_authority=new_authority)

    # --- topics and leaders

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        log_append_time: bool = False,
        compacted: bool = False,
        message_max_bytes: int | None = None,
    ) -> None:
        """Create a topic, with *partitions* or the cluster's default number.

        With *log_append_time* the broker sets the timestamps of records. *compacted* rejects records without a key; the
        log itself is never compacted. *message_max_bytes* limits the size of a batch.
        """
        config = TopicConfig(
            log_append_time=log_append_time, compacted=compacted, message_max_bytes=message_max_bytes
        )
        self._state.add_topic(self._state.new_topic(name, partitions, config))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records; a recreated topic has another id."""
        self._state.delete_topic(name)

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the number of a topic's partitions to *total*."""
        self._state.add_partitions(name, total)

    def move_leader(self, topic: str, partition: int, *, to_broker: int) -> None:
        """Make another node the leader of a partition. The new leader has all records."""
        self._broker(to_broker)
        self._state.move_leader(self._state.partition(topic, partition), to_broker)

    def lose_end(
        self, topic: str, partition: int, records: int, *, to_broker: int | None = None
    ) -> list[DecodedRecord]:
        """Truncate a partition by its last *records* as an unclean leader election does, and return the lost records.

        Whole batches are lost: all records of the batch that has the first lost record. The leader, *to_broker* or the
        previous leader, has a new leader epoch. The leader restores the state of producers from the log: the last five
        batches of each producer with batches in the log.
        """
        check_number("records", records)
        if records < 1:
            raise ValueError(f"a log loses one record or more, not {records}")
        found = self._state.partition(topic, partition)
        leader = found.leader if to_broker is None else to_broker
        self._broker(leader)
        lost = found.log.lose_end(records)
        self._state.move_leader(found, leader)
        return lost

    message_max_bytes: Attribute[int] = Attribute("_state.message_max_bytes")
    """Largest batch of topics without a limit of their own, in bytes."""

    # --- transactions, groups and client metrics

    @property
    def transaction_version(self) -> int:
        """Level of the feature `transaction.version`, which may change while the cluster runs (KIP-890).

        Clients read the level with their next connection.
        """
        return self._state.coordinator.transaction_version

    @transaction_version.setter
    def transaction_version(self, version: int) -> None:
        self._state.coordinator.transaction_version = _checked_version(version)
        self._state.features_epoch += 1

    marker_delay_s: Attribute[float] = Attribute("_state.timers.marker_delay_s")
    """Time from the response to EndTxn until the markers are written, in seconds; consumers then see the outcome."""

    def transaction_state(self, transactional_id: str) -> str | None:
        """Return the state of an id's transaction; None for an unused id.

        "Empty", "Ongoing", "PrepareCommit" or "PrepareAbort"; "CompleteCommit" or "CompleteAbort" once all markers are
        written.
        """
        known = self._state.coordinator.transactions.get(transactional_id)
        return None if known is None else known.state.value

    def committed_offset(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return the offset that a consumer group has committed for a partition, or None."""
        return self._state.groups.committed(group_id, Target(topic, partition))

    def join_group(
        self, group_id: str, member_id: str, generation: int, *, instance_id: str | None = None
    ) -> None:
        """Add a member to a group in a generation; a new generation removes the former members.

        The cluster checks members in offset commits only. A group without members accepts offsets without a generation.
        """
        check_number("generation", generation)
        self._state.groups.join(group_id, member_id, generation, instance_id)

    def coordinator(self, key: str) -> int | None:
        """Return the node that coordinates a transactional id or consumer group; None if no node is alive."""
        node = self._state.coordinator_node(key)
        return None if node is None else node.node_id

    def move_coordinator(self, key: str, *, to_broker: int) -> None:
        """Make another node the coordinator of a transactional id or consumer group, with all state."""
        self._broker(to_broker)
        self._state.moved_coordinators[key] = to_broker

    def subscribe_metrics(
        self,
        *prefixes: str,
        push_interval_s: float = 300.0,
        delta_temporality: bool = True,
        compression_types: Sequence[str] = ("zstd", "lz4", "gzip", "snappy"),
        max_bytes: int = 1_048_576,
    ) -> None:
        """Subscribe to client metrics whose names begin with one of *prefixes*; "*" selects all, no prefix none.

        Before the first call brokers do not offer telemetry, so clients discover it with their next connection. Clients
        that already push receive an error that makes them fetch the new subscription.

        Raises: ValueError: unknown codec.
        """
        self._state.telemetry.subscribe(
            MetricsSubscription(
                prefixes, push_interval_s, delta_temporality, codecs(compression_types), max_bytes
            )
        )

    def pushed_metrics(self) -> list[MetricsPushed]:
        """Return the pushes of clients, in order."""
        return list(self._state.telemetry.pushed)

    # --- faults

    def on(
        self,
        request: str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
        times: int | None = 1,
        after: int = 0,
    ) -> Rule:
        """Return a rule for the next requests of a kind; its methods add faults.

        *request* is one of "produce", "metadata", "fetch", "list_offsets", "create_topics", "api_versions",
        "init_producer_id", "find_coordinator", "add_partitions_to_txn", "add_offsets_to_txn", "txn_offset_commit",
        "end_txn", "offset_fetch", "describe_transactions", "list_transactions", "describe_producers",
        "describe_configs", "sasl_handshake", "sasl_authenticate", "get_telemetry_subscriptions", "push_telemetry"; None
        matches any. The first *after* matching requests pass; the rule applies to the next *times* (None: to all). See
        `aioproducer.testing.faults`.

        Raises: TypeError, ValueError: no request could match.
        """
        numbers = {"partition": partition, "node": node, "times": times, "after": after}
        for argument, number in numbers.items():
            if number is not None:
                check_number(argument, number)
        target = Target(topic, partition)
        rule = Rule(request and _known(request), target, node=node, times=times, after=after)
        return self._script.add(rule)

    async def stop_broker(self, node_id: int, *, failover: bool = False) -> None:
        """Stop a node: reset its connections, refuse new connections, and remove the node from metadata.

        Its partitions have no leader until `start_broker`; with *failover* other nodes become their leaders.
        """
        broker = self._broker(node_id)
        self._state.nodes[node_id].alive = False
        successors = [node.node_id for node in self._state.alive_nodes()]
        for index, partition in enumerate(self._state.led_by(node_id)):
            if failover and successors:
                self._state.move_leader(partition, successors[index % len(successors)])
        await broker.stop()

    async def start_broker(self, node_id: int) -> None:
        """Start a stopped node at its old address. The node leads its partitions that have no other leader.

        As in Kafka, the node restores only the last batch of each producer.
        """
        await self._broker(node_id).start()
        self._state.nodes[node_id].alive = True
        for partition in self._state.led_by(node_id):
            partition.log.producers.restart()
            self._state.move_leader(partition, node_id)

    def freeze_broker(self, node_id: int) -> None:
        """Let a node accept connections and requests without serving them until `thaw_broker`."""
        self._broker(node_id).freeze()

    def thaw_broker(self, node_id: int) -> None:
        """Let a frozen node serve its requests again."""
        self._broker(node_id).thaw()

    def disconnect(self, node_id: int) -> None:
        """Reset all connections to a node; the node accepts new connections at once."""
        self._broker(node_id).disconnect()

    async def move_broker(self, node_id: int) -> None:
        """Give a running node a new address: its connections are reset, and the old address refuses new connections."""
        broker = self._broker(node_id)
        await broker.move(self._listener(node_id))
        self._state.nodes[node_id].address = broker.listener.address

    async def exchange_addresses(self, one: int, other: int) -> None:
        """Let two running nodes exchange their addresses, as pods may in a rolling restart; their connections are reset."""
        await self._broker(one).exchange(self._broker(other))
        for node_id in one, other:
            self._state.nodes[node_id].address = self._broker(node_id).listener.address

    def _listener(self, node_id: int, port: int | None = None) -> Listener:
        if self._transport == "memory":
            return MemoryListener(_memory_host(node_id), latency_s=self._latency_s)
        return TcpListener(LOOPBACK, 0 if port is None else port + node_id - 1)

    def _broker(self, node_id: int) -> Broker:
        if node_id not in self._brokers:
            raise ValueError(f"there is no broker {node_id}; the brokers are {sorted(self._brokers)}")
        return self._brokers[node_id]


def _check_topics(topics: object) -> None:
    if topics is None:
        return
    if not isinstance(topics, Mapping):
        raise TypeError(
            f'topics must give each name a number of partitions, such as {{"orders": 3}}, not {topics!r}'
        )
    for name, partitions in topics.items():
        check_number(f"the partitions of {name!r}", partitions)


def _checked_version(version: int) -> int:
    """Return *version*. Raises: TypeError, ValueError: the feature has no such level."""
    check_number("transaction_version", version)
    if version not in TRANSACTION_VERSIONS:
        raise ValueError(f"transaction.version is 0, 1 or 2, not {version}")
    return version


def _memory_host(node_id: int) -> str:
    return f"broker-{node_id}.memory"


def _known(request: str) -> str:
    names = {api.name for api in APIS.values()}
    if request not in names:
        raise ValueError(f"{request!r} is not a kind of request; the kinds are {sorted(names)}")
    return request
