"""A description of the cluster from a broker's answer."""

from __future__ import annotations

from aioproducer._core.protocol.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.errors import LeaderNotAvailable, TopicAuthorizationFailed
from aioproducer.producer import _described as described
from aioproducer.types import BrokerDescription, ClusterDescription, PartitionDescription, TopicDescription


def partition(index: int, leader: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index, leader_id=leader, replica_nodes=[1, 2], isr_nodes=[2]
    )


def test_description_is_sorted_by_topic_and_broker() -> None:
    answer = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=2, host="b", port=2, rack="r"),
            MetadataResponseBroker(node_id=1, host="a", port=1),
        ],
        cluster_id="me",
        controller_id=1,
        topics=[
            MetadataResponseTopic(name="z", partitions=[partition(1, -1), partition(0, 2)]),
            MetadataResponseTopic(name="not ours", error_code=TopicAuthorizationFailed.code, partitions=[]),
            MetadataResponseTopic(
                name="a", error_code=LeaderNotAvailable.code, is_internal=True, partitions=[]
            ),
        ],
    )
    seen = described(answer)
    assert seen == ClusterDescription(
        cluster_id="me",
        controller_id=1,
        brokers={1: BrokerDescription(1, "a", 1, None), 2: BrokerDescription(2, "b", 2, "r")},
        topics={
            "a": TopicDescription("a", (), internal=True),
            "z": TopicDescription(
                "z",
                (PartitionDescription(0, 2, (1, 2), (2,)), PartitionDescription(1, None, (1, 2), (2,))),
                internal=False,
            ),
        },
    )
    assert list(seen.topics) == ["a", "z"]
    assert list(seen.brokers) == [1, 2]


def test_unknown_controller_is_none() -> None:
    assert described(MetadataResponse(brokers=[], topics=[])).controller_id is None
