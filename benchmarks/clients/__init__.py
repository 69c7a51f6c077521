"""Clients by name. A client is imported only in the process that measures the client."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from benchmarks.clients.base import Client

OURS: Final = "aioproducer"
JVM: Final = "jvm"
"""A Java program instead of a `Client`, see `benchmarks.clients.jvm`."""

_HOMES: Final = {
    OURS: ("ours", "Aioproducer"),
    "aioproducer-nowait": ("ours", "AioproducerNowait"),
    "aioproducer-linger-0": ("ours", "AioproducerLinger0"),
    "aioproducer-rack-aware": ("ours", "AioproducerRackAware"),
    "aioproducer-door": ("aiokafka", "AiokafkaCompat"),
    "aiokafka": ("aiokafka", "Aiokafka"),
    "confluent-produce": ("confluent_produce", "ConfluentProduce"),
    "confluent-callback": ("confluent_callback", "ConfluentCallback"),
    "confluent-batch": ("confluent_batch", "ConfluentBatch"),
    "confluent-aio": ("confluent_aio", "ConfluentAio"),
    "kafka-python": ("kafka_python", "KafkaPython"),
}

CLIENTS: Final = (*_HOMES, JVM)

TITLES: Final = {
    OURS: "aioproducer",
    "aioproducer-nowait": "aioproducer send_nowait",
    "aioproducer-linger-0": "aioproducer linger_ms=0",
    "aioproducer-rack-aware": "aioproducer partitioner_rack_aware",
    "aioproducer-door": "aioproducer.compat.aiokafka",
    "aiokafka": "aiokafka",
    "confluent-produce": "confluent-kafka produce",
    "confluent-callback": "confluent-kafka produce(on_delivery)",
    "confluent-batch": "confluent-kafka produce_batch",
    "confluent-aio": "confluent-kafka AIOProducer",
    "kafka-python": "kafka-python",
    JVM: "JVM ProducerPerformance",
}


def adapter(name: str) -> type[Client]:
    """Return the class that measures client *name*."""
    module, kind = _HOMES[name]
    found: type[Client] = getattr(import_module(f"benchmarks.clients.{module}"), kind)
    return found
