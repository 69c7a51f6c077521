"""Immutable snapshot of the cluster. Unchanged parts are the same objects in the next snapshot.

The cost of a new snapshot is proportional to the requested topics, plus a copy of pointers to the other topics.

Brokers lag behind each other. A response with the known id of a topic therefore has two limits:

- A partition with an older leader epoch than the known epoch is ignored (KIP-320), unless the known leader has denied its
  leadership: a denial shows that the known epoch is wrong, and a newer epoch may never arrive.
- Partitions are never removed. A response with fewer partitions comes from a broker without the new partitions.

A topic that was deleted and recreated has a new id (KIP-516), and its response replaces the whole known topic. A
response without topic ids (before Kafka 2.8) also replaces the whole known topic: accepting an old leader costs one
round trip, while ignoring the response would hide a new leader forever.
"""

# ruff: noqa: I002 - typing would compile each annotation of a NamedTuple at every start

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from aioproducer._core.acceleration import untracking
from aioproducer._core.address import Address
from aioproducer._core.protocol.metadata import MetadataResponse, MetadataResponseTopic
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer.errors import BrokerError, LeaderNotAvailable, UnknownTopicOrPartition, broker_error

NO_LEADER: Final = -1
NO_EPOCH: Final = -1


class Broker(NamedTuple):
    """A broker and its address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        """Address for connections to the broker."""
        return Address(self.host, self.port)


class PartitionInfo(NamedTuple):
    """A partition, with its leader."""

    partition: int
    leader: int
    """Node id of the leader; NO_LEADER without a leader among the brokers."""
    leader_epoch: int
    """Epoch of the leader; NO_EPOCH from brokers without leader epochs."""


# `_new_partition` is `PartitionInfo._make` without a Python frame.
_new_partition: Final = untracking(partial(tuple.__new__, PartitionInfo))
_new_partitions: Final = untracking(tuple)


class LeaderHint(NamedTuple):
    """Leader of a partition, from a produce response (KIP-951)."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int


class TopicInfo(NamedTuple):
    """Requested topic."""

    name: str
    topic_id: bytes
    """Topic id of 16 bytes; zero bytes if the broker has no topic ids."""
    partitions: tuple[PartitionInfo, ...]
    """Partitions by number; empty for an unknown or missing topic."""
    error: type[BrokerError] | None = None
    """Error of the topic in the last answer; None without an error."""

    @property
    def leaders(self) -> tuple[int, ...]:
        """The node id of each partition's leader, or NO_LEADER."""
        return tuple([each.leader for each in self.partitions])  # a generator costs twice as much

    @property
    def leaderless(self) -> bool:
        """True if a partition has no leader."""
        return any(each.leader == NO_LEADER for each in self.partitions)


_new_topic: Final = untracking(TopicInfo)


