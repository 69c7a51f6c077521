"""The values that aiokafka's producer hands out, with the same fields."""

from __future__ import annotations

from typing import NamedTuple

from aioproducer import types
from aioproducer.types import TopicPartition

__all__ = ["RecordMetadata", "TopicPartition"]


class RecordMetadata(NamedTuple):
    """Where an acknowledged record is. `offset` is -1 if it is not known: always with `acks=0`."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    """Milliseconds since the epoch."""
    timestamp_type: int
    """0: the record's own, 1: the broker's."""
    log_start_offset: int | None
    """Always None: we do not keep it."""


def record_metadata(sent: types.RecordMetadata) -> RecordMetadata:
    """Return *sent* with aiokafka's fields."""
    where = TopicPartition(sent.topic, sent.partition)
    return RecordMetadata(*where, where, sent.offset, sent.timestamp_ms, int(sent.log_append_time), None)
