"""Requests of a consumer: Fetch, ListOffsets, OffsetFetch.

Fetch: KIP-98 (v4: isolation level), KIP-227 (v7: sessions), KIP-320 (v9: leader epochs), KIP-110 (v10: zstd), KIP-392 (v11:
racks), KIP-482 and KIP-595 (v12: flexible; divergence and leader in the response). ListOffsets: KIP-98 (v2: isolation
level), KIP-320 (v4: leader epochs), KIP-482 (v6: flexible), KIP-734 (v7: timestamp -3). OffsetFetch: KIP-88 (v2: None for
all topics), KIP-211 (v5: leader epochs), KIP-482 (v6: flexible), KIP-447 (v7: refuse offsets that an open transaction may
change), KIP-709 (v8: several groups per request), KIP-848 (v9: members).
"""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.produce import LeaderIdAndEpoch
from aioproducer._core.protocol.schema import Message, Request, check_range, message
from aioproducer._core.protocol.types import (
    BOOL,
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
from aioproducer._core.wire import BytesLike


@struct
class EpochEndOffset:
    """Last epoch that the logs of fetcher and leader share, and its end offset."""

    epoch: int = field(INT32, default=-1)
    end_offset: int = field(INT64, default=-1)


@struct
class SnapshotId:
    """Snapshot to fetch if the requested offset is before the start of the log."""

    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


@struct
class AbortedTransaction:
    """Transaction whose records a read-committed consumer skips."""

    producer_id: int = field(INT64)
    first_offset: int = field(INT64)


@struct
class PartitionData:
    """Records of one partition, from the batch with the requested offset. The last batch may be incomplete."""

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
    """Partitions of one topic."""

    topic: str = field(STRING, ignorable=True)
    partitions: list[PartitionData] = field(array_of(PartitionData))


@message(api_key=1, versions=(4, 12), flexible_from=12, client_pauses_from=8, large=True)
class FetchResponse(Message):
    """Records per topic and partition; a *session_id* of 0 means no session."""

    throttle_time_ms: int = field(INT32, ignorable=True, default=0)
    error_code: int = field(INT16, since=7, ignorable=True, default=0)
    session_id: int = field(INT32, since=7, default=0)
    responses: list[FetchableTopicResponse] = field(array_of(FetchableTopicResponse))


@struct
class FetchPartition:
    """Partition, with the offset to fetch from."""

    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=9, ignorable=True, default=-1)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, since=12, default=-1)
    log_start_offset: int = field(INT64, since=5, ignorable=True, default=-1)
    partition_max_bytes: int = field(INT32)


@struct
class FetchTopic:
    """Partitions of one topic."""

    topic: str = field(STRING, ignorable=True)
    partitions: list[FetchPartition] = field(array_of(FetchPartition))


@struct
class ForgottenTopic:
    """Partitions to drop from the session."""

    topic: str = field(STRING, ignorable=True)
    partitions: Sequence[int] = field(array_of(INT32))


@message(api_key=1, versions=(4, 12), flexible_from=12)
class FetchRequest(Request[FetchResponse]):
    """Fetch from partitions: wait up to *max_wait_ms* for *min_bytes*, and stop at *max_bytes*."""

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


