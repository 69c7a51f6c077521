"""Produce: record batches for the partitions that one broker leads.

KIP-98 (v3: transactional ids), KIP-110 (v7: zstd), KIP-467 (v8: which records were refused), KIP-482 (v9:
flexible), KIP-951 (v10: who leads now), KIP-890 (v11 and v12: new error codes and rules, same bytes).
"""

from __future__ import annotations

from aioproducer.protocol.fields import field, struct
from aioproducer.protocol.schema import Message, Request, message
from aioproducer.protocol.types import (
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    RECORDS,
    STRING,
    array_of,
    struct_of,
)
from aioproducer.wire.primitives import BytesLike


@struct
class BatchIndexAndErrorMessage:
    """A record for which its whole batch was refused; *batch_index* counts from 0 within the batch."""

    batch_index: int = field(INT32)
    batch_index_error_message: str | None = field(NULLABLE_STRING, default=None)


@struct
class LeaderIdAndEpoch:
    """Who leads the partition now; -1 is unknown."""

    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)


@struct
class PartitionProduceResponse:
    """What became of one partition's batch. *log_append_time_ms* is -1 unless the topic uses LogAppendTime."""

    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)
    log_append_time_ms: int = field(INT64, ignorable=True, default=-1)
    log_start_offset: int = field(INT64, since=5, ignorable=True, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        array_of(BatchIndexAndErrorMessage), since=8, ignorable=True, factory=list
    )
    error_message: str | None = field(NULLABLE_STRING, since=8, ignorable=True, default=None)
    current_leader: LeaderIdAndEpoch = field(
        struct_of(LeaderIdAndEpoch), since=10, tag=0, factory=LeaderIdAndEpoch
    )


@struct
class TopicProduceResponse:
    """The partitions of one topic."""

    name: str = field(STRING, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field(array_of(PartitionProduceResponse))


@struct
class NodeEndpoint:
    """Where a broker named as current leader is found."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(NULLABLE_STRING, default=None)


@message(api_key=0, versions=(3, 12), flexible_from=9)
class ProduceResponse(Message):
    """The outcome per partition; not sent at all if the request's acks were 0."""

    responses: list[TopicProduceResponse] = field(array_of(TopicProduceResponse))
    throttle_time_ms: int = field(INT32, ignorable=True, default=0)
    node_endpoints: list[NodeEndpoint] = field(array_of(NodeEndpoint), since=10, tag=0, factory=list)


@struct
class PartitionProduceData:
    """One partition's records: one batch of message format 2."""

    index: int = field(INT32)
    records: BytesLike | None = field(RECORDS)


@struct
class TopicProduceData:
    """The partitions of one topic."""

    name: str = field(STRING, ignorable=True)
    partition_data: list[PartitionProduceData] = field(array_of(PartitionProduceData))


@message(api_key=0, versions=(3, 12), flexible_from=9)
class ProduceRequest(Request[ProduceResponse]):
    """Append these batches. *acks*: -1 all in-sync replicas, 1 the leader, 0 nobody."""

    transactional_id: str | None = field(NULLABLE_STRING, default=None)
    acks: int = field(INT16)
    timeout_ms: int = field(INT32)
    topic_data: list[TopicProduceData] = field(array_of(TopicProduceData))
