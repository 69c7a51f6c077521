"""Arguments and results of transactional calls: group metadata and offsets (KIP-447), and prepared transactions."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

from aioproducer._core.protocol.transactions import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aioproducer.errors import ProducerError
from aioproducer.types import TopicPartition

CONFLUENT_MAGIC: Final = b"CGMDv2:"
"""Prefix of librdkafka's serialized group metadata (rd_kafka_consumer_group_metadata_write)."""
_GENERATION: Final = struct.Struct("=i")
_OFFSETS: Final = range(2**63)
_NUMBERS: Final = range(-1, 2**31)
"""Valid partitions, generations and leader epochs; -1 means no number."""
_LONGEST: Final = 2**15 - 1
"""Maximum size of a string in the protocol, in bytes; brokers may allow less."""


class GroupMetadata(NamedTuple):
    """Member of a consumer group that read the offsets; a broker refuses offsets of a removed member.

    With the defaults the broker checks no membership, and other readers of the partitions must be excluded by other means.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    @classmethod
    def of(cls, group: object) -> GroupMetadata:
        """Return the metadata for *group*.

        *group* is the name of a group, an object with the attributes of this class, or the result of confluent-kafka's
        `consumer_group_metadata()`.

        Raises: TypeError and ValueError that name the value and the accepted forms.
        """
        if isinstance(group, GroupMetadata):
            made = group
        elif isinstance(group, str):
            made = cls(group)
        elif isinstance(group, bytes):
            made = cls._of_confluent(group)
        else:
            try:
                made = cls(
                    getattr(group, "group_id"),  # noqa: B009 - an attribute of an unknown class
                    getattr(group, "generation_id", -1),
                    getattr(group, "member_id", ""),
                    getattr(group, "group_instance_id", None),
                )
            except AttributeError:
                raise TypeError(
                    f"group is a {type(group).__name__}; expected the group's name, a GroupMetadata, or a consumer's"
                    " group metadata"
                ) from None
        return made._checked()

    @classmethod
    def _of_confluent(cls, data: bytes) -> GroupMetadata:
        try:
            at = data.index(CONFLUENT_MAGIC) + len(CONFLUENT_MAGIC)
            (generation_id,) = _GENERATION.unpack_from(data, at)
            group_id, member_id, instance = data[at + _GENERATION.size :].split(b"\0", 2)
            instance_id = None if instance[0] else instance[1:].rstrip(b"\0").decode()
            return cls(group_id.decode(), generation_id, member_id.decode(), instance_id)
        except (ValueError, IndexError, struct.error):
            raise ValueError(
                f"group is {len(data)} bytes that are no result of consumer_group_metadata() of confluent-kafka 2"
            ) from None

    def _checked(self) -> GroupMetadata:
        given: dict[str, object] = self._asdict()  # values of unchecked types
        group_id, generation_id = given["group_id"], given["generation_id"]
        if not isinstance(group_id, str) or not group_id:
            raise ValueError(f"group_id={group_id!r}: expected the name of a consumer group")
        if isinstance(generation_id, bool) or not isinstance(generation_id, int):
            raise TypeError(f"generation_id={generation_id!r}: expected an int, -1 for none")
        if generation_id not in _NUMBERS:
            raise ValueError(f"generation_id={generation_id}: generations count from 0; -1 is none")
        if not isinstance(given["member_id"], str):
            raise TypeError(f"member_id={given['member_id']!r}: expected a str")
        if not isinstance(given["group_instance_id"], str | None):
            raise TypeError(f"group_instance_id={given['group_instance_id']!r}: expected a str or None")
        for name, text in given.items():
            if isinstance(text, str) and (why := _unfit(text)):
                raise ValueError(f"{name} {why}")
        return self


class OffsetAndMetadata(NamedTuple):
    """The next offset to read, with the consumer's metadata."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


def offsets_of(offsets: Mapping[Any, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return *offsets* as a dict of TopicPartition to OffsetAndMetadata.

    Keys are (topic, partition) or objects with these attributes. Values are the next offset to read, (offset, metadata),
    or objects with `offset`, `metadata` and `leader_epoch`.

    Raises: TypeError and ValueError that name the item.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(
            f"offsets is a {type(offsets).__name__}; expected a mapping of (topic, partition) to offset"
        )
    return {_partition_of(key): _offset_of(key, value) for key, value in offsets.items()}


def topics_of(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[TxnOffsetCommitRequestTopic]:
    """Return *offsets* in the form of TxnOffsetCommit."""
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (name, partition), (offset, metadata, leader_epoch) in offsets.items():
        topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name, partitions=[]))
        topic.partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
        )
    return list(topics.values())