@struct
class ListOffsetsPartitionResponse:
    """Offset of one partition; -1 if no record is as new as the requested time."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    timestamp: int = field(INT64, default=-1)
    offset: int = field(INT64, default=-1)
    leader_epoch: int = field(INT32, since=4, default=-1)


@struct
class ListOffsetsTopicResponse:
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(array_of(ListOffsetsPartitionResponse))


@message(api_key=2, versions=(1, 7), flexible_from=6, client_pauses_from=3)
class ListOffsetsResponse(Message):
    """Offsets, per topic and partition."""

    throttle_time_ms: int = field(INT32, since=2, ignorable=True, default=0)
    topics: list[ListOffsetsTopicResponse] = field(array_of(ListOffsetsTopicResponse))

    def check(self) -> None:
        for topic in self.topics:
            for each in topic.partitions:
                check_range("partition_index", each.partition_index, 0)
                check_range("timestamp", each.timestamp, -1)
                check_range("offset", each.offset, -1)
                check_range("leader_epoch", each.leader_epoch, -1)


@struct
class ListOffsetsPartition:
    """Partition, with the time in ms, or -1 (end), -2 (start) or -3 (newest record)."""

    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=4, ignorable=True, default=-1)
    timestamp: int = field(INT64)


@struct
class ListOffsetsTopic:
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(array_of(ListOffsetsPartition))


@message(api_key=2, versions=(1, 7), flexible_from=6)
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """List the first offsets at or after a time. *replica_id*: -1 for consumers; *isolation_level*: 1 hides open transactions."""

    replica_id: int = field(INT32)
    isolation_level: int = field(INT8, since=2, default=0)
    topics: list[ListOffsetsTopic] = field(array_of(ListOffsetsTopic))


@struct
class OffsetFetchResponsePartition:
    """Offset of one partition, up to v7; -1 without a committed offset."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=5, until=7, ignorable=True, default=-1)
    metadata: str | None = field(NULLABLE_STRING, default="")
    error_code: int = field(INT16, default=0)


@struct
class OffsetFetchResponseTopic:
    """Partitions of one topic, up to v7."""

    name: str = field(STRING)
    partitions: list[OffsetFetchResponsePartition] = field(array_of(OffsetFetchResponsePartition))


@struct
class OffsetFetchResponsePartitions:
    """Offset of one partition; -1 without a committed offset."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, ignorable=True, default=-1)
    metadata: str | None = field(NULLABLE_STRING, default="")
    error_code: int = field(INT16, default=0)


@struct
class OffsetFetchResponseTopics:
    """Partitions of one topic."""

    name: str = field(STRING, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field(array_of(OffsetFetchResponsePartitions))


@struct
class OffsetFetchResponseGroup:
    """Committed offsets of one group."""

    group_id: str = field(STRING)
    topics: list[OffsetFetchResponseTopics] = field(array_of(OffsetFetchResponseTopics), factory=list)
    error_code: int = field(INT16, default=0)


@message(api_key=9, versions=(1, 9), flexible_from=6, client_pauses_from=4)
class OffsetFetchResponse(Message):
    """Committed offsets of one group up to v7, of several groups from v8."""

    throttle_time_ms: int = field(INT32, since=3, ignorable=True, default=0)
    topics: list[OffsetFetchResponseTopic] = field(array_of(OffsetFetchResponseTopic), until=7, factory=list)
    error_code: int = field(INT16, since=2, until=7, ignorable=True, default=0)
    groups: list[OffsetFetchResponseGroup] = field(array_of(OffsetFetchResponseGroup), since=8, factory=list)


@struct
class OffsetFetchRequestTopic:
    """Partitions of one topic, up to v7."""

    name: str = field(STRING)
    partition_indexes: Sequence[int] = field(array_of(INT32))


@struct
class OffsetFetchRequestTopics:
    """Partitions of one topic."""

    name: str = field(STRING, ignorable=True)
    partition_indexes: Sequence[int] = field(array_of(INT32))


@struct
class OffsetFetchRequestGroup:
    """Group with the requested partitions; None requests all."""

    group_id: str = field(STRING)
    member_id: str | None = field(NULLABLE_STRING, since=9, ignorable=True, default=None)
    member_epoch: int = field(INT32, since=9, ignorable=True, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field(
        nullable_array_of(OffsetFetchRequestTopics), factory=list
    )


@message(api_key=9, versions=(1, 9), flexible_from=6)
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """Fetch committed offsets; *require_stable* refuses partitions whose offset an open transaction may change."""

    group_id: str = field(STRING, until=7, default="")
    topics: list[OffsetFetchRequestTopic] | None = field(
        nullable_array_of(OffsetFetchRequestTopic), until=7, nullable_since=2, factory=list
    )
    groups: list[OffsetFetchRequestGroup] = field(array_of(OffsetFetchRequestGroup), since=8, factory=list)
    require_stable: bool = field(BOOL, since=7, default=False)
