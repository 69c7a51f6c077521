"""`aiokafka.structs`: the argument and result types of a producer."""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType
from typing import NamedTuple

from aioproducer import types
from aioproducer.types import TopicPartition

__all__ = ["BrokerMetadata", "OffsetAndMetadata", "RecordMetadata", "TopicPartition"]


class BrokerMetadata(NamedTuple):
    """A broker."""

    nodeId: int  # noqa: N815 - aiokafka's
    host: str
    port: int
    rack: str | None


class OffsetAndMetadata(NamedTuple):
    """Next offset of a consumer, with its metadata, for `send_offsets_to_transaction`."""

    offset: int
    metadata: str


class RecordMetadata(NamedTuple):
    """Position of an acknowledged record. `offset` is -1 if unknown, as with `acks=0`."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    """Milliseconds since the epoch."""
    timestamp_type: int
    """0: create time of the record, 1: log append time of the broker."""
    log_start_offset: int | None
    """Always None: aioproducer does not keep the value."""


def record_metadata(sent: types.RecordMetadata) -> RecordMetadata:
    """Return *sent* with aiokafka's fields. If aiokafka is imported, the result is also an instance of its class."""
    where = TopicPartition(sent.topic, sent.partition)
    module = sys.modules.get("aiokafka.structs")
    kind = RecordMetadata if module is None else _combined(module)
    return kind(*where, where, sent.offset, sent.timestamp_ms, int(sent.log_append_time), None)


@cache
def _combined(module: ModuleType) -> type[RecordMetadata]:
    def reduced(metadata: RecordMetadata) -> tuple[object, ...]:
        return RecordMetadata, tuple(metadata)  # aiokafka may be missing in another process

    body = {"__slots__": (), "__doc__": RecordMetadata.__doc__, "__reduce__": reduced}
    return type("RecordMetadata", (RecordMetadata, module.RecordMetadata), body)
