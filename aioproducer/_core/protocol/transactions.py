"""Requests to coordinators: FindCoordinator, four requests of a transaction, and DescribeTransactions.

FindCoordinator: KIP-98 (v1: key types), KIP-482 (v3: flexible), KIP-699 (v4: several keys per request), KIP-890 (v5:
TRANSACTION_ABORTABLE), KIP-932 (v6: a third key type).

AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn: KIP-98, KIP-320 (v2 of TxnOffsetCommit: leader epochs),
KIP-482 (v3: flexible), KIP-447 (v3 of TxnOffsetCommit: group metadata), KIP-360 (v2: PRODUCER_FENCED), KIP-890 (v4:
TRANSACTION_ABORTABLE; v5 requires `transaction.version` 2: EndTxn returns the next epoch, TxnOffsetCommit adds the group).
Only brokers send versions 4 and 5 of AddPartitionsToTxn.

DescribeTransactions: KIP-664.
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
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    NULLABLE_TEXT,
    STRING,
    array_of,
)

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
"""Key type of FindCoordinator for transactional ids; `GROUP_KEY` is the type for consumer groups."""


@struct
class Coordinator:
    """Coordinator of one key."""

    key: str = field(STRING)
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(NULLABLE_TEXT, ignorable=True, default="")


@message(api_key=10, versions=(0, 6), flexible_from=3, client_pauses_from=2, large=True)
class FindCoordinatorResponse(Message):
    """One coordinator up to v3, several from v4."""

    throttle_time_ms: int = field(INT32, since=1, ignorable=True, default=0)
    error_code: int = field(INT16, until=3, default=0)
    error_message: str | None = field(NULLABLE_TEXT, since=1, until=3, ignorable=True, default="")
    node_id: int = field(INT32, until=3, default=0)
    host: str = field(STRING, until=3, default="")
    port: int = field(INT32, until=3, default=0)
    coordinators: list[Coordinator] = field(array_of(Coordinator), since=4, factory=list)

    def check(self) -> None:
        found: list[Coordinator | FindCoordinatorResponse] = [self, *self.coordinators]
        for each in found:
            check_address(each.node_id, each.port, -1 if each.error_code else 0)


@message(api_key=10, versions=(0, 6), flexible_from=3)
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """Find the coordinator of one key up to v3, of several keys from v4."""

    key: str = field(STRING, until=3, default="")
    key_type: int = field(INT8, since=1, default=GROUP_KEY)
    coordinator_keys: list[str] = field(array_of(STRING), since=4, factory=list)


@struct
class AddPartitionsToTxnPartitionResult:
    """Outcome of one partition in AddPartitionsToTxn."""

    partition_index: int = field(INT32)
    partition_error_code: int = field(INT16)


@struct
class AddPartitionsToTxnTopicResult:
    """Partitions of one topic."""

    name: str = field(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        array_of(AddPartitionsToTxnPartitionResult)
    )


@message(api_key=24, versions=(0, 3), flexible_from=3, client_pauses_from=1)
class AddPartitionsToTxnResponse(Message):
    """Outcome per partition: all partitions are added, or none."""

    throttle_time_ms: int = field(INT32, default=0)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array_of(AddPartitionsToTxnTopicResult)
    )


@struct
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: Sequence[int] = field(array_of(INT32))


@message(api_key=24, versions=(0, 3), flexible_from=3)
class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    """Add partitions to the transaction, before records are written to them."""

    v3_and_below_transactional_id: str = field(STRING)
    v3_and_below_producer_id: int = field(INT64)
    v3_and_below_producer_epoch: int = field(INT16)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(array_of(AddPartitionsToTxnTopic))


@message(api_key=25, versions=(0, 4), flexible_from=3, client_pauses_from=1)
class AddOffsetsToTxnResponse(Message):
    """Outcome of adding a consumer group."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)


@message(api_key=25, versions=(0, 4), flexible_from=3)
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    """Add the offsets of a consumer group to the transaction."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    group_id: str = field(STRING)


@struct
class TxnOffsetCommitResponsePartition:
    """Outcome of one partition in TxnOffsetCommit."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct
class TxnOffsetCommitResponseTopic:
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[TxnOffsetCommitResponsePartition] = field(array_of(TxnOffsetCommitResponsePartition))


@message(api_key=28, versions=(0, 5), flexible_from=3, client_pauses_from=1)
class TxnOffsetCommitResponse(Message):
    """Outcome per partition."""

    throttle_time_ms: int = field(INT32, default=0)
    topics: list[TxnOffsetCommitResponseTopic] = field(array_of(TxnOffsetCommitResponseTopic))


@struct
class TxnOffsetCommitRequestPartition:
    """Partition, with the offset to commit."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=2, ignorable=True, default=-1)
    committed_metadata: str | None = field(NULLABLE_STRING)


@struct
class TxnOffsetCommitRequestTopic:
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[TxnOffsetCommitRequestPartition] = field(array_of(TxnOffsetCommitRequestPartition))


@message(api_key=28, versions=(0, 5), flexible_from=3)
class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    """Commit offsets with the transaction; sent to the coordinator of the group.

    A *generation_id* of -1 with a *member_id* of "" skips the check of the group membership.
    """

    transactional_id: str = field(STRING)
    group_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    generation_id: int = field(INT32, since=3, default=-1)
    member_id: str = field(STRING, since=3, default="")
    group_instance_id: str | None = field(NULLABLE_STRING, since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(array_of(TxnOffsetCommitRequestTopic))


@message(api_key=26, versions=(0, 5), flexible_from=3, client_pauses_from=1)
class EndTxnResponse(Message):
    """Outcome of EndTxn; from v5 on with the producer id and epoch of the next transaction."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    producer_id: int = field(INT64, since=5, ignorable=True, default=-1)
    producer_epoch: int = field(INT16, since=5, ignorable=True, default=-1)

    def check(self) -> None:
        check_range("producer_id", self.producer_id, -1)
        check_range("producer_epoch", self.producer_epoch, -1)


@message(api_key=26, versions=(0, 5), flexible_from=3)
class EndTxnRequest(Request[EndTxnResponse]):
    """Commit or abort the transaction."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOL)


@struct
class TopicData:
    """Partitions of one topic in a transaction."""

    topic: str = field(STRING)
    partitions: Sequence[int] = field(array_of(INT32))


@struct
class TransactionState:
    """Transaction of one transactional id; *transaction_start_time_ms* is -1 without an open transaction."""

    error_code: int = field(INT16, default=0)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING, default="")
    transaction_timeout_ms: int = field(INT32, default=0)
    transaction_start_time_ms: int = field(INT64, default=0)
    producer_id: int = field(INT64, default=0)
    producer_epoch: int = field(INT16, default=0)
    topics: list[TopicData] = field(array_of(TopicData), factory=list)


@message(api_key=65, versions=(0, 0), flexible_from=0, client_pauses_from=0, large=True)
class DescribeTransactionsResponse(Message):
    """State or error of each transactional id."""

    throttle_time_ms: int = field(INT32, default=0)
    transaction_states: list[TransactionState] = field(array_of(TransactionState))


@message(api_key=65, versions=(0, 0), flexible_from=0)
class DescribeTransactionsRequest(Request[DescribeTransactionsResponse]):
    """Describe transactional ids; sent to their coordinator."""

    transactional_ids: list[str] = field(array_of(STRING))