class MetadataSnapshot(NamedTuple):
    """Brokers and topics at one moment."""

    version: int = 0
    """Number of the snapshot; grows by 1 with each change."""
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, Broker] = MappingProxyType({})
    topics: Mapping[str, TopicInfo] = MappingProxyType({})
    """Topics in use, including topics that do not exist according to the last answer."""
    fetched_at: float = float("-inf")
    """Time of the last complete answer (loop clock)."""
    changed: frozenset[str] = frozenset()
    """Topics that were added, removed or changed since the previous snapshot."""
    leaderless: frozenset[str] = frozenset()
    """Topics with a partition without a leader."""

    def knows(self, topic: str) -> bool:
        """Return True if the partitions of the topic are known."""
        info = self.topics.get(topic)
        return info is not None and bool(info.partitions)

    def leader(self, topic: str, partition: int) -> Broker | None:
        """Return the leader of a partition; None if leader, partition or topic is unknown."""
        info = self.topics.get(topic)
        if info is None or not 0 <= partition < len(info.partitions):
            return None
        return self.brokers.get(info.partitions[partition].leader)

    def in_rack(self, rack: str) -> frozenset[int]:
        """Return the brokers in *rack*."""
        return frozenset(node_id for node_id, broker in self.brokers.items() if broker.rack == rack)

    def led_by(self, node_id: int) -> list[str]:
        """Return the topics with partitions led by the node."""
        return [
            name
            for name, info in self.topics.items()
            if any(each.leader == node_id for each in info.partitions)
        ]

    def with_answer(
        self, answer: MetadataResponse, *, asked: Collection[str], complete: bool, now: float
    ) -> Self:
        """Return the snapshot after *answer*, the response to a request for the topics *asked*.

        A *complete* request drops the topics that were not requested; any other request keeps these topics.
        """
        listed = {
            each.node_id: Broker(each.node_id, each.host, each.port, each.rack) for each in answer.brokers
        }
        brokers = self.brokers if listed == self.brokers else listed
        answered = {each.name: each for each in answer.topics}
        topics: dict[str, TopicInfo] = {} if complete else dict(self.topics)
        compared: Collection[str] = asked
        if complete:
            compared = self.topics.keys() | asked
        elif self.brokers.keys() - brokers.keys():
            topics.update(
                (name, _without_departed_leaders(info, brokers)) for name, info in self.topics.items()
            )
            compared = self.topics.keys() | asked
        for name in asked:
            known, reported = self.topics.get(name), answered.get(name)
            if reported is not None:
                topics[name] = _merge(name, known, reported, brokers)
            elif known is not None:
                topics[name] = _without_departed_leaders(known, brokers)
        after = self._with_topics(topics, compared)
        is_changed = (
            brokers is not self.brokers or after.changed or answer.cluster_id not in {None, self.cluster_id}
        )
        return after._replace(
            version=self.version + 1 if is_changed else self.version,
            cluster_id=answer.cluster_id,
            controller_id=answer.controller_id,
            brokers=brokers,
            fetched_at=now if complete else self.fetched_at,
        )

    def with_leader_hints(self, hints: Iterable[LeaderHint], endpoints: Iterable[Broker]) -> Self:
        """Return the snapshot after the leader hints of a produce response; *self* if no hint is newer."""
        brokers = {**self.brokers, **{each.node_id: each for each in endpoints}}
        topics = dict(self.topics)
        hinted = []
        for name, of_topic in groupby(sorted(hints), key=attrgetter("topic")):
            if name in topics:
                topics[name] = _follow(topics[name], of_topic, brokers)
                hinted.append(name)
        after = self._with_topics(topics, hinted)
        return after._replace(version=self.version + 1, brokers=brokers) if after.changed else self

    def with_stale_leaders(self, topic: str, refused: Collection[int], node_id: int) -> Self:
        """Return the snapshot after *node_id* has denied its leadership of the partitions *refused*.

        Version and leaders stay unchanged. The next response may replace a denied leader by a leader of any epoch.
        """
        info = self.topics.get(topic)
        if info is None:
            return self
        partitions = list(info.partitions)
        for partition in refused:
            if 0 <= partition < len(partitions) and partitions[partition].leader == node_id:
                partitions[partition] = partitions[partition]._replace(leader_epoch=NO_EPOCH)
        if tuple(partitions) == info.partitions:
            return self
        topics = {**self.topics, topic: info._replace(partitions=tuple(partitions))}
        return self._replace(topics=topics)

    def _with_topics(self, topics: Mapping[str, TopicInfo], compared: Iterable[str]) -> Self:
        """Return a snapshot with *topics*, which differ from the present topics only for names in *compared*."""
        changed = frozenset(name for name in compared if self.topics.get(name) is not topics.get(name))
        leaderless = (name for name in changed if name in topics and topics[name].leaderless)
        leaderless_now = self.leaderless.difference(changed).union(leaderless)
        return self._replace(topics=topics, changed=changed, leaderless=leaderless_now)


