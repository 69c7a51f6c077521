"""Compatibility layer for services that use aiokafka: only the import changes.

    from aioproducer.compat.aiokafka import AIOKafkaProducer
    from aioproducer.compat.aiokafka.errors import KafkaError, KafkaTimeoutError

aiokafka itself is not needed. docs/from-aiokafka.md lists the differences.
"""

from __future__ import annotations

from aioproducer.compat.aiokafka.aiokafka_producer import AIOKafkaProducer as AIOKafkaProducer
from aioproducer.compat.aiokafka.aiokafka_transactions import group_metadata_of as group_metadata_of
from aioproducer.compat.aiokafka.errors import IllegalOperation as IllegalOperation
from aioproducer.compat.aiokafka.structs import TopicPartition as TopicPartition

__all__ = ["AIOKafkaProducer", "IllegalOperation", "TopicPartition", "group_metadata_of"]
