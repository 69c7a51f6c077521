"""An asyncio-native Kafka producer."""

from __future__ import annotations

from aioproducer.cluster.partitioner import (
    Murmur2Partitioner as Murmur2Partitioner,
    Murmur3Partitioner as Murmur3Partitioner,
    Partitioner as Partitioner,
    RoundRobinPartitioner as RoundRobinPartitioner,
)
from aioproducer.config import ProducerConfig as ProducerConfig, ProducerOptions as ProducerOptions
from aioproducer.errors import *  # noqa: F403 - every error, listed in errors.__all__
from aioproducer.interceptors import Interceptor as Interceptor
from aioproducer.producer import Producer as Producer, State as State
from aioproducer.results import SendManyResult as SendManyResult
from aioproducer.types import (
    ProducerRecord as ProducerRecord,
    RecordMetadata as RecordMetadata,
    TopicPartition as TopicPartition,
)
from aioproducer.version import VERSION

__version__ = VERSION