def _merge(
    name: str, known: TopicInfo | None, reported: MetadataResponseTopic, brokers: Mapping[int, Broker]
) -> TopicInfo:
    """Return a topic merged from *known* and a response; *known* itself if the response changes nothing."""
    error = broker_error(reported.error_code) if reported.error_code else None
    if error is UnknownTopicOrPartition:
        merged = TopicInfo(name, NO_TOPIC_ID, (), error)
    elif known is not None and _is_unchanged(reported, known, error):  # most responses change nothing
        return _without_departed_leaders(known, brokers)
    elif partitions := _partitions(reported, brokers):
        if known is not None and known.topic_id == reported.topic_id != NO_TOPIC_ID:
            partitions = _newest(known.partitions, partitions, brokers)
        merged = _new_topic(name, reported.topic_id, partitions, error)
    elif known is not None:  # an error does not change the known partitions
        merged = _without_departed_leaders(known, brokers)._replace(error=error or LeaderNotAvailable)
    else:
        merged = TopicInfo(name, reported.topic_id, (), error or LeaderNotAvailable)
    return known if known is not None and merged == known else merged


def _is_unchanged(reported: MetadataResponseTopic, known: TopicInfo, error: type[BrokerError] | None) -> bool:
    return (reported.topic_id, error) == (known.topic_id, known.error) and known.partitions == tuple(
        [(each.partition_index, each.leader_id, each.leader_epoch) for each in reported.partitions]
    )


def _partitions(reported: MetadataResponseTopic, brokers: Mapping[int, Broker]) -> tuple[PartitionInfo, ...]:
    """Return the partitions of an answer by index; empty if numbers are missing, as during the creation of a topic."""
    in_order = sorted(reported.partitions, key=attrgetter("partition_index"))
    if [each.partition_index for each in in_order] != list(range(len(in_order))):
        return ()
    fields = (
        (each.partition_index, each.leader_id if each.leader_id in brokers else NO_LEADER, each.leader_epoch)
        for each in in_order
    )
    partitions: tuple[PartitionInfo, ...] = _new_partitions(map(_new_partition, fields))
    return partitions


def _newest(
    known: tuple[PartitionInfo, ...], reported: tuple[PartitionInfo, ...], brokers: Mapping[int, Broker]
) -> tuple[PartitionInfo, ...]:
    """Return the newer state of each partition; *known* and *reported* have the same topic id."""
    newest = [
        _led_by(old, brokers) if NO_EPOCH < new.leader_epoch < old.leader_epoch else new
        for old, new in zip(known, reported, strict=False)
    ]
    rest = reported[len(known) :] or [_led_by(old, brokers) for old in known[len(reported) :]]
    return (*newest, *rest)


def _without_departed_leaders(info: TopicInfo, brokers: Mapping[int, Broker]) -> TopicInfo:
    """Return *info* without leaders outside *brokers*; *info* itself if all leaders are in *brokers*."""
    if all(each.leader in brokers or each.leader == NO_LEADER for each in info.partitions):
        return info
    return info._replace(partitions=tuple(_led_by(each, brokers) for each in info.partitions))


def _led_by(partition: PartitionInfo, brokers: Mapping[int, Broker]) -> PartitionInfo:
    return partition if partition.leader in brokers else partition._replace(leader=NO_LEADER)


def _follow(info: TopicInfo, hints: Iterable[LeaderHint], brokers: Mapping[int, Broker]) -> TopicInfo:
    """Return *info* with the newer leaders among *hints*."""
    partitions = list(info.partitions)
    for hint in hints:
        if hint.leader not in brokers or not 0 <= hint.partition < len(partitions):
            continue
        known = partitions[hint.partition]
        newer = hint.leader_epoch > known.leader_epoch
        found = hint.leader_epoch == known.leader_epoch and known.leader == NO_LEADER
        if newer or found:
            partitions[hint.partition] = PartitionInfo(hint.partition, hint.leader, hint.leader_epoch)
    merged = info._replace(partitions=tuple(partitions))
    return info if merged == info else merged
