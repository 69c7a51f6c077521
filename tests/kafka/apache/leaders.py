"""Whether a fresh topic is led: brokers name the leader of a partition some milliseconds before that has its log."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicMetadata

NOT_YET: Final = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._NOENT,  # librdkafka found no leader of the partition
}


def all_named(topic: TopicMetadata, partitions: int) -> bool:
    """Whether *topic* has so many *partitions*, and a leader of each is known."""
    known = topic.partitions.values()
    return len(known) == partitions and all(partition.leader >= 0 for partition in known)


def all_answer(admin: AdminClient, topic: str, partitions: int, timeout_s: float) -> bool:
    """Whether the leader of each partition answers for it. Raises: KafkaException, if it does so with another error."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, partition): latest for partition in range(partitions)}
    for answer in admin.list_offsets(asked, request_timeout=timeout_s).values():
        try:
            answer.result(timeout_s)
        except KafkaException as failure:
            if failure.args[0].code() not in NOT_YET:
                raise
            return False
    return True
