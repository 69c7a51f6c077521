"""A real authorizer that denies DescribeConfigs: the driver warns, and jobs continue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import SparkSession

from aioproducer.spark.decision_records import TOPIC
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka
from tests.spark.log import SparkLog

ROWS: Final = "denied-rows"
LETTERS: Final = "denied-letters"
AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
}


def rule(topic: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    kind = ResourcePatternType.LITERAL
    return AclBinding(ResourceType.TOPIC, topic, kind, "User:ANONYMOUS", "*", operation, permission)


@pytest.fixture
def denying() -> Iterator[ApacheKafka]:
    """A broker whose clients may do everything with the topics of this test, except describe their settings."""
    with ApacheKafka(properties=AUTHORIZER) as kafka:
        kafka.create_topic(ROWS, 1)
        kafka.create_topic(LETTERS, 1)
        kafka.create_topic(TOPIC, 1, config={"cleanup.policy": "compact"})
        rules = [
            rule(topic, operation, permission)
            for topic in (ROWS, LETTERS, TOPIC)
            for operation, permission in (
                (AclOperation.ALL, AclPermissionType.ALLOW),
                (AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY),
            )
        ]
        with AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}) as admin:
            for created in admin.create_acls(rules).values():
                created.result(20)
        yield kafka


def test_jobs_continue_without_the_right_to_describe_configs(
    spark: SparkSession, denying: ApacheKafka, spark_log: SparkLog
) -> None:
    """Without limits from the topic, the broker refuses the time in the future: the row is a dead letter."""
    days = spark.range(0, 3, numPartitions=1).selectExpr(
        "cast(id as string) as value",
        "current_timestamp() + make_dt_interval(cast(id * 20 - 20 as int)) as at",
    )
    once = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "denied"}
    for number in range(2):
        (
            days.write.format("aioproducer")
            .mode("append")
            .option("kafka.bootstrap.servers", denying.bootstrap_servers)
            .option("topic", ROWS)
            .option("timestampColumn", "at")
            .option("onBadRow", f"topic:{LETTERS}")
            .options(**once, jobId=f"job {number}")
            .save()
        )
    assert "TopicAuthorizationFailed" in spark_log.wait_for("spark.decision_topic.unchecked")
    assert f'topic={ROWS} error="TopicAuthorizationFailed' in spark_log.wait_for("spark.timestamps.unchecked")
    records = read_with_librdkafka(denying.bootstrap_servers, ROWS, isolation_level="read_committed")
    assert [each.value for each in records] == [b"0", b"1"] * 2, "20 days ago, and now"
    letters = read_with_librdkafka(denying.bootstrap_servers, LETTERS, isolation_level="read_committed")
    assert [each.value for each in letters] == [b"2"] * 2
    assert b"InvalidTimestamp" in (dict(letters[0].headers)["dead-letter.reason"] or b"")
