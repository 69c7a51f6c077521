"""Values that no broker may send: a response that has one is refused before any of it is used."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from aioproducer._core.protocol.consumer import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from aioproducer._core.protocol.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer._core.protocol.produce import (
    HIGHEST_BASE_OFFSET,
    BatchIndexAndErrorMessage,
    InitProducerIdResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer._core.protocol.schema import Message, decode_response, encode_response
from aioproducer._core.protocol.transactions import Coordinator, EndTxnResponse, FindCoordinatorResponse
from aioproducer.errors import ProtocolError
from tests.cases import for_each

PRODUCE = ProduceResponse(
    responses=[
        TopicProduceResponse(
            partition_responses=[
                PartitionProduceResponse(
                    index=0,
                    error_code=87,
                    base_offset=-1,
                    current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=1),
                    record_errors=[BatchIndexAndErrorMessage(batch_index=0)],
                )
            ]
        )
    ],
    node_endpoints=[NodeEndpoint(node_id=1, host="b", port=9092)],
)
METADATA = MetadataResponse(
    brokers=[
        MetadataResponseBroker(node_id=1, host="b", port=9092),
        MetadataResponseBroker(node_id=2, host="b", port=9093),
    ],
    topics=[
        MetadataResponseTopic(
            name="orders",
            partitions=[
                MetadataResponsePartition(
                    partition_index=0, leader_id=-1, leader_epoch=-1, replica_nodes=(), isr_nodes=()
                )
            ],
        )
    ],
)
FOUND = FindCoordinatorResponse(coordinators=[Coordinator(key="k", node_id=1, host="b", port=9092)])
NOT_FOUND = FindCoordinatorResponse(
    coordinators=[Coordinator(key="k", node_id=-1, host="", port=-1, error_code=15)]
)
PRODUCER_ID = InitProducerIdResponse(producer_id=0, producer_epoch=0)
NO_PRODUCER_ID = InitProducerIdResponse(error_code=14, producer_id=-1, producer_epoch=-1)
END = EndTxnResponse()
OFFSETS = ListOffsetsResponse(
    topics=[
        ListOffsetsTopicResponse(name="orders", partitions=[ListOffsetsPartitionResponse(partition_index=0)])
    ]
)
ACKNOWLEDGED = deepcopy(PRODUCE)
ACKNOWLEDGED.responses[0].partition_responses[0] = PartitionProduceResponse(
    index=0, error_code=0, base_offset=HIGHEST_BASE_OFFSET
)


def partition(answer: Any) -> Any:
    """Return the one partition in *answer*."""
    if isinstance(answer, ProduceResponse):
        return answer.responses[0].partition_responses[0]
    return answer.topics[0].partitions[0]


def read(answer: Message) -> Message:
    """Return *answer* as a client reads it in its highest version."""
    version = answer.VERSIONS[1]
    return decode_response(type(answer), version, bytes(encode_response(answer, version, 1)[4:]))[0]


@for_each(
    "answer",
    [PRODUCE, ACKNOWLEDGED, METADATA, FOUND, NOT_FOUND, PRODUCER_ID, NO_PRODUCER_ID, END, OFFSETS],
)
def test_values_at_the_edge_are_read(answer: Message) -> None:
    assert read(answer) == answer


Change = tuple[Message, Callable[[Any], Any], str, int]
CHANGES: list[Change] = [
    (PRODUCE, lambda each: each, "throttle_time_ms", -1),
    (PRODUCE, partition, "index", -1),
    (PRODUCE, partition, "base_offset", -2),
    (PRODUCE, partition, "base_offset", HIGHEST_BASE_OFFSET + 1),
    (PRODUCE, partition, "log_append_time_ms", -2),
    (PRODUCE, partition, "log_start_offset", -2),
    (PRODUCE, lambda each: partition(each).current_leader, "leader_id", -2),
    (PRODUCE, lambda each: partition(each).current_leader, "leader_epoch", -2),
    (PRODUCE, lambda each: partition(each).record_errors[0], "batch_index", -1),
    (PRODUCE, lambda each: each.node_endpoints[0], "node_id", -1),
    (PRODUCE, lambda each: each.node_endpoints[0], "port", 65536),
    (METADATA, lambda each: each.brokers[0], "node_id", -1),
    (METADATA, lambda each: each.brokers[0], "node_id", 2),
    (METADATA, lambda each: each.brokers[0], "port", -1),
    (METADATA, lambda each: each.brokers[0], "port", 65536),
    (METADATA, partition, "partition_index", -1),
    (METADATA, partition, "leader_id", -2),
    (METADATA, partition, "leader_epoch", -2),
    (FOUND, lambda each: each.coordinators[0], "node_id", -1),
    (FOUND, lambda each: each.coordinators[0], "port", 65536),
    (NOT_FOUND, lambda each: each.coordinators[0], "node_id", -2),
    (PRODUCER_ID, lambda each: each, "producer_id", -1),
    (PRODUCER_ID, lambda each: each, "producer_epoch", -1),
    (NO_PRODUCER_ID, lambda each: each, "producer_id", -2),
    (PRODUCER_ID, lambda each: each, "ongoing_txn_producer_id", -2),
    (PRODUCER_ID, lambda each: each, "ongoing_txn_producer_epoch", -2),
    (END, lambda each: each, "producer_id", -2),
    (END, lambda each: each, "producer_epoch", -2),
    (OFFSETS, partition, "partition_index", -1),
    (OFFSETS, partition, "timestamp", -2),
    (OFFSETS, partition, "offset", -2),
    (OFFSETS, partition, "leader_epoch", -2),
]


@for_each(("answer", "find", "field", "value"), CHANGES)
def test_value_out_of_range_is_a_protocol_error(
    answer: Message, find: Callable[[Any], Any], field: str, value: int
) -> None:
    changed = deepcopy(answer)
    setattr(find(changed), field, value)
    with pytest.raises(ProtocolError, match=f"{type(answer).__name__} v.*{field}={value} "):
        read(changed)
