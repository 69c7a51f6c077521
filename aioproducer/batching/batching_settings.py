"""Settings of the batching floor, in seconds and bytes."""

from __future__ import annotations

from typing import NamedTuple


class BatchingSettings(NamedTuple):
    """Sizes in bytes, durations in seconds."""

    batch_bytes: int
    """A batch is sealed when the next record would take it over this size, before compression."""
    linger_s: float
    """An open batch waits at most this long for more records."""
    linger_is_adaptive: bool
    """Whether it waits only while its leader has requests of ours to answer."""
    buffer_bytes: int
    """What may be queued and in flight at most, over all partitions."""
    max_request_bytes: int
    """A produce request takes no further batch that would make it larger; a record may not be larger."""
    delivery_timeout_s: float
    """A record that is not acknowledged this long after the call fails."""
    max_in_flight: int
    """How many batches of one partition may wait for an answer."""
    idempotent: bool
    """Batches carry producer id, epoch and sequence; without them one batch per partition is in flight."""
    batch_cap_s: float
    """How long batches of a topic stay small after the broker refused one for its size."""
