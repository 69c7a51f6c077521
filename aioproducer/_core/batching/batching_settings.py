"""Settings of the batching floor, in seconds and bytes."""

# ruff: noqa: I002 - else typing compiles each annotation of a NamedTuple, for which every process waits

from typing import NamedTuple

from aioproducer._core.records.sizes import BATCH_OVERHEAD
from aioproducer.errors import RecordTooLarge


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
