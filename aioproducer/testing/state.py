"""State shared by the nodes of a cluster: topics, logs and leaders, and the offsets of consumer groups.

Kafka keeps this state in the controller's log and in the replicas of every partition. `ClusterState` is one object in
memory, so each node can lead any partition, and a new leader has all records.
"""

from __future__ import annotations

import itertools
import re
import uuid
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Final, NamedTuple

from aioproducer import errors
from aioproducer._core.address import Address
from aioproducer._core.clock import wall_ms
from aioproducer._core.steps import Log
from aioproducer.testing.coordinator import Coordinator, Transaction, TransactionState, TransactionTimers
from aioproducer.testing.faults import Refused, RequestFaults, Target
from aioproducer.testing.log import PartitionLog
from aioproducer.testing.sasl_server import Session
from aioproducer.testing.telemetry_receiver import TelemetryReceiver

log: Final = Log(__name__)

UNUSED_LOOKUPS: Final = 5
"""Lookups of a group's coordinator without an offset request before the warning. Consumers repeat the lookup if they
cannot send JoinGroup; producers and consumers with assigned partitions send offset requests after one lookup."""


class CommittedOffset(NamedTuple):
    """Committed offset of a group for a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = None


class Consumer(NamedTuple):
    """Consumer in an offset commit; the defaults stand for a consumer without a group membership."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


@dataclass(slots=True)
class Group:
    """One consumer group."""

    committed: dict[Target, CommittedOffset] = field(default_factory=dict)
    pending: dict[int, dict[Target, CommittedOffset]] = field(default_factory=dict)
    """Offsets of open transactions, by producer id."""
    members: dict[str, str | None] = field(default_factory=dict)
    """The `group.instance.id` of each member."""
    generation: int = -1


