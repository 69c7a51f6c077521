"""Handlers for consumers without a group: ListOffsets and Fetch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from aioproducer._core.protocol import consumer as protocol
from aioproducer.errors import BrokerError, InvalidRequest, broker_error
from aioproducer.testing.faults import Refused, Target
from aioproducer.testing.log import PartitionLog
from aioproducer.testing.state import Call, ClusterState

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""Special timestamps of ListOffsets."""
READ_COMMITTED = 1
"""Isolation level of read_committed consumers (KIP-98)."""

OffsetOutOfRange: type[BrokerError] = broker_error(1)
FetchSessionIdNotFound: type[BrokerError] = broker_error(70)


async def list_offsets(call: Call, request: protocol.ListOffsetsRequest) -> protocol.ListOffsetsResponse:
    """Return the offsets for timestamps."""
    return protocol.ListOffsetsResponse(
        topics=[
            protocol.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _offset_for(call, topic.name, requested, request.isolation_level)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_for(
    call: Call, topic: str, requested: protocol.ListOffsetsPartition, isolation_level: int
) -> protocol.ListOffsetsPartitionResponse:
    response = protocol.ListOffsetsPartitionResponse(partition_index=requested.partition_index)
    try:
        with call.faults.around(topic, requested.partition_index):
            partition = call.state.led_partition(
                call.node_id, topic, requested.partition_index, leader_epoch=requested.current_leader_epoch
            )
            response.offset, response.timestamp = _find(
                partition.log, requested.timestamp, call.version, isolation_level
            )
    except Refused as refused:
        return protocol.ListOffsetsPartitionResponse(
            partition_index=requested.partition_index, error_code=refused.code
        )
    if call.version >= 4:  # with leader epochs (KIP-320)
        response.leader_epoch = partition.leader_epoch
    return response


def _find(log: PartitionLog, timestamp_ms: int, version: int, isolation_level: int) -> tuple[int, int]:
    nowhere = (-1, -1)
    if timestamp_ms >= 0:
        return log.find_time(timestamp_ms) or nowhere
    if timestamp_ms == LATEST:
        return log.last_stable_offset if isolation_level == READ_COMMITTED else log.end_offset, -1
    if timestamp_ms == EARLIEST:
        return 0, -1
    if timestamp_ms == MAX_TIMESTAMP and version >= 7:  # KIP-734
        return log.find_latest_time() or nowhere
    raise Refused(InvalidRequest, f"{timestamp_ms} is no time")


async def fetch(call: Call, request: protocol.FetchRequest) -> protocol.FetchResponse:
    """Respond once `min_bytes` can be read, a partition has an error, or `max_wait_ms` has passed."""
    if request.session_id:  # this broker has no fetch sessions (KIP-227)
        return protocol.FetchResponse(error_code=FetchSessionIdNotFound.code, responses=[])
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.max_wait_ms / 1000
    changed = asyncio.Event()
    logs = _logs(call, request)
    for log in logs:
        log.watchers.add(changed.set)
    try:
        while True:
            changed.clear()
            response = _read(call, request)
            if _is_enough(response, request.min_bytes) or loop.time() >= deadline:
                return response
            try:
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
            except TimeoutError:
                return _read(call, request)
    finally:
        for log in logs:
            log.watchers.discard(changed.set)


def fetch_targets(request: protocol.FetchRequest, _state: ClusterState) -> Iterator[Target]:
    """Yield the partitions of a fetch."""
    for topic in request.topics:
        for requested in topic.partitions:
            yield Target(topic.topic, requested.partition)


def _logs(call: Call, request: protocol.FetchRequest) -> list[PartitionLog]:
    logs = []
    for topic, index in fetch_targets(request, call.state):
        known = call.state.topics.get(topic or "")
        if known is not None and index is not None and 0 <= index < len(known.partitions):
            logs.append(known.partitions[index].log)
    return logs


def _is_enough(response: protocol.FetchResponse, min_bytes: int) -> bool:
    parts = [part for topic in response.responses for part in topic.partitions]
    size = sum(len(part.records or b"") for part in parts)
    return size >= min_bytes or any(part.error_code for part in parts)


def _read(call: Call, request: protocol.FetchRequest) -> protocol.FetchResponse:
    left = request.max_bytes
    responses = []
    for topic in request.topics:
        parts = []
        for requested in topic.partitions:
            part = _read_partition(
                call,
                topic.topic,
                requested,
                left,
                first=left == request.max_bytes,
                read_committed=request.isolation_level == READ_COMMITTED,
            )
            left -= len(part.records or b"")
            parts.append(part)
        responses.append(protocol.FetchableTopicResponse(topic=topic.topic, partitions=parts))
    return protocol.FetchResponse(responses=responses)


def _read_partition(
    call: Call,
    topic: str,
    requested: protocol.FetchPartition,
    left: int,
    *,
    first: bool,
    read_committed: bool,
) -> protocol.PartitionData:
    max_bytes = min(requested.partition_max_bytes, left)
    try:
        with call.faults.around(topic, requested.partition):
            log = _log_with_offset(call, topic, requested)
            until = log.last_stable_offset if read_committed else log.end_offset
            records = log.read(requested.fetch_offset, max_bytes, at_least_one=first, until=until)
    except Refused as refused:
        return protocol.PartitionData(
            partition_index=requested.partition, error_code=refused.code, high_watermark=-1, records=b""
        )
    return protocol.PartitionData(
        partition_index=requested.partition,
        high_watermark=log.end_offset,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=0,
        aborted_transactions=[
            protocol.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in log.transactions.aborted(requested.fetch_offset, until)
        ]
        if read_committed
        else None,
        records=records,
    )


def _log_with_offset(call: Call, topic: str, requested: protocol.FetchPartition) -> PartitionLog:
    partition = call.state.led_partition(
        call.node_id, topic, requested.partition, leader_epoch=requested.current_leader_epoch
    )
    if not 0 <= requested.fetch_offset <= partition.log.end_offset:
        raise Refused(OffsetOutOfRange, f"the log ends at {partition.log.end_offset}")
    return partition.log
