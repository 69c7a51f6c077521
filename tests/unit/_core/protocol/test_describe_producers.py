from __future__ import annotations

from aioproducer._core.protocol.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from tests.unit._core.protocol.golden import check


def test_partitions_are_asked_about() -> None:
    request = DescribeProducersRequest(topics=[TopicRequest(name="o", partition_indexes=(0, 3))])
    check(request, 0, "02 02 6f 03 00000000 00000003 00 00")


def test_a_producer_tells_where_its_transaction_began() -> None:
    producer = ProducerState(
        producer_id=5,
        producer_epoch=2,
        last_sequence=9,
        last_timestamp=7,
        coordinator_epoch=0,
        current_txn_start_offset=4,
    )
    partition = PartitionResponse(partition_index=3, active_producers=[producer])
    wire = (
        "00000001 02 02 6f 02 00000003 0000 00 02"
        " 0000000000000005 00000002 00000009 0000000000000007 00000000 0000000000000004 00 00 00 00"
    )
    topics = [TopicResponse(name="o", partitions=[partition])]
    check(DescribeProducersResponse(throttle_time_ms=1, topics=topics), 0, wire)
