"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn: what a producer asks the transaction coordinator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager

from aioproducer._core.clock import wall_ms
from aioproducer._core.protocol.produce import InitProducerIdRequest, InitProducerIdResponse
from aioproducer._core.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
)
from aioproducer.errors import InvalidProducerEpoch, NotCoordinator, ProducerFenced, broker_error
from aioproducer.testing.faults import Target
from aioproducer.testing.handlers.call import Call
from aioproducer.testing.refusal import Refused
from aioproducer.testing.state import ClusterState
from aioproducer.testing.transaction import Identity

FENCED_SINCE = 2
"""From this version on a client is told of PRODUCER_FENCED, instead of INVALID_PRODUCER_EPOCH (KIP-588)."""
FENCED_SINCE_ON_INIT = 4
BUMPS_EPOCH_SINCE = 5
"""The version of EndTxn (KIP-890)."""

OPERATION_NOT_ATTEMPTED = broker_error(55).code


async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Give out a new id, or, of a transactional id, the next epoch."""
    try:
        with call.strike.around():
            producer_id, epoch = _init(call, request)
    except Refused as refused:
        return InitProducerIdResponse(
            error_code=_told(refused, call, since=FENCED_SINCE_ON_INIT), producer_epoch=-1
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def _init(call: Call, request: InitProducerIdRequest) -> Identity:
    if request.transactional_id is None:  # without one, nobody carries on an old id
        return Identity(next(call.state.new_producer_ids), 0)
    check_coordinator(call, request.transactional_id)
    own = Identity(request.producer_id, request.producer_epoch) if request.producer_id >= 0 else None
    return call.state.coordinator.init(request.transactional_id, request.transaction_timeout_ms, own)


async def add_partitions_to_txn(call: Call, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Add all of the partitions, or none of them."""
    targets = list(add_partitions_to_txn_targets(request, call.state))
    codes = _add_partitions(call, request, targets)
    by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = defaultdict(list)
    for topic, index in targets:
        by_topic[topic or ""].append(
            AddPartitionsToTxnPartitionResult(
                partition_index=index or 0, partition_error_code=codes.get(Target(topic, index), 0)
            )
        )
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(name=name, results_by_partition=results)
            for name, results in by_topic.items()
        ]
    )


def add_partitions_to_txn_targets(
    request: AddPartitionsToTxnRequest, _state: ClusterState
) -> Iterator[Target]:
    """Yield the partitions that are added."""
    for topic in request.v3_and_below_topics:
        for index in topic.partitions:
            yield Target(topic.name, index)


def _add_partitions(
    call: Call, request: AddPartitionsToTxnRequest, targets: list[Target]
) -> dict[Target, int]:
    """Return the codes of the partitions that are refused."""
    codes: dict[Target, int] = {}
    entered: dict[Target, AbstractContextManager[None]] = {}
    for target in targets:
        around: AbstractContextManager[None] = call.strike.around(*target)
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
        return dict.fromkeys(targets, _told(refused, call, since=FENCED_SINCE))
    for target, around in entered.items():
        try:
            around.__exit__(None, None, None)
        except Refused as refused:
            codes[target] = refused.code
    return codes


async def add_offsets_to_txn(call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Let the offsets of a group be part of the transaction."""
    try:
        with call.strike.around():
            check_coordinator(call, request.transactional_id)
            call.state.coordinator.add(
                request.transactional_id,
                Identity(request.producer_id, request.producer_epoch),
                groups=[request.group_id],
                now_ms=wall_ms(),
            )
    except Refused as refused:
        return AddOffsetsToTxnResponse(error_code=_told(refused, call, since=FENCED_SINCE))
    return AddOffsetsToTxnResponse()


async def end_txn(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    """End the transaction; the answer comes when that is decided, which is before the markers are written."""
    try:
        with call.strike.around():
            check_coordinator(call, request.transactional_id)
            following = call.state.coordinator.end(
                request.transactional_id,
                Identity(request.producer_id, request.producer_epoch),
                committed=request.committed,
                bumps_epoch=call.version >= BUMPS_EPOCH_SINCE,
            )
    except Refused as refused:
        return EndTxnResponse(error_code=_told(refused, call, since=FENCED_SINCE))
    return EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.epoch)


def check_coordinator(call: Call, key: str) -> None:
    """Refuse what another node is to be asked."""
    node = call.state.coordinator_node(key)
    if node is None or node.node_id != call.node_id:
        raise Refused(NotCoordinator, f"node {call.node_id} does not coordinate {key!r}")


def _told(refused: Refused, call: Call, *, since: int) -> int:
    if refused.code == ProducerFenced.code and call.version < since:
        return InvalidProducerEpoch.code
    return refused.code
