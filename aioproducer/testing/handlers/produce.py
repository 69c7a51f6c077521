"""Handler of Produce, which appends or refuses each batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from aioproducer import errors
from aioproducer._core.clock import wall_ms
from aioproducer._core.protocol import produce as protocol
from aioproducer.testing.coordinator import Identity
from aioproducer.testing.faults import CloseConnection, Refused, Target
from aioproducer.testing.log import Appended, PartitionLog, is_zstd, transactional_stamp
from aioproducer.testing.producer_state import Stamp
from aioproducer.testing.state import Call, ClusterState

ZSTD_SINCE = 7
"""First version of Produce with zstd (KIP-110)."""
ADDS_PARTITIONS_SINCE = 12
"""First version of Produce that adds partitions to the transaction (KIP-890)."""


async def produce(call: Call, request: protocol.ProduceRequest) -> protocol.ProduceResponse | None:
    """Append the batches; with acks=0 an error closes the connection."""
    if request.transactional_id is not None and call.version >= ADDS_PARTITIONS_SINCE:
        await call.state.timers.wait_until_complete(request.transactional_id)
    response = protocol.ProduceResponse(
        responses=[
            protocol.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    _response_for(call, request, _name(topic, call.state), data)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
    answers = [answer for topic in response.responses for answer in topic.partition_responses]
    if request.acks == 0:
        if any(answer.error_code for answer in answers):
            raise CloseConnection
        return None
    hinted = {answer.current_leader.leader_id for answer in answers}
    response.node_endpoints = [
        protocol.NodeEndpoint(node_id=node.node_id, host=node.address.host, port=node.address.port)
        for node in call.state.alive_nodes()
        if node.node_id in hinted
    ]
    return response


def produce_targets(request: protocol.ProduceRequest, state: ClusterState) -> Iterator[Target]:
    """Yield the partitions of the batches; a topic with an unknown id has none."""
    for topic in request.topic_data:
        name = _name(topic, state)
        if name is not None:
            for data in topic.partition_data:
                yield Target(name, data.index)


def _name(topic: protocol.TopicProduceData, state: ClusterState) -> str | None:
    return topic.name or state.names.get(topic.topic_id)


def _response_for(
    call: Call, request: protocol.ProduceRequest, topic: str | None, data: protocol.PartitionProduceData
) -> protocol.PartitionProduceResponse:
    if topic is None:
        return _refusal(call, "", data.index, Refused(errors.UnknownTopicId))
    try:
        with call.faults.around(topic, data.index):
            appended = _append(call, request, topic, data)
    except Refused as refused:
        return _refusal(call, topic, data.index, refused)
    return protocol.PartitionProduceResponse(
        index=data.index,
        error_code=0,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=0,
    )


def _append(
    call: Call, request: protocol.ProduceRequest, topic: str, data: protocol.PartitionProduceData
) -> Appended:
    if request.acks not in {-1, 0, 1}:
        raise Refused(errors.InvalidRequiredAcks, f"acks cannot be {request.acks}")
    partition = call.state.led_partition(call.node_id, topic, data.index)
    if data.records is None:
        raise Refused(errors.InvalidRecord, "there must be exactly one record batch for each partition")
    if call.version < ZSTD_SINCE and is_zstd(data.records):
        raise Refused(errors.UnsupportedCompressionType, f"zstd needs Produce version {ZSTD_SINCE}")
    stamp = transactional_stamp(data.records)
    if stamp is not None:
        _admit(call, request, partition.log, Target(topic, data.index), stamp)
    return partition.log.append(
        data.records,
        leader_epoch=partition.leader_epoch,
        max_bytes=call.state.max_bytes(topic),
        now_ms=wall_ms(),
    )


def _admit(
    call: Call, request: protocol.ProduceRequest, log: PartitionLog, target: Target, stamp: Stamp
) -> None:
    """Refuse the first batch of a transaction in a partition that is not part of it (KIP-890)."""
    if request.transactional_id is None:
        raise Refused(errors.TransactionalIdAuthorizationFailed, "a batch of a transaction needs its id")
    if log.has_open_transaction(stamp.producer_id, stamp.epoch):
        return
    adds = call.version >= ADDS_PARTITIONS_SINCE
    log.producers.begins(stamp, from_zero=adds)
    coordinator, identity = call.state.coordinator, Identity(stamp.producer_id, stamp.epoch)
    try:
        if adds:
            coordinator.add(request.transactional_id, identity, partitions=[target], now_ms=wall_ms())
        else:
            coordinator.verify(request.transactional_id, identity, target)
    except Refused as refused:
        raise Refused(_error_code(refused.code, call.version), refused.message) from refused


def _error_code(code: int, version: int) -> type[errors.BrokerError]:
    """Return the error of the partition for an error code of the transaction coordinator."""
    if code == errors.ProducerFenced.code:
        return errors.InvalidProducerEpoch
    if code == errors.ConcurrentTransactions.code and version < ADDS_PARTITIONS_SINCE:
        return errors.NotEnoughReplicas
    if code == errors.TransactionAbortable.code and version < 11:  # KIP-890
        return errors.InvalidTxnState
    return errors.broker_error(code)


def _refusal(call: Call, topic: str, index: int, refused: Refused) -> protocol.PartitionProduceResponse:
    response = protocol.PartitionProduceResponse(
        index=index,
        error_code=refused.code,
        base_offset=-1,
        record_errors=[
            protocol.BatchIndexAndErrorMessage(batch_index=position, batch_index_error_message=message)
            for position, message in refused.record_errors.items()
        ],
        error_message=refused.message,
    )
    if (
        call.version >= 10 and refused.code == errors.NotLeaderOrFollower.code
    ):  # names the new leader (KIP-951)
        with suppress(Refused):  # a rule may use this error for a missing partition
            partition = call.state.partition(topic, index)
            response.current_leader = protocol.LeaderIdAndEpoch(
                leader_id=partition.leader, leader_epoch=partition.leader_epoch
            )
    return response
