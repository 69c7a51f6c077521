"""Requests of an admin client: CreateTopics, DescribeConfigs, ListTransactions, DescribeProducers.

CreateTopics: KIP-464 (v4: the broker's default partition count and replication factor), KIP-482 and KIP-525 (v5: flexible;
the response has the topic's settings), KIP-516 (v7: topic ids). DescribeConfigs: KIP-133, KIP-569 (v3: types and
documentation), KIP-482 (v4: flexible). ListTransactions: KIP-664, KIP-994 (v1: the age of a transaction), KIP-1152 (v2: a
pattern that matches the whole id). DescribeProducers: KIP-664.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.schema import Message, Request, message
from aioproducer._core.protocol.types import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    NULLABLE_TEXT,
    STRING,
    UUID,
    array_of,
    nullable_array_of,
)


@struct
class CreatableTopicConfigs:
    """One setting of the new topic."""

    name: str = field(STRING)
    value: str | None = field(NULLABLE_STRING)
    read_only: bool = field(BOOL)
    config_source: int = field(INT8, ignorable=True, default=-1)
    is_sensitive: bool = field(BOOL)


@struct
class CreatableTopicResult:
    """Outcome of one topic."""

    name: str = field(STRING)
    topic_id: bytes = field(UUID, since=7, ignorable=True, default=bytes(16))
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(NULLABLE_TEXT, ignorable=True, default="")
    topic_config_error_code: int = field(INT16, since=5, tag=0, ignorable=True, default=0)
    num_partitions: int = field(INT32, since=5, ignorable=True, default=-1)
    replication_factor: int = field(INT16, since=5, ignorable=True, default=-1)
    configs: list[CreatableTopicConfigs] | None = field(
        nullable_array_of(CreatableTopicConfigs), since=5, ignorable=True, factory=list
    )


@message(api_key=19, versions=(2, 7), flexible_from=5, client_pauses_from=3)
class CreateTopicsResponse(Message):
    """Outcome per topic."""

    throttle_time_ms: int = field(INT32, ignorable=True, default=0)
    topics: list[CreatableTopicResult] = field(array_of(CreatableTopicResult))


@struct
class CreatableReplicaAssignment:
    """Brokers for the replicas of one partition."""

    partition_index: int = field(INT32)
    broker_ids: Sequence[int] = field(array_of(INT32))


@struct
class CreatableTopicConfig:
    """One setting of a topic to create."""

    name: str = field(STRING)
    value: str | None = field(NULLABLE_STRING)


@struct
class CreatableTopic:
    """Topic to create; -1 for *num_partitions* and *replication_factor* selects the broker's default (v4)."""

    name: str = field(STRING)
    num_partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    assignments: list[CreatableReplicaAssignment] = field(array_of(CreatableReplicaAssignment), factory=list)
    configs: list[CreatableTopicConfig] = field(array_of(CreatableTopicConfig), factory=list)


@message(api_key=19, versions=(2, 7), flexible_from=5)
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """Create topics, or with *validate_only* only validate the request."""

    topics: list[CreatableTopic] = field(array_of(CreatableTopic))
    timeout_ms: int = field(INT32, default=60_000)
    validate_only: bool = field(BOOL, default=False)


TOPIC_RESOURCE: Final = 2
"""Resource type of a topic."""


@struct
class DescribeConfigsSynonym:
    """Value of a setting at another level, such as the broker's default."""

    name: str = field(STRING)
    value: str | None = field(NULLABLE_TEXT)
    source: int = field(INT8)


@struct
class DescribeConfigsResourceResult:
    """One setting of a resource."""

    name: str = field(STRING)
    value: str | None = field(NULLABLE_TEXT)
    read_only: bool = field(BOOL, default=False)
    config_source: int = field(INT8, ignorable=True, default=-1)
    is_sensitive: bool = field(BOOL, default=False)
    synonyms: list[DescribeConfigsSynonym] = field(
        array_of(DescribeConfigsSynonym), ignorable=True, factory=list
    )
    config_type: int = field(INT8, since=3, ignorable=True, default=0)
    documentation: str | None = field(NULLABLE_TEXT, since=3, ignorable=True, default="")


