"""Types of arguments and results."""

# ruff: noqa: I002 - typing would compile each annotation of a NamedTuple at every start

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
"""Headers of a record: pairs in order. Names may repeat (KIP-82)."""

HeadersInput = (
    Sequence[tuple[str, bytes | bytearray | memoryview | None]]
    | Mapping[str, bytes | bytearray | memoryview | None]
)
"""Headers as an argument. The call copies the headers."""


_SHOWN: Final = 64
"""Maximum length of a value in the repr of its record; longer texts would fill the log."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return `topic-partition`, as in Kafka's logs."""
        return f"{self.topic}-{self.partition}"


class RecordMetadata(NamedTuple):
    """Position of an acknowledged record.

    `offset` is -1 if the offset is unknown: with `acks=0`, and if the broker recognised a repeated batch whose offset it
    has dropped. `timestamp_ms` is the timestamp of the record, or of the broker if the topic uses log append time
    (`log_append_time`).
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
    """A partition, with its leader and replicas."""

    partition: int
    leader: int | None
    """Node id of the leader; None without a leader."""
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class TopicDescription(NamedTuple):
    """A topic, and its partitions in order."""

    name: str
    partitions: tuple[PartitionDescription, ...]
    internal: bool
    """True for a topic of Kafka itself, such as `__consumer_offsets`."""


class ClusterDescription(NamedTuple):
    """State of the cluster in a broker's response: the result of `Producer.cluster`."""

    cluster_id: str | None
    controller_id: int | None
    brokers: Mapping[int, BrokerDescription]
    """Brokers by node id."""
    topics: Mapping[str, TopicDescription]
    """Topics by name, without topics that the user may not describe."""


@dataclass(slots=True, repr=False)
class ProducerRecord:
    """A record before serialization, which interceptors may change."""

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
    """Return the repr of *value*; for a long value, the repr of its beginning, with its length."""
    if isinstance(value, bytes | bytearray | str) and len(value) > _SHOWN:
        unit = "characters" if isinstance(value, str) else "bytes"
        return f"{value[:_SHOWN]!r}… ({len(value):,} {unit})"
    text = repr(value)
    return text if len(text) <= 4 * _SHOWN else f"{text[: 4 * _SHOWN]}…"
