"""Denials by an authorizer: denied records fail at once, other records are sent."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka.admin import AclOperation

from aioproducer import Producer, ProducerError, RecordMetadata
from aioproducer.config import ProducerOptions
from aioproducer.errors import ClusterAuthorizationFailed, TopicAuthorizationFailed
from tests.kafka.apache.secured import SecuredKafka
from tests.kafka.secured_clients import allow, connect, options, set_password, values

AT_ONCE_S = 2.0
either = pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])


def as_user(kafka: SecuredKafka, user: str) -> ProducerOptions:
    """Create *user*, and return the options for a login."""
    set_password(kafka, user, "password")
    chosen = options(kafka, "SASL", "SCRAM-SHA-512")
    return chosen | {"sasl_username": user, "sasl_password": "password"}


@either
async def test_denied_topic_leaves_another_topic_writable(
    secured: SecuredKafka, secured_topic: str, idempotent: bool
) -> None:
    user, forbidden = secured_topic, f"{secured_topic}-forbidden"
    await asyncio.to_thread(secured.kafka.create_topic, forbidden, 1)
    chosen = as_user(secured, user) | {"enable_idempotence": idempotent, "linger_ms": 5}
    allow(secured, user, AclOperation.WRITE, [secured_topic])
    allow(secured, user, AclOperation.DESCRIBE, [forbidden])
    async with Producer(secured.at("SASL"), **chosen) as producer:
        sending = {
            topic: [await producer.enqueue(topic, b"%d" % number, partition=0) for number in range(50)]
            for topic in (secured_topic, forbidden)
        }
        async with asyncio.timeout(AT_ONCE_S):
            outcomes = {
                topic: await asyncio.gather(*futures, return_exceptions=True)
                for topic, futures in sending.items()
            }
        assert {type(each) for each in outcomes[secured_topic]} == {RecordMetadata}
        assert {type(each) for each in outcomes[forbidden]} == {TopicAuthorizationFailed}
        assert all(
            isinstance(each, ProducerError) and not each.possibly_persisted for each in outcomes[forbidden]
        )
        assert forbidden in str(outcomes[forbidden][0])
        allow(secured, user, AclOperation.WRITE, [forbidden])
        await producer.send(forbidden, b"allowed")
    assert values(secured, secured_topic) == [b"%d" % number for number in range(50)]
    assert values(secured, forbidden) == [b"allowed"]


async def test_send_fails_when_the_user_may_not_create_the_topic(
    secured: SecuredKafka, secured_topic: str
) -> None:
    user, missing = secured_topic, f"{secured_topic}-missing"
    chosen = as_user(secured, user)
    allow(secured, user, AclOperation.WRITE, [secured_topic, missing])
    async with Producer(secured.at("SASL"), **chosen) as producer:
        async with asyncio.timeout(AT_ONCE_S):
            with pytest.raises(TopicAuthorizationFailed, match=missing):
                await producer.send(missing, b"nowhere")
            await producer.send(secured_topic, b"here")
    assert values(secured, secured_topic) == [b"here"]


async def test_send_creates_the_topic_when_the_user_may(secured: SecuredKafka, secured_topic: str) -> None:
    async with connect(secured, "SASL", "SCRAM-SHA-256") as producer:
        await producer.send(f"{secured_topic}-new", b"first")
    assert values(secured, f"{secured_topic}-new") == [b"first"]


async def test_user_without_write_access_gets_no_producer_id(
    secured: SecuredKafka, secured_topic: str
) -> None:
    """Bob may only describe the topic, so the cluster refuses a producer id."""
    allow(secured, "bob", AclOperation.DESCRIBE, [secured_topic])
    chosen = options(secured, "SASL", "SCRAM-SHA-512", "bob")
    async with Producer(secured.at("SASL"), **chosen) as producer:
        async with asyncio.timeout(AT_ONCE_S):
            with pytest.raises(ClusterAuthorizationFailed):
                await producer.send(secured_topic, b"no")
    assert values(secured, secured_topic) == []


def test_spark_driver_reports_a_missing_acl(secured: SecuredKafka, secured_topic: str) -> None:
    """By the authorized operations of the topic (KIP-430): Describe alone shows it."""
    pytest.importorskip("pyspark")
    from aioproducer.spark.committing import check  # noqa: PLC0415 - where Spark is
    from aioproducer.spark.sink_options import ProducerSettings  # noqa: PLC0415 - likewise
    from aioproducer.spark.worker import Worker  # noqa: PLC0415 - likewise

    login = {"sasl.username": secured_topic, "sasl.password": "password", "sasl.mechanism": "SCRAM-SHA-512"}
    servers = {"bootstrap.servers": secured.at("SASL"), "security.protocol": "SASL_PLAINTEXT"}
    settings = ProducerSettings(tuple({**servers, **login}.items()))
    set_password(secured, secured_topic, "password")
    host = Worker()
    try:
        for operation in (None, AclOperation.DESCRIBE):
            if operation is not None:
                allow(secured, secured_topic, operation, [secured_topic])
            with pytest.raises(
                TopicAuthorizationFailed, match="may not write to it; grant it Write on the topic"
            ):
                check(host, settings, (secured_topic,))
        allow(secured, secured_topic, AclOperation.WRITE, [secured_topic])
        check(host, settings, (secured_topic,))
    finally:
        host.close()