@struct
class DescribeConfigsResult:
    """Settings of one resource."""

    error_code: int = field(INT16, default=0)
    error_message: str | None = field(NULLABLE_TEXT, default="")
    resource_type: int = field(INT8, default=0)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResourceResult] = field(
        array_of(DescribeConfigsResourceResult), factory=list
    )


@message(api_key=32, versions=(1, 4), flexible_from=4, client_pauses_from=2, large=True)
class DescribeConfigsResponse(Message):
    """Settings of each resource, or an error."""

    throttle_time_ms: int = field(INT32, default=0)
    results: list[DescribeConfigsResult] = field(array_of(DescribeConfigsResult))


@struct
class DescribeConfigsResource:
    """Resource with the names of the requested settings; None requests all settings."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configuration_keys: list[str] | None = field(nullable_array_of(STRING))


@message(api_key=32, versions=(1, 4), flexible_from=4)
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    """Describe the settings of *resources*."""

    resources: list[DescribeConfigsResource] = field(array_of(DescribeConfigsResource))
    include_synonyms: bool = field(BOOL, default=False)
    include_documentation: bool = field(BOOL, since=3, default=False)


@struct
class TransactionState:
    """State of one transactional id."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


@message(api_key=66, versions=(0, 2), flexible_from=0, client_pauses_from=0, large=True)
class ListTransactionsResponse(Message):
    """Transactional ids that match every filter. States unknown to the broker match no id, and are returned."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    unknown_state_filters: list[str] = field(array_of(STRING), factory=list)
    transaction_states: list[TransactionState] = field(array_of(TransactionState), factory=list)


@message(api_key=66, versions=(0, 2), flexible_from=0)
class ListTransactionsRequest(Request[ListTransactionsResponse]):
    """List transactional ids by state, producer id, age in milliseconds and name. Empty, -1 or None disables a filter."""

    state_filters: list[str] = field(array_of(STRING), factory=list)
    producer_id_filters: Sequence[int] = field(array_of(INT64), default=())
    duration_filter: int = field(INT64, since=1, default=-1)
    transactional_id_pattern: str | None = field(NULLABLE_STRING, since=2, default=None)


@struct
class ProducerState:
    """State of one producer; *current_txn_start_offset* is -1 without an open transaction in the partition."""

    producer_id: int = field(INT64)
    producer_epoch: int = field(INT32)
    last_sequence: int = field(INT32, default=-1)
    last_timestamp: int = field(INT64, default=-1)
    coordinator_epoch: int = field(INT32)
    current_txn_start_offset: int = field(INT64, default=-1)


@struct
class PartitionResponse:
    """Active producers of one partition, in DescribeProducers."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(NULLABLE_TEXT, default=None)
    active_producers: list[ProducerState] = field(array_of(ProducerState), factory=list)


@struct
class TopicResponse:
    """Partitions of one topic, in DescribeProducers."""

    name: str = field(STRING)
    partitions: list[PartitionResponse] = field(array_of(PartitionResponse))


@message(api_key=61, versions=(0, 0), flexible_from=0, client_pauses_from=0)
class DescribeProducersResponse(Message):
    """Active producers, per topic and partition."""

    throttle_time_ms: int = field(INT32, default=0)
    topics: list[TopicResponse] = field(array_of(TopicResponse))


@struct
class TopicRequest:
    """Partitions of one topic, in DescribeProducers."""

    name: str = field(STRING)
    partition_indexes: Sequence[int] = field(array_of(INT32))


@message(api_key=61, versions=(0, 0), flexible_from=0)
class DescribeProducersRequest(Request[DescribeProducersResponse]):
    """Describe the active producers of partitions. The request is sent to the leader."""

    topics: list[TopicRequest] = field(array_of(TopicRequest))
