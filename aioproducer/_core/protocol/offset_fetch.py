"""OffsetFetch: the offsets that consumer groups have committed.

KIP-88 (v2: None for all topics), KIP-211 (v5: leader epochs), KIP-482 (v6: flexible), KIP-447 (v7: only offsets that
no open transaction may still change), KIP-709 (v8: many groups at once), KIP-848 (v9: members).
"""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.schema import Message, Request, message
from aioproducer._core.protocol.types import (
    BOOL,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    array_of,
    nullable_array_of,
)


@struct
class OffsetFetchResponsePartition:
    """One partition's offset, up to v7; -1 if the group has none."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=5, until=7, ignorable=True, default=-1)
    metadata: str | None = field(NULLABLE_STRING, default="")
    error_code: int = field(INT16, default=0)


@struct
class OffsetFetchResponseTopic:
    """The partitions of one topic, up to v7."""

    name: str = field(STRING)
    partitions: list[OffsetFetchResponsePartition] = field(array_of(OffsetFetchResponsePartition))


@struct
class OffsetFetchResponsePartitions:
    """One partition's offset; -1 if the group has none."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, ignorable=True, default=-1)
    metadata: str | None = field(NULLABLE_STRING, default="")
    error_code: int = field(INT16, default=0)


@struct
class OffsetFetchResponseTopics:
    """The partitions of one topic."""

    name: str = field(STRING, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field(array_of(OffsetFetchResponsePartitions))


@struct
class OffsetFetchResponseGroup:
    """The offsets of one group."""

    group_id: str = field(STRING)
    topics: list[OffsetFetchResponseTopics] = field(array_of(OffsetFetchResponseTopics), factory=list)
    error_code: int = field(INT16, default=0)


@message(api_key=9, versions=(1, 9), flexible_from=6, client_pauses_from=4)
class OffsetFetchResponse(Message):
    """The offsets of one group up to v7, of an array of them after that."""

    throttle_time_ms: int = field(INT32, since=3, ignorable=True, default=0)
    topics: list[OffsetFetchResponseTopic] = field(array_of(OffsetFetchResponseTopic), until=7, factory=list)
    error_code: int = field(INT16, since=2, until=7, ignorable=True, default=0)
    groups: list[OffsetFetchResponseGroup] = field(array_of(OffsetFetchResponseGroup), since=8, factory=list)


@struct
class OffsetFetchRequestTopic:
    """The partitions of one topic, up to v7."""

    name: str = field(STRING)
    partition_indexes: Sequence[int] = field(array_of(INT32))


@struct
class OffsetFetchRequestTopics:
    """The partitions of one topic."""

    name: str = field(STRING, ignorable=True)
    partition_indexes: Sequence[int] = field(array_of(INT32))


@struct
class OffsetFetchRequestGroup:
    """A group, and the partitions that are asked about: None is all of them."""

    group_id: str = field(STRING)
    member_id: str | None = field(NULLABLE_STRING, since=9, ignorable=True, default=None)
    member_epoch: int = field(INT32, since=9, ignorable=True, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field(
        nullable_array_of(OffsetFetchRequestTopics), factory=list
    )


@message(api_key=9, versions=(1, 9), flexible_from=6)
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """Fetch offsets; with *require_stable* a partition whose offset an open transaction may change is refused."""

    group_id: str = field(STRING, until=7, default="")
    topics: list[OffsetFetchRequestTopic] | None = field(
        nullable_array_of(OffsetFetchRequestTopic), until=7, nullable_since=2, factory=list
    )
    groups: list[OffsetFetchRequestGroup] = field(array_of(OffsetFetchRequestGroup), since=8, factory=list)
    require_stable: bool = field(BOOL, since=7, default=False)
