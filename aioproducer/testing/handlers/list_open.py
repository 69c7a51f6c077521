"""DescribeTransactions, ListTransactions, DescribeProducers: what those ask who look after transactions (KIP-664)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from aioproducer._core.clock import wall_ms
from aioproducer._core.protocol import admin, transactions as protocol
from aioproducer._core.protocol.admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from aioproducer.errors import InvalidRegularExpression
from aioproducer.testing.faults import Target
from aioproducer.testing.handlers.call import Call
from aioproducer.testing.handlers.transact import check_coordinator
from aioproducer.testing.refusal import Refused
from aioproducer.testing.state import ClusterState
from aioproducer.testing.transaction import Transaction, TransactionState


async def describe_transactions(
    call: Call, request: protocol.DescribeTransactionsRequest
) -> protocol.DescribeTransactionsResponse:
    """Describe transactional ids that this node coordinates."""
    return protocol.DescribeTransactionsResponse(
        transaction_states=[_described(call, each) for each in request.transactional_ids]
    )


def _described(call: Call, transactional_id: str) -> protocol.TransactionState:
    try:
        with call.strike.around():
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
    """List the transactional ids that this node coordinates."""
    unknown = sorted(set(request.state_filters) - set(TransactionState))
    try:
        with call.strike.around():
            found = [known for known in _coordinated(call) if _is_asked_for(known, request)]
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


def _coordinated(call: Call) -> Iterator[Transaction]:
    for known in call.state.coordinator.transactions.values():
        node = call.state.coordinator_node(known.transactional_id)
        if node is not None and node.node_id == call.node_id:
            yield known


def _is_asked_for(known: Transaction, request: admin.ListTransactionsRequest) -> bool:
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
        raise Refused(InvalidRegularExpression, f"{pattern!r}: {error}") from error


async def describe_producers(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Describe the producers of partitions that this node leads."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_producers(call, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def describe_producers_targets(request: DescribeProducersRequest, _state: ClusterState) -> Iterator[Target]:
    """Yield the partitions that are asked about."""
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield Target(topic.name, index)


def _producers(call: Call, topic: str, index: int) -> PartitionResponse:
    try:
        with call.strike.around(topic, index):
            log = call.state.led_partition(call.node_id, topic, index).log
    except Refused as refused:
        return PartitionResponse(
            partition_index=index, error_code=refused.code, error_message=refused.message
        )
    producers = []
    for producer_id, (epoch, last_sequence) in log.producers.known().items():
        first_offset = log.transactions.first_offset(producer_id)
        producers.append(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=epoch,
                last_sequence=last_sequence,
                coordinator_epoch=0,
                current_txn_start_offset=-1 if first_offset is None else first_offset,
            )
        )
    return PartitionResponse(partition_index=index, active_producers=producers)
