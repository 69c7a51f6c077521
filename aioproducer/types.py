"""The values that users hand in and get back."""

# ruff: noqa: I002 - else typing compiles each annotation of a NamedTuple, for which every process waits

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
"""Headers as a record keeps them: pairs in order, names may repeat (KIP-82)."""

HeadersInput = (
    Sequence[tuple[str, bytes | bytearray | memoryview | None]]
    | Mapping[str, bytes | bytearray | memoryview | None]
)
"""Headers as a user may give them; they are copied at the call."""


_SHOWN: Final = 64
"""So much of a value is in the repr of its record; the rest would fill the log."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return `topic-partition`, as Kafka's logs write it."""
        return f"{self.topic}-{self.partition}"


class RecordMetadata(NamedTuple):
    """Where an acknowledged record is.

    `offset` is -1 when the record was delivered and its offset is not known: with `acks=0`, and when
    the broker recognised a resent batch that it no longer has the offset of.
    `timestamp_ms` is the record's own, or the broker's when the topic is configured for
    log append time (`log_append_time`).
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    log_append_time: bool


class BrokerDescription(NamedTuple):
    """A broker of the cluster."""

    node_id: int
    host: str
    port: int
    rack: str | None


class PartitionDescription(NamedTuple):
    """A partition, and who has it."""

    partition: int
    leader: int | None
    """The node id of its leader; None: nobody leads it now."""
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class TopicDescription(NamedTuple):
    """A topic, and its partitions in order."""

    name: str
    partitions: tuple[PartitionDescription, ...]
    internal: bool
    """Whether Kafka keeps it for itself, such as consumers' offsets."""


class ClusterDescription(NamedTuple):
    """The cluster as a broker has just told of it: `Producer.cluster`."""

    cluster_id: str | None
    controller_id: int | None
    brokers: Mapping[int, BrokerDescription]
    """By node id."""
    topics: Mapping[str, TopicDescription]
    """By name; those that this user may describe."""


@dataclass(slots=True, repr=False)
class ProducerRecord:
    """A record as it was handed to the producer, before serializers: what interceptors see and may change."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    headers: HeadersInput = ()
    timestamp_ms: int | None = None

    def __repr__(self) -> str:
        shown = ", ".join(f"{each.name}={_shortened(getattr(self, each.name))}" for each in fields(self))
        return f"ProducerRecord({shown})"


def _shortened(value: object) -> str:
    """Return the repr of *value*, or of its beginning and how long it is."""
    if isinstance(value, bytes | bytearray | str) and len(value) > _SHOWN:
        unit = "characters" if isinstance(value, str) else "bytes"
        return f"{value[:_SHOWN]!r}… ({len(value):,} {unit})"
    text = repr(value)
    return text if len(text) <= 4 * _SHOWN else f"{text[: 4 * _SHOWN]}…"
