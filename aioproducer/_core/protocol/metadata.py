"""Descriptions of a broker and its cluster: ApiVersions and Metadata.

ApiVersions is the first request of every connection: KIP-35, KIP-511 (v3: flexible, client name and version), KIP-584 (v3:
features), KIP-1242 (v5: the cluster id and node id that the client expects; any other broker returns error 129). A broker
without the requested version returns error 35 in version 0 (KIP-511), so the response header never has tags.

Metadata: KIP-320 (v7: leader epochs), KIP-430 (v8: authorized operations), KIP-482 (v9: flexible), KIP-516 (v10: topic ids,
v12: topics requested by id), KIP-1102 (v13: an error code for the whole response).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.schema import (
    Message,
    Request,
    check_address,
    check_range,
    message,
)
from aioproducer._core.protocol.types import (
    BOOL,
    INT16,
    INT32,
    INT64,
    NO_TOPIC_ID,
    NULLABLE_STRING,
    STRING,
    UUID,
    array_of,
    nullable_array_of,
)
from aioproducer.errors import ProtocolError

MAX_API_VERSIONS: Final = 1_000
"""Maximum number of APIs and of features in a response, which arrives before authentication.

Kafka 4.4 has about 90 APIs and 10 features.
"""


@struct
class ApiVersion:
    """Lowest and highest version of one API."""

    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


@struct
class SupportedFeatureKey:
    """Feature of the broker, with its supported levels."""

    name: str = field(STRING)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


@struct
class FinalizedFeatureKey:
    """Feature enabled in the whole cluster, with its levels."""

    name: str = field(STRING)
    max_version_level: int = field(INT16)
    min_version_level: int = field(INT16)


@message(api_key=18, versions=(0, 5), flexible_from=3, client_pauses_from=2)
class ApiVersionsResponse(Message):
    """APIs and features of the broker. If *finalized_features_epoch* is below 0, *finalized_features* are invalid."""

    error_code: int = field(INT16)
    api_keys: list[ApiVersion] = field(array_of(ApiVersion, most=MAX_API_VERSIONS))
    throttle_time_ms: int = field(INT32, since=1, ignorable=True, default=0)
    supported_features: list[SupportedFeatureKey] = field(
        array_of(SupportedFeatureKey, most=MAX_API_VERSIONS),
        since=3,
        tag=0,
        ignorable=True,
        factory=list,
    )
    finalized_features_epoch: int = field(INT64, since=3, tag=1, ignorable=True, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(
        array_of(FinalizedFeatureKey, most=MAX_API_VERSIONS),
        since=3,
        tag=2,
        ignorable=True,
        factory=list,
    )
    zk_migration_ready: bool = field(BOOL, since=3, tag=3, ignorable=True, default=False)


@message(api_key=18, versions=(0, 5), flexible_from=3)
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Name and version of the client. Brokers accept only letters, digits, `-` and `.` in name and version."""

    client_software_name: str = field(STRING, since=3, ignorable=True)
    client_software_version: str = field(STRING, since=3, ignorable=True)
    cluster_id: str | None = field(NULLABLE_STRING, since=5, ignorable=True, default=None)
    node_id: int = field(INT32, since=5, ignorable=True, default=-1)


OPERATIONS_NOT_REQUESTED = -(2**31)


@struct
class MetadataResponseBroker:
    """Address of a broker."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(NULLABLE_STRING, ignorable=True, default=None)


@struct
class MetadataResponsePartition:
    """One partition; -1 for *leader_id* or *leader_epoch* means unknown."""

    error_code: int = field(INT16, default=0)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, since=7, ignorable=True, default=-1)
    replica_nodes: Sequence[int] = field(array_of(INT32))
    isr_nodes: Sequence[int] = field(array_of(INT32))
    offline_replicas: Sequence[int] = field(array_of(INT32), since=5, ignorable=True, default=())


@struct
class MetadataResponseTopic:
    """One topic; *name* is None only for an unknown topic id."""

    error_code: int = field(INT16, default=0)
    name: str | None = field(NULLABLE_STRING, nullable_since=12)
    topic_id: bytes = field(UUID, since=10, ignorable=True, default=NO_TOPIC_ID)
    is_internal: bool = field(BOOL, ignorable=True, default=False)
    partitions: list[MetadataResponsePartition] = field(array_of(MetadataResponsePartition))
    topic_authorized_operations: int = field(INT32, since=8, default=OPERATIONS_NOT_REQUESTED)


@message(api_key=3, versions=(4, 13), flexible_from=9, client_pauses_from=6, large=True)
class MetadataResponse(Message):
    """Cluster as described by one broker; a *controller_id* of -1 means unknown."""

    throttle_time_ms: int = field(INT32, ignorable=True, default=0)
    brokers: list[MetadataResponseBroker] = field(array_of(MetadataResponseBroker))
    cluster_id: str | None = field(NULLABLE_STRING, ignorable=True, default=None)
    controller_id: int = field(INT32, ignorable=True, default=-1)
    topics: list[MetadataResponseTopic] = field(array_of(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, since=8, until=10, default=OPERATIONS_NOT_REQUESTED)
    error_code: int = field(INT16, since=13, ignorable=True, default=0)

    def check(self) -> None:
        addresses: dict[int, tuple[str, int]] = {}
        for broker in self.brokers:
            check_address(broker.node_id, broker.port)
            address = broker.host, broker.port
            if addresses.setdefault(broker.node_id, address) != address:
                raise ProtocolError(f"node_id={broker.node_id} has two addresses")
        for topic in self.topics:
            for each in topic.partitions:  # a call per partition would be slow
                if each.partition_index < 0 or each.leader_id < -1 or each.leader_epoch < -1:
                    check_range("partition_index", each.partition_index, 0)
                    check_range("leader_id", each.leader_id, -1)
                    check_range("leader_epoch", each.leader_epoch, -1)


@struct
class MetadataRequestTopic:
    """Requested topic: *name*, or from v12 on *topic_id* with *name* None."""

    topic_id: bytes = field(UUID, since=10, ignorable=True, default=NO_TOPIC_ID)
    name: str | None = field(NULLABLE_STRING, nullable_since=10)


@message(api_key=3, versions=(4, 13), flexible_from=9)
class MetadataRequest(Request[MetadataResponse]):
    """Describe the cluster and *topics*: None requests all topics, an empty list requests no topic."""

    topics: list[MetadataRequestTopic] | None = field(nullable_array_of(MetadataRequestTopic))
    allow_auto_topic_creation: bool = field(BOOL, default=True)
    include_cluster_authorized_operations: bool = field(BOOL, since=8, until=10, default=False)
    include_topic_authorized_operations: bool = field(BOOL, since=8, default=False)
