"""Handlers of a group's coordinator: TxnOffsetCommit and OffsetFetch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from aioproducer import errors
from aioproducer._core.clock import wall_ms
from aioproducer._core.protocol import consumer, transactions
from aioproducer.testing.coordinator import Identity
from aioproducer.testing.faults import Refused, Target
from aioproducer.testing.handlers.transact import check_coordinator
from aioproducer.testing.state import Call, CommittedOffset, Consumer

ADDS_GROUP_SINCE = 5
"""First version of TxnOffsetCommit that adds the group to the transaction (KIP-890)."""

GROUP_ERRORS = {
    errors.ConcurrentTransactions.code: errors.CoordinatorNotAvailable.code,
    errors.ProducerFenced.code: errors.InvalidProducerEpoch.code,
}
"""Error code of the group's coordinator for an error code of the transaction coordinator."""


async def txn_offset_commit(
    call: Call, request: transactions.TxnOffsetCommitRequest
) -> transactions.TxnOffsetCommitResponse:
    """Add offsets to commit with a transaction."""
    if call.version >= ADDS_GROUP_SINCE:
        await call.state.timers.wait_until_complete(request.transactional_id)
    call.state.groups.used(request.group_id)
    try:
        _admit(call, request)
        refusal = 0
    except Refused as refused:
        refusal = GROUP_ERRORS.get(refused.code, refused.code)
    return transactions.TxnOffsetCommitResponse(
        topics=[
            transactions.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    transactions.TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=_take(call, request, topic.name, each, refusal),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _admit(call: Call, request: transactions.TxnOffsetCommitRequest) -> None:
    check_coordinator(call, request.group_id)
    identity = Identity(request.producer_id, request.producer_epoch)
    if call.version >= ADDS_GROUP_SINCE:
        call.state.coordinator.add(
            request.transactional_id, identity, groups=[request.group_id], now_ms=wall_ms()
        )
    else:
        try:
            call.state.coordinator.verify(request.transactional_id, identity, request.group_id)
        except Refused as refused:
            if refused.code == errors.TransactionAbortable.code and call.version < 4:  # KIP-890
                raise Refused(errors.InvalidTxnState, refused.message) from refused
            raise
    call.state.groups.check(
        request.group_id, Consumer(request.member_id, request.generation_id, request.group_instance_id)
    )


def _take(
    call: Call,
    request: transactions.TxnOffsetCommitRequest,
    topic: str,
    requested: transactions.TxnOffsetCommitRequestPartition,
    refusal: int,
) -> int:
    try:
        with call.faults.around(topic, requested.partition_index):
            call.state.partition(topic, requested.partition_index)
            if refusal:
                return refusal
            offset = CommittedOffset(
                requested.committed_offset, requested.committed_leader_epoch, requested.committed_metadata
            )
            target = Target(topic, requested.partition_index)
            call.state.groups.add(request.group_id, request.producer_id, target, offset)
    except Refused as refused:
        return refused.code
    return 0


async def offset_fetch(call: Call, request: consumer.OffsetFetchRequest) -> consumer.OffsetFetchResponse:
    """Return the offsets of one or several groups."""
    if call.version >= 8:  # with several groups (KIP-709)
        return consumer.OffsetFetchResponse(
            groups=[_of_group(call, request, group.group_id, group.topics) for group in request.groups]
        )
    group = _of_group(call, request, request.group_id, request.topics)
    names = ("partition_index", "committed_offset", "committed_leader_epoch", "metadata", "error_code")
    topics = [
        consumer.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                consumer.OffsetFetchResponsePartition(**{name: getattr(each, name) for name in names})
                for each in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return consumer.OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _of_group(
    call: Call,
    request: consumer.OffsetFetchRequest,
    group_id: str,
    requested: Sequence[consumer.OffsetFetchRequestTopic | consumer.OffsetFetchRequestTopics] | None,
) -> consumer.OffsetFetchResponseGroup:
    call.state.groups.used(group_id)
    try:
        with call.faults.around():
            check_coordinator(call, group_id)
    except Refused as refused:
        return consumer.OffsetFetchResponseGroup(group_id=group_id, error_code=refused.code)
    if requested is None:
        targets = call.state.groups.targets(group_id)
    else:
        targets = [Target(topic.name, index) for topic in requested for index in topic.partition_indexes]
    by_topic: dict[str, list[consumer.OffsetFetchResponsePartitions]] = defaultdict(list)
    for target in targets:
        by_topic[target.topic or ""].append(_offset(call, request, group_id, target))
    topics = [
        consumer.OffsetFetchResponseTopics(name=name, partitions=partitions)
        for name, partitions in by_topic.items()
    ]
    return consumer.OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def _offset(
    call: Call, request: consumer.OffsetFetchRequest, group_id: str, target: Target
) -> consumer.OffsetFetchResponsePartitions:
    index = target.partition or 0
    if request.require_stable and call.state.groups.is_pending(group_id, target):
        return consumer.OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=-1, error_code=errors.UnstableOffsetCommit.code
        )
    known = call.state.groups.committed(group_id, target)
    if known is None:
        return consumer.OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1)
    return consumer.OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=known.offset,
        committed_leader_epoch=known.leader_epoch,
        metadata=known.metadata,
    )
