"""DescribeProducers: the producers that a partition's leader remembers, and which of them has a transaction (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.schema import Message, Request, message
from aioproducer._core.protocol.types import INT16, INT32, INT64, NULLABLE_TEXT, STRING, array_of


@struct
class ProducerState:
    """One producer; *current_txn_start_offset* is -1 if it has no transaction here."""

    producer_id: int = field(INT64)
    producer_epoch: int = field(INT32)
    last_sequence: int = field(INT32, default=-1)
    last_timestamp: int = field(INT64, default=-1)
    coordinator_epoch: int = field(INT32)
    current_txn_start_offset: int = field(INT64, default=-1)


@struct
class PartitionResponse:
    """The producers of one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(NULLABLE_TEXT, default=None)
    active_producers: list[ProducerState] = field(array_of(ProducerState), factory=list)


@struct
class TopicResponse:
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[PartitionResponse] = field(array_of(PartitionResponse))


@message(api_key=61, versions=(0, 0), flexible_from=0, client_pauses_from=0)
class DescribeProducersResponse(Message):
    """The producers, per topic and partition."""

    throttle_time_ms: int = field(INT32, default=0)
    topics: list[TopicResponse] = field(array_of(TopicResponse))


@struct
class TopicRequest:
    """The partitions of one topic."""

    name: str = field(STRING)
    partition_indexes: Sequence[int] = field(array_of(INT32))


@message(api_key=61, versions=(0, 0), flexible_from=0)
class DescribeProducersRequest(Request[DescribeProducersResponse]):
    """Describe the producers of these partitions; their leader is asked."""

    topics: list[TopicRequest] = field(array_of(TopicRequest))
