"""Options shared by Spark's own Kafka source and this sink."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aioproducer import ProducerOptions
from aioproducer.config.names import WITHOUT_EFFECT
from aioproducer.spark.sink_options import CONSUMER_OPTIONS, SOURCE_OPTIONS
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka
from tests.spark.conftest import NewTopic, Save
from tests.spark.features import needs_stream_sink
from tests.spark.log import SparkLog

EVENT = "spark.source_option.without_effect name="
REFUSED_BY_THE_SOURCE = {"auto.offset.reset", "enable.auto.commit", "key.deserializer", "value.deserializer"}


def shared(kafka: ApacheKafka, original: str, copy: str) -> dict[str, str]:
    """Return options for a copy of a topic, those of the source first."""
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": original,
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        "minPartitions": "4",
        "groupIdPrefix": "copy",
        "kafkaConsumer.pollTimeoutMs": "30000",
        "fetchOffset.numRetries": "5",
        "kafka.max.poll.records": "100",
        "topic": copy,
        "kafka.linger.ms": "0",
    }


NAMES = (
    *("subscribe", "startingOffsets", "failOnDataLoss", "minPartitions", "groupIdPrefix"),
    *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "kafka.max.poll.records"),
)
"""Those of them that do nothing in the sink."""


@pytest.fixture
def original(spark: SparkSession, save: Save, new_topic: NewTopic) -> str:
    """A topic with a thousand records."""
    topic = new_topic()
    save(spark.range(1_000).selectExpr("cast(id as string) as value"), topic)
    return topic


def numbers(kafka: ApacheKafka, topic: str) -> list[int]:
    return sorted(int(each.value or b"") for each in read_with_librdkafka(kafka.bootstrap_servers, topic))


def warned_of(log: SparkLog) -> Counter[str]:
    return Counter(line.rpartition("=")[2] for line in log.text().splitlines() if EVENT in line)


def test_batch_copies_a_topic(
    spark: SparkSession, kafka: ApacheKafka, original: str, topic: str, spark_log: SparkLog
) -> None:
    options = {**shared(kafka, original, topic), "endingOffsets": "latest"}
    rows = spark.read.format("kafka").options(**options).load().select("key", "value")
    rows.write.format("aioproducer").mode("append").options(**options).save()
    assert numbers(kafka, topic) == list(range(1_000))
    for name in (*NAMES, "endingOffsets"):
        spark_log.wait_for(f" WARNING aioproducer.spark: {EVENT}{name}")
    assert warned_of(spark_log) == Counter((*NAMES, "endingOffsets")), "one each"


@needs_stream_sink
def test_stream_copies_a_topic(
    spark: SparkSession, kafka: ApacheKafka, original: str, topic: str, tmp_path: Path, spark_log: SparkLog
) -> None:
    options = {
        **shared(kafka, original, topic),
        "maxOffsetsPerTrigger": "200",
        "checkpointLocation": str(tmp_path / "checkpoint"),
        "queryName": "copy",
    }
    rows = spark.readStream.format("kafka").options(**options).load().select("key", "value")
    query = rows.writeStream.format("aioproducer").options(**options).trigger(availableNow=True).start()
    assert query.awaitTermination(90)
    assert query.name == "copy"
    assert len(query.recentProgress) >= 5
    assert numbers(kafka, topic) == list(range(1_000))
    # Spark has two processes for the driver's part of a stream: one plans micro-batches, the other commits them.
    assert warned_of(spark_log) == Counter((*NAMES, "maxOffsetsPerTrigger") * 2)


def test_every_option_of_the_source_is_known(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    texts = set()
    for constant in loader.loadClass(
        "org.apache.spark.sql.kafka010.KafkaSourceProvider$"
    ).getDeclaredFields():
        if constant.getType().getName() == "java.lang.String":
            constant.setAccessible(True)
            texts.add(constant.get(None))
    options = {text for text in texts if re.fullmatch(r"[a-z.]+", text)} - {"topic", "includeheaders"}
    assert len(options) > 15
    assert options <= {name.lower() for name in SOURCE_OPTIONS}

    clients = jvm.org.apache.kafka.clients
    of_consumers = set(clients.consumer.ConsumerConfig.configNames())
    of_producers = set(clients.producer.ProducerConfig.configNames())
    # The Kafka client that Spark brings has some options of the producer in its consumer alone.
    ours = {name.replace("_", ".") for name in ProducerOptions.__annotations__}
    known = CONSUMER_OPTIONS | WITHOUT_EFFECT | REFUSED_BY_THE_SOURCE | ours
    unknown = of_consumers - of_producers - known
    assert {name for name in unknown if not name.startswith("internal.")} == set()
    assert not CONSUMER_OPTIONS & of_producers
