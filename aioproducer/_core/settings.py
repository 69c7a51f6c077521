"""Settings of the batching, intake and sender layers, in seconds and bytes."""

# ruff: noqa: I002 - typing would compile each annotation of a NamedTuple at every start

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
    """Settings of batching. Sizes in bytes, durations in seconds."""

    batch_bytes: int
    """Size at which a batch is ready to be sent, after compression."""
    batch_max_bytes: int
    """Upper bound of a batch that grows until the batch can be sent (KIP-782); `batch_bytes` as value disables growth."""
    partitioning_is_adaptive: bool
    """True to prefer partitions with fewer unacknowledged bytes for keyless records (KIP-794)."""
    availability_timeout_s: float
    """Time after which a node that accepts no request gets no keyless records; 0 disables the check."""
    linger_s: float
    """Maximum time that an open batch waits for more records."""
    linger_is_adaptive: bool
    """True if a batch lingers only while its leader has unanswered requests."""
    buffer_bytes: int
    """Memory limit of queued and in-flight records of all partitions."""
    max_request_bytes: int
    """Size limit of a produce request, and of a record."""
    delivery_timeout_s: float
    """Time limit from the call to the acknowledgement."""
    max_in_flight: int
    """Maximum number of batches of one partition in flight."""
    idempotent: bool
    """True if batches carry producer id, epoch and sequence; otherwise one batch per partition is in flight."""
    batch_cap_s: float
    """Time for which batches of a topic stay small after a refusal for their size."""
    outlives_deadline_if_led: bool = False
    """True to postpone expired deadlines while the partition has a leader."""

    @property
    def largest_record(self) -> int:
        """Size of the largest record that can be sent."""
        return min(self.max_request_bytes, self.buffer_bytes) - BATCH_OVERHEAD

    @staticmethod
    def room_for(size: int) -> int:
        """Return the memory needed to append a record of *size*, which may need a new batch."""
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
    """Settings of the steps before the append. Durations in seconds."""

    key_serializer: AnySerializer | None
    value_serializer: AnySerializer | None
    partitioner: Partitioner
    interceptors: InterceptorChain
    max_block_s: float
    """Maximum time that a call waits for metadata, async serializers and memory together."""
    on_refused: Callable[[int, BaseException], None]
    """Called with the number of records that failed before the append, and the error."""


class SenderSettings(NamedTuple):
    """Settings of the sender. Durations in seconds."""

    acks: int
    """-1: all in-sync replicas, 1: the leader, 0: no response."""
    idempotent: bool
    """True if the producer needs a producer id before the first request."""
    max_in_flight: int
    """Maximum number of produce requests in flight per connection."""
    retries: int
    """Maximum number of retries per batch; the delivery timeout also ends retries."""
    request_timeout_s: float
    """Time limit of the broker for its replicas, and of the connection for the response."""
    retry_backoff: Backoff
    """Backoff of retries."""
    codec: Codec
    """Codec of batches."""
    compression_level: int | None
    """Compression level; None selects the codec's default."""
    transactional_id: str | None = None
    """Transactional id, or None."""

    @property
    def in_flight_limit(self) -> int:
        """`max_in_flight`; 1 with acks=0, which has no responses."""
        return self.max_in_flight if self.acks != 0 else 1