def _partition_of(key: object) -> TopicPartition:
    try:
        parts: Any = key if isinstance(key, tuple) else (key.topic, key.partition)  # type: ignore[attr-defined]
        topic, partition = parts
    except (AttributeError, ValueError):
        raise TypeError(f"offsets has the key {key!r}; expected (topic, partition)") from None
    if not isinstance(topic, str) or isinstance(partition, bool) or not isinstance(partition, int):
        raise TypeError(f"offsets has the key {key!r}; expected (topic, partition), a str and an int")
    if not topic or partition < 0:
        raise ValueError(f"offsets has the key {key!r}; partitions count from 0, and topics have a name")
    if partition not in _NUMBERS or _unfit(topic):
        raise ValueError(
            f"offsets has the key {key!r}; expected a legal topic name and a partition of at most 2**31 - 1"
        )
    return TopicPartition(str.__str__(topic), partition)  # a plain str also for a member of a `str` Enum


def _offset_of(key: object, value: Any) -> OffsetAndMetadata:
    read: Any = value
    if isinstance(value, int):
        read = OffsetAndMetadata(value)
    elif isinstance(value, tuple) and len(value) == 2 and not hasattr(value, "offset"):
        read = OffsetAndMetadata(*value)
    offset = getattr(read, "offset", None)
    if isinstance(offset, bool) or not isinstance(offset, int):
        raise TypeError(
            f"offsets[{key!r}] = {value!r}; expected the next offset to read, an int, or (offset, metadata)"
        )
    if offset not in _OFFSETS:
        raise ValueError(f"offsets[{key!r}] = {offset}; offsets count from 0")
    metadata = getattr(read, "metadata", None)
    if not isinstance(metadata, str | None):
        raise TypeError(f"offsets[{key!r}] has the metadata {metadata!r}; expected a str")
    metadata = metadata or ""
    if why := _unfit(metadata):
        raise ValueError(f"the metadata of offsets[{key!r}] {why}")
    leader_epoch = getattr(read, "leader_epoch", None)
    epoch = -1 if leader_epoch is None else leader_epoch
    if isinstance(epoch, bool) or not isinstance(epoch, int):
        raise TypeError(f"offsets[{key!r}] has the leader epoch {epoch!r}; expected an int or None")
    if epoch not in _NUMBERS:
        raise ValueError(f"offsets[{key!r}] has the leader epoch {epoch}; leader epochs count from 0")
    return OffsetAndMetadata(offset, metadata, epoch)


def _unfit(text: str) -> str | None:
    """Return the reason why *text* does not fit into a request; None if *text* fits."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "cannot be encoded in UTF-8"
    return f"has {size:,} bytes in UTF-8, more than {_LONGEST:,}" if size > _LONGEST else None


def group_refused(error: ProducerError) -> bool:
    """Return True if *error* is a refusal because the group removed the member that read the offsets."""
    return getattr(error, "code", None) in {22, 25, 82}


FORMAT: Final = 1
"""Version of the text of a PreparedTransaction; texts of other versions are refused."""
_PREPARED_NUMBERS: Final = {
    "producer_id": range(2**63),
    "epoch": range(2**15),
    "transaction_version": range(1, 2**15),
    "began_at_ms": range(253_000_000_000_000),  # with the timeout, a date before the year 10,000
    "timeout_ms": range(-1, 2**31),
}
"""Valid values of each field, as in Kafka's protocol."""


class PreparedTransaction(NamedTuple):
    """Identity of a transaction that another process can end. The text of this object is one line, without secrets.

    The transaction belongs to a transactional id, producer id and epoch, and to no connection or process. A producer
    that starts with the same transactional id aborts the transaction.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: int
    """The cluster's `transaction.version` at the begin of the transaction; the end must use the same version."""
    began_at_ms: int
    """Begin of the transaction, before the first record, by the producer's clock; milliseconds since the epoch."""
    timeout_ms: int
    """Time after which the coordinator aborts the transaction, in ms; -1: never (KIP-939)."""

    @property
    def deadline(self) -> datetime | None:
        """Time at which the coordinator aborts the transaction, or up to 10 s later; None: never."""
        if self.timeout_ms < 0:
            return None
        return datetime.fromtimestamp((self.began_at_ms + self.timeout_ms) / 1000, UTC)

    def __str__(self) -> str:
        """Return the text that `parse` reads: one line, in ASCII."""
        return json.dumps({"v": FORMAT, **dict(zip(("id", *_PREPARED_NUMBERS), self, strict=True))})

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the transaction in *text*. Raises: ValueError, with the reason."""
        try:
            read: Any = json.loads(text)
        except ValueError:
            raise ValueError(f"not a prepared transaction: {text[:80]!r} is not JSON") from None
        if not isinstance(read, dict) or read.get("v") != FORMAT:
            version = read.get("v") if isinstance(read, dict) else None
            raise ValueError(
                f"not a prepared transaction that this version can read: its format is {version!r}, expected {FORMAT}"
            )
        wrong = [
            f"{name!r} is {read.get(name)!r}"
            for name, allowed in _PREPARED_NUMBERS.items()
            if type(read.get(name)) is not int or read[name] not in allowed
        ]
        if not isinstance(read.get("id"), str) or not read["id"]:
            wrong.insert(0, f"'id' is {read.get('id')!r}")
        if wrong:
            raise ValueError(f"not a prepared transaction: {', '.join(wrong)}")
        return cls(read["id"], *(read[name] for name in _PREPARED_NUMBERS))
