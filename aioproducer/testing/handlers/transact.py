"""Handlers about transactions: of producers, and for their administration (KIP-664)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager

from aioproducer import errors
from aioproducer._core.clock import wall_ms
from aioproducer._core.protocol import admin, transactions as protocol
from aioproducer._core.protocol.produce import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.testing.coordinator import Identity, Transaction, TransactionState
from aioproducer.testing.faults import Refused, Target
from aioproducer.testing.state import Call, ClusterState

FENCED_SINCE = 2
"""First version with PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)."""

OPERATION_NOT_ATTEMPTED = errors.broker_error(55).code


async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Return a new producer id, or the next epoch of a transactional id."""
    try:
        with call.faults.around():
            producer_id, epoch = _init(call, request)
    except Refused as refused:
        return InitProducerIdResponse(error_code=_error_code(refused, call, since=4), producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def _init(call: Call, request: InitProducerIdRequest) -> Identity:
    if request.transactional_id is None:  # an old id belongs to a transactional id
        return Identity(next(call.state.new_producer_ids), 0)
    check_coordinator(call, request.transactional_id)
    own = Identity(request.producer_id, request.producer_epoch) if request.producer_id >= 0 else None
    return call.state.coordinator.init(request.transactional_id, request.transaction_timeout_ms, own)


async def add_partitions_to_txn(
    call: Call, request: protocol.AddPartitionsToTxnRequest
) -> protocol.AddPartitionsToTxnResponse:
    """Add all partitions of the request, or none."""
    targets = list(add_partitions_to_txn_targets(request, call.state))
    codes = _add_partitions(call, request, targets)
    by_topic: dict[str, list[protocol.AddPartitionsToTxnPartitionResult]] = defaultdict(list)
    for topic, index in targets:
        by_topic[topic or ""].append(
            protocol.AddPartitionsToTxnPartitionResult(
                partition_index=index or 0, partition_error_code=codes.get(Target(topic, index), 0)
            )
        )
    return protocol.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            protocol.AddPartitionsToTxnTopicResult(name=name, results_by_partition=results)
            for name, results in by_topic.items()
        ]
    )


def add_partitions_to_txn_targets(
    request: protocol.AddPartitionsToTxnRequest, _state: ClusterState
) -> Iterator[Target]:
    """Yield the partitions to add."""
    for topic in request.v3_and_below_topics:
        for index in topic.partitions:
            yield Target(topic.name, index)


def _add_partitions(
    call: Call, request: protocol.AddPartitionsToTxnRequest, targets: list[Target]
) -> dict[Target, int]:
    """Return the error codes of refused partitions."""
    codes: dict[Target, int] = {}
    entered: dict[Target, AbstractContextManager[None]] = {}
    for target in targets:
        around: AbstractContextManager[None] = call.faults.around(*target)
        try:
            around.__enter__()
            call.state.partition(target.topic or "", -1 if target.partition is None else target.partition)
        except Refused as refused:
            codes[target] = refused.code
        else:
            entered[target] = around
    if codes:
        return dict.fromkeys(targets, OPERATION_NOT_ATTEMPTED) | codes
    try:
        check_coordinator(call, request.v3_and_below_transactional_id)
        call.state.coordinator.add(
            request.v3_and_below_transactional_id,
            Identity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            partitions=targets,
            now_ms=wall_ms(),
        )
    except Refused as refused:
        return dict.fromkeys(targets, _error_code(refused, call, since=FENCED_SINCE))
    for target, around in entered.items():
        try:
            around.__exit__(None, None, None)
        except Refused as refused:
            codes[target] = refused.code
    return codes


async def add_offsets_to_txn(
    call: Call, request: protocol.AddOffsetsToTxnRequest
) -> protocol.AddOffsetsToTxnResponse:
    """Add the offsets of a group to the transaction."""
    try:
        with call.faults.around():
            check_coordinator(call, request.transactional_id)
            call.state.coordinator.add(
                request.transactional_id,
                Identity(request.producer_id, request.producer_epoch),
                groups=[request.group_id],
                now_ms=wall_ms(),
            )
    except Refused as refused:
        return protocol.AddOffsetsToTxnResponse(error_code=_error_code(refused, call, since=FENCED_SINCE))
    return protocol.AddOffsetsToTxnResponse()


