"""A description of the cluster, from a broker's answer."""

from __future__ import annotations

from aioproducer._core.protocol.metadata import MetadataResponse, MetadataResponsePartition
from aioproducer.errors import TopicAuthorizationFailed
from aioproducer.types import BrokerDescription, ClusterDescription, PartitionDescription, TopicDescription


def described(answer: MetadataResponse) -> ClusterDescription:
    """Return what *answer*, to a request for all topics, says; a topic that we may not describe is left out."""
    brokers = [BrokerDescription(each.node_id, each.host, each.port, each.rack) for each in answer.brokers]
    topics = [
        TopicDescription(
            each.name,
            tuple(map(_partition, sorted(each.partitions, key=lambda partition: partition.partition_index))),
            each.is_internal,
        )
        for each in answer.topics
        if each.name is not None and each.error_code != TopicAuthorizationFailed.code
    ]
    return ClusterDescription(
        cluster_id=answer.cluster_id,
        controller_id=None if answer.controller_id < 0 else answer.controller_id,
        brokers={each.node_id: each for each in sorted(brokers)},
        topics={each.name: each for each in sorted(topics)},
    )


def _partition(told: MetadataResponsePartition) -> PartitionDescription:
    leader = None if told.leader_id < 0 else told.leader_id
    return PartitionDescription(
        told.partition_index, leader, tuple(told.replica_nodes), tuple(told.isr_nodes)
    )
