"""ListOffsets: the first offset of a partition at or after a time; -1 asks for the end, -2 for the start.

KIP-98 (v2: isolation level), KIP-320 (v4: leader epochs), KIP-482 (v6: flexible), KIP-734 (v7: -3, the newest).
"""

from __future__ import annotations

from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.schema import Message, Request, check_range, checked_by, message
from aioproducer._core.protocol.types import INT8, INT16, INT32, INT64, STRING, array_of


@struct
class ListOffsetsPartitionResponse:
    """One partition's offset; -1 if it has none as new as that."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    timestamp: int = field(INT64, default=-1)
    offset: int = field(INT64, default=-1)
    leader_epoch: int = field(INT32, since=4, default=-1)


@struct
class ListOffsetsTopicResponse:
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(array_of(ListOffsetsPartitionResponse))


@message(api_key=2, versions=(1, 7), flexible_from=6, client_pauses_from=3)
class ListOffsetsResponse(Message):
    """The offsets, per topic and partition."""

    throttle_time_ms: int = field(INT32, since=2, ignorable=True, default=0)
    topics: list[ListOffsetsTopicResponse] = field(array_of(ListOffsetsTopicResponse))


@checked_by(ListOffsetsResponse)
def _check(answer: ListOffsetsResponse) -> None:
    for topic in answer.topics:
        for each in topic.partitions:
            check_range("partition_index", each.partition_index, 0)
            check_range("timestamp", each.timestamp, -1)
            check_range("offset", each.offset, -1)
            check_range("leader_epoch", each.leader_epoch, -1)


@struct
class ListOffsetsPartition:
    """A partition, and the time in ms, or -1, -2, -3, that is asked for."""

    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=4, ignorable=True, default=-1)
    timestamp: int = field(INT64)


@struct
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(array_of(ListOffsetsPartition))


@message(api_key=2, versions=(1, 7), flexible_from=6)
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """A *replica_id* of -1 is a consumer; an *isolation_level* of 1 hides open transactions."""

    replica_id: int = field(INT32)
    isolation_level: int = field(INT8, since=2, default=0)
    topics: list[ListOffsetsTopic] = field(array_of(ListOffsetsTopic))