async def end_txn(call: Call, request: protocol.EndTxnRequest) -> protocol.EndTxnResponse:
    """End the transaction; the response precedes the markers, as in Kafka."""
    try:
        with call.faults.around():
            check_coordinator(call, request.transactional_id)
            following = call.state.coordinator.end(
                request.transactional_id,
                Identity(request.producer_id, request.producer_epoch),
                committed=request.committed,
                bumps_epoch=call.version >= 5,  # KIP-890
            )
    except Refused as refused:
        return protocol.EndTxnResponse(error_code=_error_code(refused, call, since=FENCED_SINCE))
    return protocol.EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.epoch)


def check_coordinator(call: Call, key: str) -> None:
    """Refuse a key that another node coordinates."""
    if not _coordinates(call, key):
        raise Refused(errors.NotCoordinator, f"node {call.node_id} does not coordinate {key!r}")


def _coordinates(call: Call, key: str) -> bool:
    node = call.state.coordinator_node(key)
    return node is not None and node.node_id == call.node_id


def _error_code(refused: Refused, call: Call, *, since: int) -> int:
    if refused.code == errors.ProducerFenced.code and call.version < since:
        return errors.InvalidProducerEpoch.code
    return refused.code


async def describe_transactions(
    call: Call, request: protocol.DescribeTransactionsRequest
) -> protocol.DescribeTransactionsResponse:
    """Describe transactional ids of this node's coordinator."""
    return protocol.DescribeTransactionsResponse(
        transaction_states=[_described(call, each) for each in request.transactional_ids]
    )


def _described(call: Call, transactional_id: str) -> protocol.TransactionState:
    try:
        with call.faults.around():
            check_coordinator(call, transactional_id)
            known = call.state.coordinator.described(transactional_id)
    except Refused as refused:
        return protocol.TransactionState(error_code=refused.code, transactional_id=transactional_id)
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(known.partitions):
        by_topic[topic or ""].append(index or 0)
    return protocol.TransactionState(
        transactional_id=transactional_id,
        transaction_state=known.state,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=[protocol.TopicData(topic=name, partitions=indexes) for name, indexes in by_topic.items()],
    )


async def list_transactions(
    call: Call, request: admin.ListTransactionsRequest
) -> admin.ListTransactionsResponse:
    """List the transactional ids of this node's coordinator."""
    unknown = sorted(set(request.state_filters) - set(TransactionState))
    try:
        with call.faults.around():
            found = [
                known
                for known in call.state.coordinator.transactions.values()
                if _coordinates(call, known.transactional_id) and _matches_filters(known, request)
            ]
    except Refused as refused:
        return admin.ListTransactionsResponse(error_code=refused.code)
    return admin.ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            admin.TransactionState(
                transactional_id=known.transactional_id,
                producer_id=known.producer_id,
                transaction_state=known.state,
            )
            for known in found
        ],
    )


def _matches_filters(known: Transaction, request: admin.ListTransactionsRequest) -> bool:
    age_ms = wall_ms() - known.started_ms
    return (
        (not request.state_filters or known.state in request.state_filters)
        and (not request.producer_id_filters or known.producer_id in request.producer_id_filters)
        and (request.duration_filter < 0 or age_ms > request.duration_filter)
        and _matches(known.transactional_id, request.transactional_id_pattern)
    )


def _matches(transactional_id: str, pattern: str | None) -> bool:
    if not pattern:
        return True
    try:
        return re.fullmatch(pattern, transactional_id) is not None
    except re.error as error:
        raise Refused(errors.InvalidRegularExpression, f"{pattern!r}: {error}") from error


async def describe_producers(
    call: Call, request: admin.DescribeProducersRequest
) -> admin.DescribeProducersResponse:
    """Describe the producers of partitions that this node leads."""
    return admin.DescribeProducersResponse(
        topics=[
            admin.TopicResponse(
                name=topic.name,
                partitions=[_producers(call, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _producers(call: Call, topic: str, index: int) -> admin.PartitionResponse:
    try:
        with call.faults.around(topic, index):
            log = call.state.led_partition(call.node_id, topic, index).log
    except Refused as refused:
        return admin.PartitionResponse(
            partition_index=index, error_code=refused.code, error_message=refused.message
        )
    producers = [
        admin.ProducerState(
            producer_id=producer_id,
            producer_epoch=epoch,
            last_sequence=last_sequence,
            coordinator_epoch=0,
            current_txn_start_offset=-1 if first_offset is None else first_offset,
        )
        for producer_id, (epoch, last_sequence) in log.producers.known().items()
        for first_offset in [log.transactions.first_offset(producer_id)]
    ]
    return admin.PartitionResponse(partition_index=index, active_producers=producers)
