"""CreateTopics. KIP-464 (v4: the broker's own defaults), KIP-482 and KIP-525 (v5: flexible; configs come back), KIP-516 (v7: ids)."""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.schema import Message, Request, message
from aioproducer._core.protocol.types import (
    BOOL,
    INT8,
    INT16,
    INT32,
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
    """What became of one topic."""

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
    """The outcome per topic."""

    throttle_time_ms: int = field(INT32, ignorable=True, default=0)
    topics: list[CreatableTopicResult] = field(array_of(CreatableTopicResult))


@struct
class CreatableReplicaAssignment:
    """The brokers that shall hold one partition."""

    partition_index: int = field(INT32)
    broker_ids: Sequence[int] = field(array_of(INT32))


@struct
class CreatableTopicConfig:
    """One setting."""

    name: str = field(STRING)
    value: str | None = field(NULLABLE_STRING)


@struct
class CreatableTopic:
    """A topic to create; -1 for *num_partitions* and *replication_factor* is the broker's default (v4)."""

    name: str = field(STRING)
    num_partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    assignments: list[CreatableReplicaAssignment] = field(array_of(CreatableReplicaAssignment), factory=list)
    configs: list[CreatableTopicConfig] = field(array_of(CreatableTopicConfig), factory=list)


@message(api_key=19, versions=(2, 7), flexible_from=5)
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """Create these topics, or with *validate_only* say whether they could be."""

    topics: list[CreatableTopic] = field(array_of(CreatableTopic))
    timeout_ms: int = field(INT32, default=60_000)
    validate_only: bool = field(BOOL, default=False)
