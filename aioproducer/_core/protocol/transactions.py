"""Requests to coordinators: FindCoordinator, the four of a transaction, and DescribeTransactions.

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
    checked_by,
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
"""Types of keys."""


@struct
class Coordinator:
    """The coordinator of one key."""

    key: str = field(STRING)
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(NULLABLE_TEXT, ignorable=True, default="")


@message(api_key=10, versions=(0, 6), flexible_from=3, client_pauses_from=2, large=True)
class FindCoordinatorResponse(Message):
    """One coordinator up to v3, an array of them after that."""

    throttle_time_ms: int = field(INT32, since=1, ignorable=True, default=0)
    error_code: int = field(INT16, until=3, default=0)
    error_message: str | None = field(NULLABLE_TEXT, since=1, until=3, ignorable=True, default="")
    node_id: int = field(INT32, until=3, default=0)
    host: str = field(STRING, until=3, default="")
    port: int = field(INT32, until=3, default=0)
    coordinators: list[Coordinator] = field(array_of(Coordinator), since=4, factory=list)


@checked_by(FindCoordinatorResponse)
def _check_find_coordinator(answer: FindCoordinatorResponse) -> None:
    found: list[Coordinator | FindCoordinatorResponse] = [answer, *answer.coordinators]
    for each in found:
        check_address(each.node_id, each.port, -1 if each.error_code else 0)


@message(api_key=10, versions=(0, 6), flexible_from=3)
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """Ask for the coordinator of one key up to v3, of many after that."""

    key: str = field(STRING, until=3, default="")
    key_type: int = field(INT8, since=1, default=GROUP_KEY)
    coordinator_keys: list[str] = field(array_of(STRING), since=4, factory=list)


@struct
class AddPartitionsToTxnPartitionResult:
    """Whether one partition was added."""

    partition_index: int = field(INT32)
    partition_error_code: int = field(INT16)


@struct
class AddPartitionsToTxnTopicResult:
    """The partitions of one topic."""

    name: str = field(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        array_of(AddPartitionsToTxnPartitionResult)
    )


@message(api_key=24, versions=(0, 3), flexible_from=3, client_pauses_from=1)
class AddPartitionsToTxnResponse(Message):
    """The outcome per partition: all are added, or none is."""

    throttle_time_ms: int = field(INT32, default=0)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array_of(AddPartitionsToTxnTopicResult)
    )


@struct
class AddPartitionsToTxnTopic:
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: Sequence[int] = field(array_of(INT32))


@message(api_key=24, versions=(0, 3), flexible_from=3)
class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    """Let these partitions be part of the transaction, before anything is written to them."""

    v3_and_below_transactional_id: str = field(STRING)
    v3_and_below_producer_id: int = field(INT64)
    v3_and_below_producer_epoch: int = field(INT16)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(array_of(AddPartitionsToTxnTopic))


@message(api_key=25, versions=(0, 4), flexible_from=3, client_pauses_from=1)
class AddOffsetsToTxnResponse(Message):
    """Whether the group was added."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)


@message(api_key=25, versions=(0, 4), flexible_from=3)
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    """Let the offsets of a consumer group be part of the transaction."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    group_id: str = field(STRING)


@struct
class TxnOffsetCommitResponsePartition:
    """Whether one partition's offset was taken."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct
class TxnOffsetCommitResponseTopic:
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[TxnOffsetCommitResponsePartition] = field(array_of(TxnOffsetCommitResponsePartition))


@message(api_key=28, versions=(0, 5), flexible_from=3, client_pauses_from=1)
class TxnOffsetCommitResponse(Message):
    """The outcome per partition."""

    throttle_time_ms: int = field(INT32, default=0)
    topics: list[TxnOffsetCommitResponseTopic] = field(array_of(TxnOffsetCommitResponseTopic))


@struct
class TxnOffsetCommitRequestPartition:
    """A partition, and the offset that the group has come to."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=2, ignorable=True, default=-1)
    committed_metadata: str | None = field(NULLABLE_STRING)


@struct
class TxnOffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[TxnOffsetCommitRequestPartition] = field(array_of(TxnOffsetCommitRequestPartition))


@message(api_key=28, versions=(0, 5), flexible_from=3)
class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    """Commit these offsets with the transaction; the group's coordinator is asked.

    A *generation_id* of -1 and a *member_id* of "" skip the look at whether the consumer is still in the group.
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
    """Whether it ends; from v5 on with the id and epoch of the next transaction."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    producer_id: int = field(INT64, since=5, ignorable=True, default=-1)
    producer_epoch: int = field(INT16, since=5, ignorable=True, default=-1)


@checked_by(EndTxnResponse)
def _check_end_txn(answer: EndTxnResponse) -> None:
    check_range("producer_id", answer.producer_id, -1)
    check_range("producer_epoch", answer.producer_epoch, -1)


@message(api_key=26, versions=(0, 5), flexible_from=3)
class EndTxnRequest(Request[EndTxnResponse]):
    """Commit the transaction, or abort it."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOL)


@struct
class TopicData:
    """The partitions of one topic that are in the transaction."""

    topic: str = field(STRING)
    partitions: Sequence[int] = field(array_of(INT32))


@struct
class TransactionState:
    """One id's transaction; *transaction_start_time_ms* is -1 if there is none."""

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
    """The states, or an error for each id that has none."""

    throttle_time_ms: int = field(INT32, default=0)
    transaction_states: list[TransactionState] = field(array_of(TransactionState))


@message(api_key=65, versions=(0, 0), flexible_from=0)
class DescribeTransactionsRequest(Request[DescribeTransactionsResponse]):
    """Describe these ids; their coordinator is asked."""

    transactional_ids: list[str] = field(array_of(STRING))