class Groups:
    """All groups of a cluster. Methods raise Refused with the error code of a broker."""

    def __init__(self) -> None:
        self._groups: Final[dict[str, Group]] = {}
        self._lookups: Final[dict[str, int]] = {}

    def looked_up(self, group_id: str) -> None:
        """Count a lookup of the coordinator of a group; log a warning if the lookups lead to no offset request."""
        lookups = self._lookups[group_id] = self._lookups.get(group_id, 0) + 1
        if lookups == UNUSED_LOOKUPS:
            log.warning(
                "broker.group_unused group=%s reason=%s",
                group_id,
                "consumers cannot join a group of this broker; use assign(), not subscribe()",
            )

    def used(self, group_id: str) -> None:
        """Note an offset request for a group. Later lookups of the group then cause no warning."""
        self._lookups[group_id] = UNUSED_LOOKUPS

    def join(self, group_id: str, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Set the generation of a group and add the member; a new generation removes other members."""
        group = self._groups.setdefault(group_id, Group())
        if generation != group.generation:
            group.members.clear()
        group.generation = generation
        group.members[member_id] = instance_id

    def check(self, group_id: str, consumer: Consumer) -> None:
        """Check that *consumer* is a member of the group in its generation."""
        group = self._groups.get(group_id)
        if group is None:
            if consumer.generation >= 0:
                raise Refused(errors.IllegalGeneration, f"there is no group {group_id}")
            return
        if consumer == Consumer() or (consumer.generation < 0 and not group.members):
            return
        instances = {each: member for member, each in group.members.items() if each is not None}
        if consumer.instance_id is not None and consumer.instance_id in instances:
            if instances[consumer.instance_id] != consumer.member_id:
                raise Refused(errors.FencedInstanceId, f"another member has id {consumer.instance_id}")
        elif consumer.member_id not in group.members or consumer.instance_id is not None:
            raise Refused(errors.UnknownMemberId, f"{consumer.member_id!r} is not in group {group_id}")
        if consumer.generation != group.generation:
            raise Refused(errors.IllegalGeneration, f"group {group_id} is in generation {group.generation}")

    def add(self, group_id: str, producer_id: int, target: Target, offset: CommittedOffset) -> None:
        """Add an offset to commit with the transaction of a producer."""
        group = self._groups.setdefault(group_id, Group())
        group.pending.setdefault(producer_id, {})[target] = offset

    def end(self, group_id: str, producer_id: int, *, committed: bool) -> None:
        """Commit or drop the offsets of a producer's transaction for a group."""
        group = self._groups.get(group_id, Group())
        pending = group.pending.pop(producer_id, {})
        if committed:
            group.committed |= pending

    def committed(self, group_id: str, target: Target) -> CommittedOffset | None:
        """Return the committed offset of a group for a partition, or None."""
        return self._groups.get(group_id, Group()).committed.get(target)

    def targets(self, group_id: str) -> list[Target]:
        """Return the partitions with a committed offset of a group."""
        return sorted(self._groups.get(group_id, Group()).committed)

    def is_pending(self, group_id: str, target: Target) -> bool:
        """Return True if an open transaction may change the offset."""
        return any(target in offsets for offsets in self._groups.get(group_id, Group()).pending.values())


_LEGAL_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


@dataclass(slots=True)
class Node:
    """A node in the metadata."""

    node_id: int
    address: Address
    alive: bool = True


@dataclass(slots=True)
class Partition:
    """A partition's log and leader; while the leading node is down, the partition has no leader."""

    log: PartitionLog
    leader: int
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Settings of a topic."""

    log_append_time: bool = False
    compacted: bool = False
    message_max_bytes: int | None = None
    """Largest batch in bytes; None: the cluster's limit."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Settings of CreateTopics."""


@dataclass(slots=True)
class Topic:
    """A topic; a recreated topic has another id."""

    name: str
    config: TopicConfig
    topic_id: bytes = field(default_factory=lambda: uuid.uuid4().bytes)
    partitions: list[Partition] = field(default_factory=list)


DEFAULT_CONFIG = TopicConfig()


@dataclass(kw_only=True, eq=False)
class ClusterState:
    """Topics, nodes and request counts of one cluster."""

    auto_create_topics: bool
    default_partitions: int
    message_max_bytes: int
    transaction_version: InitVar[int]
    cluster_id: str | None = field(default_factory=lambda: uuid.uuid4().hex[:22])
    nodes: dict[int, Node] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)
    """Names of topics by id."""
    new_producer_ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1000))
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Number of requests by kind and node."""
    produce_requests: dict[Target, list[int]] = field(default_factory=dict)
    """Nodes that received produce requests, by partition and in order."""
    groups: Groups = field(default_factory=Groups)
    telemetry: TelemetryReceiver = field(default_factory=TelemetryReceiver)
    features_epoch: int = 1
    """Epoch of the finalized features, incremented by each change (KIP-584)."""
    moved_coordinators: dict[str, int] = field(default_factory=dict)
    """Coordinators set by the test, by group and transactional id."""

    def __post_init__(self, transaction_version: int) -> None:
        self.timers: TransactionTimers = TransactionTimers(
            lambda: next(self.new_producer_ids), self._write_markers
        )
        self.coordinator: Coordinator = self.timers.coordinator
        self.coordinator.transaction_version = transaction_version

    def coordinator_node(self, key: str) -> Node | None:
        """Return the coordinator of a group or transactional id; if the coordinator is down, the next running node."""
        node_ids = sorted(self.nodes)
        chosen = self.moved_coordinators.get(key, node_ids[zlib.crc32(key.encode()) % len(node_ids)])
        in_turn = [*node_ids[chosen - 1 :], *node_ids[: chosen - 1]]
        return next((self.nodes[node_id] for node_id in in_turn if self.nodes[node_id].alive), None)

    def _write_markers(self, known: Transaction) -> bool:
        """Write the markers of an ending transaction; return False if a partition has no leader."""
        partitions = [
            self.topics[topic].partitions[index]
            for topic, index in sorted(known.partitions)
            if topic in self.topics and index is not None
        ]
        if any(self.leader(partition) is None for partition in partitions):
            return False
        committed = known.state is TransactionState.PREPARE_COMMIT
        for partition in partitions:
            partition.log.append_marker(
                known.producer_id,
                known.epoch,
                committed=committed,
                leader_epoch=partition.leader_epoch,
                now_ms=wall_ms(),
            )
        for group_id in known.groups:
            self.groups.end(group_id, known.producer_id, committed=committed)
        return True

    def count_request(self, request: str, node_id: int, targets: Iterable[Target]) -> None:
        """Count a request, and record the node of a produce request."""
        self.requests[request, node_id] += 1
        if request == "produce":
            for target in targets:
                self.produce_requests.setdefault(target, []).append(node_id)

    def new_topic(
        self, name: str, partitions: int | None = None, config: TopicConfig = DEFAULT_CONFIG
    ) -> Topic:
        """Return a topic to add; the nodes lead its partitions in turn.

        Raises: Refused with the error of a broker.
        """
        if not _LEGAL_NAME.fullmatch(name):
            raise Refused(errors.InvalidTopicException, f"{name!r} is an illegal topic name")
        if name in self.topics:
            raise Refused(errors.TopicAlreadyExists, f"topic {name} exists already")
        topic = Topic(name, config)
        self._grow(topic, self.default_partitions if partitions is None else partitions)
        return topic

    def add_topic(self, topic: Topic) -> None:
        """Add *topic* to the metadata."""
        self.topics[topic.name] = topic
        self.names[topic.topic_id] = topic.name

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises: Refused."""
        for partition in self.topic(name).partitions:
            partition.log.wake()
        del self.names[self.topics.pop(name).topic_id]
        self.timers.retry()

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the number of partitions to *total*. Raises: Refused."""
        topic = self.topic(name)
        if total <= len(topic.partitions):
            raise Refused(
                errors.InvalidPartitions, f"topic {name} has {len(topic.partitions)} partitions already"
            )
        self._grow(topic, total)

    def topic(self, name: str) -> Topic:
        """Return a topic. Raises: Refused."""
        try:
            return self.topics[name]
        except KeyError:
            raise Refused(errors.UnknownTopicOrPartition, f"there is no topic {name}") from None

    def partition(self, topic: str, index: int) -> Partition:
        """Return a partition. Raises: Refused."""
        partitions = self.topic(topic).partitions
        if not 0 <= index < len(partitions):
            raise Refused(errors.UnknownTopicOrPartition, f"topic {topic} has no partition {index}")
        return partitions[index]

    def led_partition(self, node_id: int, topic: str, index: int, *, leader_epoch: int = -1) -> Partition:
        """Return a partition that *node_id* leads, in the client's *leader_epoch* (KIP-320), or -1 for any.

        Raises: Refused.
        """
        partition = self.partition(topic, index)
        if partition.leader != node_id:
            raise Refused(errors.NotLeaderOrFollower, f"node {node_id} does not lead {topic}-{index}")
        if 0 <= leader_epoch < partition.leader_epoch:
            raise Refused(errors.FencedLeaderEpoch, f"leader epoch {leader_epoch} is outdated")
        if leader_epoch > partition.leader_epoch:
            raise Refused(errors.UnknownLeaderEpoch, f"leader epoch {leader_epoch} is too new")
        return partition

    def max_bytes(self, topic: str) -> int:
        """Return the maximum batch size of *topic* in bytes. Raises: Refused."""
        own = self.topic(topic).config.message_max_bytes
        return self.message_max_bytes if own is None else own

    def leader(self, partition: Partition) -> Node | None:
        """Return the leader of *partition*; None while the leader is down."""
        node = self.nodes.get(partition.leader)
        return node if node is not None and node.alive else None

    def move_leader(self, partition: Partition, to_node: int) -> None:
        """Set the leader in a new leader epoch, and wake fetches at the old leader."""
        partition.leader = to_node
        partition.leader_epoch += 1
        partition.log.wake()
        self.timers.retry()

    def alive_nodes(self) -> list[Node]:
        """Return the running nodes, which are in the metadata."""
        return [node for node in self.nodes.values() if node.alive]

    def led_by(self, node_id: int) -> list[Partition]:
        """Return the partitions of a node, running or stopped."""
        return [
            partition
            for topic in self.topics.values()
            for partition in topic.partitions
            if partition.leader == node_id
        ]

    def _grow(self, topic: Topic, total: int) -> None:
        if total < 1:
            raise Refused(errors.InvalidPartitions, f"a topic cannot have {total} partitions")
        node_ids = sorted(self.nodes)
        for index in range(len(topic.partitions), total):
            log = PartitionLog(log_append_time=topic.config.log_append_time, compacted=topic.config.compacted)
            topic.partitions.append(Partition(log, leader=node_ids[index % len(node_ids)]))


@dataclass(frozen=True, slots=True)
class Call:
    """Context of one request: node, version, session and faults."""

    state: ClusterState
    node_id: int
    version: int
    faults: RequestFaults
    session: Session
