"""Settings of the sender floor, in seconds."""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.backoff import Backoff
from aioproducer.records.compression import Codec


class SenderSettings(NamedTuple):
    """Durations in seconds."""

    acks: int
    """-1: all replicas in sync, 1: the leader, 0: nobody answers."""
    idempotent: bool
    """Get a producer id before anything is sent."""
    max_in_flight: int
    """How many produce requests may wait for an answer on one connection."""
    retries: int
    """How often a batch is sent again at most; the delivery timeout ends it sooner or later anyway."""
    request_timeout_s: float
    """How long the broker may wait for its replicas; the connection waits as long for the broker."""
    retry_backoff: Backoff
    """How long a batch waits before it is sent again."""
    codec: Codec
    """How batches are compressed."""
    compression_level: int | None
    """The codec's own level; None is the codec's default."""
    transactional_id: str | None = None
    """Whose transactions the records are part of."""
