"""Responses with values that no broker may send: the connection is closed, the request is sent again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer._core.protocol.metadata import MetadataResponse, MetadataResponsePartition
from aioproducer._core.protocol.produce import HIGHEST_BASE_OFFSET, PartitionProduceResponse, ProduceResponse
from aioproducer._core.protocol.schema import (
    decode_start,
    encode_response,
    read_correlation_id,
    response_body,
)
from tests.cases import for_each
from tests.scenarios.rig import TOPIC, cluster as open_cluster, now, producing, scenario, values


def changed(response_cls: type[Any], change: Callable[[Any], None]) -> Callable[[bytes], bytes]:
    """Return a function that applies *change* to a response in its highest version."""
    version = response_cls.VERSIONS[1]

    def rewrite(frame: bytes) -> bytes:
        payload = frame[4:]
        answer, _ = decode_start(
            response_cls, version, payload, response_body(response_cls, version, payload)
        )
        change(answer)
        return bytes(encode_response(answer, version, read_correlation_id(payload)))

    return rewrite


def in_each_partition(**fields: int) -> Callable[[bytes], bytes]:
    """Return a function that sets *fields* of each partition of a Produce response."""

    def change(answer: ProduceResponse) -> None:
        for topic in answer.responses:
            for partition in topic.partition_responses:
                for name, value in fields.items():
                    setattr(partition, name, value)

    return changed(ProduceResponse, change)


def with_throttle(answer: ProduceResponse) -> None:
    answer.throttle_time_ms = -5


def with_unasked(answer: ProduceResponse) -> None:
    answer.responses[0].partition_responses.append(
        PartitionProduceResponse(index=2**31 - 1, error_code=0, base_offset=0)
    )


PRODUCE = {
    "highest base offset": in_each_partition(base_offset=2**63 - 1),
    "offset of the last record": in_each_partition(base_offset=2**63 - 2),
    "first base offset out of range": in_each_partition(base_offset=HIGHEST_BASE_OFFSET + 1),
    "negative base offset": in_each_partition(base_offset=-2),
    "lowest base offset": in_each_partition(base_offset=-(2**63)),
    "append time": in_each_partition(log_append_time_ms=-(2**63)),
    "start offset": in_each_partition(log_start_offset=-9),
    "partition": in_each_partition(index=-1),
    "refusal": in_each_partition(error_code=87, base_offset=2**63 - 1),
    "throttle time": changed(ProduceResponse, with_throttle),
    "unasked partition": changed(ProduceResponse, with_unasked),
}


@for_each("rewrite", PRODUCE.values())
@for_each("count", [1, 3, 200])
@scenario
async def test_batch_is_sent_again_when_its_answer_is_out_of_range(
    count: int, rewrite: Callable[[bytes], bytes]
) -> None:
    async with producing(partitions=3, linger_ms=5, request_timeout_ms=1_000, delivery_timeout_ms=9_000) as (
        producer,
        opened,
    ):
        rule = opened.on("produce", topic=TOPIC, times=1).rewrite(rewrite)
        sent = [
            producer.send_nowait(TOPIC, b"%d" % each, key=b"k", headers={"h": b"1"}, partition=each % 3)
            for each in range(count)
        ]
        many = await producer.send_many(TOPIC, [b"many"] * count, partition=0)
        assert rule.hits == 1
        offsets = [(await each).offset for each in sent] + [many.offset(each) for each in range(count)]
        assert all(-1 <= each < 2 * count for each in offsets)
        assert sum(len(values(opened, partition)) for partition in range(3)) == 2 * count
        assert (await producer.send(TOPIC, b"next")).offset >= 0
        assert producer.state == "ready"


def with_partition(answer: MetadataResponse) -> None:
    answer.topics[0].partitions.append(
        MetadataResponsePartition(
            partition_index=-7, leader_id=1, leader_epoch=0, replica_nodes=(1,), isr_nodes=(1,)
        )
    )


def with_port(answer: MetadataResponse) -> None:
    answer.brokers[0].port = 70_000


def with_two_addresses(answer: MetadataResponse) -> None:
    answer.brokers[1].node_id = answer.brokers[0].node_id


@pytest.mark.parametrize("change", [with_partition, with_port, with_two_addresses])
@scenario
async def test_metadata_is_asked_again_when_it_is_out_of_range(
    change: Callable[[MetadataResponse], None],
) -> None:
    async with (
        open_cluster(brokers=2, partitions=2) as opened,
        Producer(opened.bootstrap_servers) as producer,
    ):
        rule = opened.on("metadata", topic=TOPIC, times=1).rewrite(changed(MetadataResponse, change))
        began_at = now()
        await producer.send_many(TOPIC, [b"a", b"b"], partitions=[0, 1])
        assert rule.hits == 1
        assert now() - began_at < 3
