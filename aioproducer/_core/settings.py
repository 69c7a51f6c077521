"""Settings of the batching, intake and sender layers, in seconds and bytes."""

# ruff: noqa: I002 - else typing compiles each annotation of a NamedTuple, for which every process waits

from collections.abc import Callable
from typing import NamedTuple

from aioproducer._core.backoff import Backoff
from aioproducer._core.interceptor_chain import InterceptorChain
from aioproducer._core.partitioning import Partitioner
from aioproducer._core.records.columns import BATCH_OVERHEAD
from aioproducer._core.records.compression import Codec
from aioproducer.errors import RecordTooLarge
from aioproducer.serializers import AnySerializer


class BatchingSettings(NamedTuple):
    """Sizes in bytes, durations in seconds."""

    batch_bytes: int
    """A batch is ready to be sent when the next record would take it over this size, as it is sent …"""
    batch_max_bytes: int
    """… and takes more until it is sent, up to this one (KIP-782). The same as `batch_bytes`: it takes none."""
    partitioning_is_adaptive: bool
    """Whether records for any partition go less often where more waits for an acknowledgement (KIP-794)."""
    availability_timeout_s: float
    """… and not at all to a node that took no request for so long, if that is not 0."""
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
    outlives_deadline_if_led: bool = False
    """Whether what is past its deadline gets another one while its partition has a leader, as often as it takes."""

    @property
    def largest_record(self) -> int:
        """The size of the largest record that can be sent at all."""
        return min(self.max_request_bytes, self.buffer_bytes) - BATCH_OVERHEAD

    @staticmethod
    def room_for(size: int) -> int:
        """Return the memory to ask for so that a record of *size* can surely be appended: it may need a new batch."""
        return size + BATCH_OVERHEAD

    def check_size(self, topic: str, size: int) -> None:
        """Raise RecordTooLarge for a record of *size* that could never be sent."""
        total = self.room_for(size)
        for limit, option in (
            (self.max_request_bytes, "max_request_size"),
            (self.buffer_bytes, "buffer_memory"),
        ):
            if total > limit:
                raise RecordTooLarge(
                    f"a record for {topic!r} takes {total:,} bytes with its batch, more than {option}={limit:,}; "
                    f"send less at once or raise {option}"
                )


class IntakeSettings(NamedTuple):
    """What happens to a record before it is appended. Durations in seconds."""

    key_serializer: AnySerializer | None
    value_serializer: AnySerializer | None
    partitioner: Partitioner
    interceptors: InterceptorChain
    max_block_s: float
    """Maximum time that a call waits for metadata, async serializers and memory together."""
    on_refused: Callable[[int, BaseException], None]
    """Told how many records have failed before they were appended, and of what."""


class SenderSettings(NamedTuple):
    """Durations in seconds."""

    acks: int
    """-1: all replicas in sync, 1: the leader, 0: nobody answers."""
    idempotent: bool
    """Get a producer id before anything is sent."""
    max_in_flight: int
    """How many produce requests may wait for an answer on one connection, if there are to be answers."""
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

    @property
    def in_flight_limit(self) -> int:
        """`max_in_flight`; with acks=0, where nobody answers, 1."""
        return self.max_in_flight if self.acks != 0 else 1
