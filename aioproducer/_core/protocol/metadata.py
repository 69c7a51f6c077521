"""Metadata: the brokers, the topics, and who leads which partition.

KIP-320 (v7: leader epochs), KIP-430 (v8: authorized operations), KIP-482 (v9: flexible), KIP-516 (v10: topic
ids, v12: asking by id), KIP-1102 (v13: an error for the whole answer).
"""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.schema import (
    Message,
    Request,
    check_address,
    check_range,
    checked_by,
    message,
)
from aioproducer._core.protocol.types import (
    BOOL,
    INT16,
    INT32,
    NO_TOPIC_ID,
    NULLABLE_STRING,
    STRING,
    UUID,
    array_of,
    nullable_array_of,
)
from aioproducer.errors import ProtocolError

OPERATIONS_NOT_ASKED_FOR = -(2**31)


@struct
class MetadataResponseBroker:
    """Where a broker is found."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(NULLABLE_STRING, ignorable=True, default=None)


@struct
class MetadataResponsePartition:
    """One partition; a *leader_id* or *leader_epoch* of -1 is unknown."""

    error_code: int = field(INT16, default=0)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, since=7, ignorable=True, default=-1)
    replica_nodes: Sequence[int] = field(array_of(INT32))
    isr_nodes: Sequence[int] = field(array_of(INT32))
    offline_replicas: Sequence[int] = field(array_of(INT32), since=5, ignorable=True, default=())


@struct
class MetadataResponseTopic:
    """One topic; *name* is None only where a topic asked for by id does not exist."""

    error_code: int = field(INT16, default=0)
    name: str | None = field(NULLABLE_STRING, nullable_since=12)
    topic_id: bytes = field(UUID, since=10, ignorable=True, default=NO_TOPIC_ID)
    is_internal: bool = field(BOOL, ignorable=True, default=False)
    partitions: list[MetadataResponsePartition] = field(array_of(MetadataResponsePartition))
    topic_authorized_operations: int = field(INT32, since=8, default=OPERATIONS_NOT_ASKED_FOR)


@message(api_key=3, versions=(4, 13), flexible_from=9, client_pauses_from=6, large=True)
class MetadataResponse(Message):
    """The cluster as one broker sees it; a *controller_id* of -1 is unknown."""

    throttle_time_ms: int = field(INT32, ignorable=True, default=0)
    brokers: list[MetadataResponseBroker] = field(array_of(MetadataResponseBroker))
    cluster_id: str | None = field(NULLABLE_STRING, ignorable=True, default=None)
    controller_id: int = field(INT32, ignorable=True, default=-1)
    topics: list[MetadataResponseTopic] = field(array_of(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, since=8, until=10, default=OPERATIONS_NOT_ASKED_FOR)
    error_code: int = field(INT16, since=13, ignorable=True, default=0)


@checked_by(MetadataResponse)
def _check(answer: MetadataResponse) -> None:
    addresses: dict[int, tuple[str, int]] = {}
    for broker in answer.brokers:
        check_address(broker.node_id, broker.port)
        address = broker.host, broker.port
        if addresses.setdefault(broker.node_id, address) != address:
            raise ProtocolError(f"node_id={broker.node_id} has two addresses")
    for topic in answer.topics:
        for each in topic.partitions:  # there may be many: no call for each
            if each.partition_index < 0 or each.leader_id < -1 or each.leader_epoch < -1:
                check_range("partition_index", each.partition_index, 0)
                check_range("leader_id", each.leader_id, -1)
                check_range("leader_epoch", each.leader_epoch, -1)


@struct
class MetadataRequestTopic:
    """A topic asked for, by name, or from v12 on by id with *name* None."""

    topic_id: bytes = field(UUID, since=10, ignorable=True, default=NO_TOPIC_ID)
    name: str | None = field(NULLABLE_STRING, nullable_since=10)


@message(api_key=3, versions=(4, 13), flexible_from=9)
class MetadataRequest(Request[MetadataResponse]):
    """Describe the cluster and these topics: None is all of them, an empty list none."""

    topics: list[MetadataRequestTopic] | None = field(nullable_array_of(MetadataRequestTopic))
    allow_auto_topic_creation: bool = field(BOOL, default=True)
    include_cluster_authorized_operations: bool = field(BOOL, since=8, until=10, default=False)
    include_topic_authorized_operations: bool = field(BOOL, since=8, default=False)
