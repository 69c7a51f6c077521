"""Fetch: record batches out of partitions.

KIP-98 (v4: isolation level), KIP-227 (v7: sessions), KIP-320 (v9: leader epochs), KIP-110 (v10: zstd), KIP-392
(v11: racks), KIP-482 and KIP-595 (v12: flexible; divergence and leader in the answer).
"""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.produce import LeaderIdAndEpoch
from aioproducer._core.protocol.schema import Message, Request, message
from aioproducer._core.protocol.types import (
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    RECORDS,
    STRING,
    array_of,
    nullable_array_of,
    struct_of,
)
from aioproducer._core.wire.primitives import BytesLike


@struct
class EpochEndOffset:
    """The last epoch that the fetcher's log and the leader's have in common, and where it ends."""

    epoch: int = field(INT32, default=-1)
    end_offset: int = field(INT64, default=-1)


@struct
class SnapshotId:
    """The snapshot to fetch instead, where the offset is before the log's start."""

    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


@struct
class AbortedTransaction:
    """A transaction whose records a read-committed consumer skips."""

    producer_id: int = field(INT64)
    first_offset: int = field(INT64)


@struct
class PartitionData:
    """The records of one partition, from the batch that has the offset asked for on; the last may be cut."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, ignorable=True, default=-1)
    log_start_offset: int = field(INT64, since=5, ignorable=True, default=-1)
    diverging_epoch: EpochEndOffset = field(
        struct_of(EpochEndOffset), since=12, tag=0, factory=EpochEndOffset
    )
    current_leader: LeaderIdAndEpoch = field(
        struct_of(LeaderIdAndEpoch), since=12, tag=1, factory=LeaderIdAndEpoch
    )
    snapshot_id: SnapshotId = field(struct_of(SnapshotId), since=12, tag=2, factory=SnapshotId)
    aborted_transactions: list[AbortedTransaction] | None = field(
        nullable_array_of(AbortedTransaction), ignorable=True, factory=list
    )
    preferred_read_replica: int = field(INT32, since=11, default=-1)
    records: BytesLike | None = field(RECORDS)


@struct
class FetchableTopicResponse:
    """The partitions of one topic."""

    topic: str = field(STRING, ignorable=True)
    partitions: list[PartitionData] = field(array_of(PartitionData))


@message(api_key=1, versions=(4, 12), flexible_from=12, client_pauses_from=8, large=True)
class FetchResponse(Message):
    """The records; a *session_id* of 0 is no session."""

    throttle_time_ms: int = field(INT32, ignorable=True, default=0)
    error_code: int = field(INT16, since=7, ignorable=True, default=0)
    session_id: int = field(INT32, since=7, default=0)
    responses: list[FetchableTopicResponse] = field(array_of(FetchableTopicResponse))


@struct
class FetchPartition:
    """A partition, and the offset to fetch from."""

    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=9, ignorable=True, default=-1)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, since=12, default=-1)
    log_start_offset: int = field(INT64, since=5, ignorable=True, default=-1)
    partition_max_bytes: int = field(INT32)


@struct
class FetchTopic:
    """The partitions of one topic."""

    topic: str = field(STRING, ignorable=True)
    partitions: list[FetchPartition] = field(array_of(FetchPartition))


@struct
class ForgottenTopic:
    """Partitions to drop from the session."""

    topic: str = field(STRING, ignorable=True)
    partitions: Sequence[int] = field(array_of(INT32))


@message(api_key=1, versions=(4, 12), flexible_from=12)
class FetchRequest(Request[FetchResponse]):
    """Fetch from these partitions: wait up to *max_wait_ms* for *min_bytes*, and stop at *max_bytes*."""

    cluster_id: str | None = field(NULLABLE_STRING, since=12, tag=0, ignorable=True, default=None)
    replica_id: int = field(INT32, default=-1)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, ignorable=True, default=0x7FFF_FFFF)
    isolation_level: int = field(INT8, ignorable=True, default=0)
    session_id: int = field(INT32, since=7, ignorable=True, default=0)
    session_epoch: int = field(INT32, since=7, ignorable=True, default=-1)
    topics: list[FetchTopic] = field(array_of(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(array_of(ForgottenTopic), since=7, factory=list)
    rack_id: str = field(STRING, since=11, ignorable=True, default="")
