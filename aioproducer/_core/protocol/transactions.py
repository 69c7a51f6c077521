"""AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn: what a transactional producer asks its coordinators.

KIP-98, KIP-320 (v2 of TxnOffsetCommit: leader epochs), KIP-482 (v3: flexible), KIP-447 (v3 of TxnOffsetCommit: the
consumer that the offsets are of), KIP-360 (v2: PRODUCER_FENCED), KIP-890 (v4: TRANSACTION_ABORTABLE; v5, below
`transaction.version` 2 not to be used: EndTxn answers the next epoch, TxnOffsetCommit adds the group by itself).

Versions 4 and 5 of AddPartitionsToTxn are the brokers' own.
"""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer._core.protocol.fields import field, struct
from aioproducer._core.protocol.schema import Message, Request, check_range, checked_by, message
from aioproducer._core.protocol.types import BOOL, INT16, INT32, INT64, NULLABLE_STRING, STRING, array_of


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
def _check(answer: EndTxnResponse) -> None:
    check_range("producer_id", answer.producer_id, -1)
    check_range("producer_epoch", answer.producer_epoch, -1)


@message(api_key=26, versions=(0, 5), flexible_from=3)
class EndTxnRequest(Request[EndTxnResponse]):
    """Commit the transaction, or abort it."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOL)
