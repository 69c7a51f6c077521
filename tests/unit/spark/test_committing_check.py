"""The check on the driver, on the broker for tests."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from aioproducer._core.protocol.metadata import MetadataResponseTopic
from aioproducer.errors import (
    AuthenticationFailed,
    BrokerError,
    InvalidTopicException,
    LeaderNotAvailable,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from aioproducer.spark import committing
from aioproducer.spark.committing import MAY_WRITE, check
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.spark.worker import Worker
from aioproducer.testing import ThreadedCluster
from tests.cases import for_each
from tests.kafka.apache.broker import free_ports
from tests.unit.test_topic_client import without_brokers

pytestmark = pytest.mark.kafka_cluster(topics={"orders": 1})
DESCRIBE = 1 << 8


@pytest.fixture
def host() -> Iterator[Worker]:
    host = Worker()
    yield host
    host.close()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "CREATION_S", 0.3)


def settings(servers: str, **more: str) -> ProducerSettings:
    return ProducerSettings(tuple(sorted({"bootstrap.servers": servers, **more}.items())))


def test_check_result_is_cached(host: Worker, kafka_cluster: ThreadedCluster) -> None:
    servers = settings(kafka_cluster.bootstrap_servers)
    check(host, servers, ("orders",))
    asked = kafka_cluster.request_count("metadata")
    check(host, servers, ("orders",))
    assert kafka_cluster.request_count("metadata") == asked
    check(host, servers, ())
    assert kafka_cluster.request_count("metadata") > asked


@pytest.mark.kafka_cluster(topics={"orders": 1}, auto_create_topics=False)
def test_missing_topic_is_refused_until_it_exists(host: Worker, kafka_cluster: ThreadedCluster) -> None:
    servers = settings(kafka_cluster.bootstrap_servers)
    for _ in range(2):
        with pytest.raises(
            UnknownTopicOrPartition, match=r"^topic 'dead': the brokers do not have it, and did not"
        ):
            check(host, servers, ("orders", "dead"))
    kafka_cluster.create_topic("dead")
    check(host, servers, ("orders", "dead"))


@pytest.mark.kafka_cluster(auto_create_topics=True)
def test_brokers_may_create_the_topic(host: Worker, kafka_cluster: ThreadedCluster) -> None:
    check(host, settings(kafka_cluster.bootstrap_servers), ("made",))
    assert kafka_cluster.records("made", 0) == []


@pytest.mark.parametrize("error", [TopicAuthorizationFailed, InvalidTopicException])
def test_refusal_names_the_topic(
    host: Worker, kafka_cluster: ThreadedCluster, error: type[BrokerError]
) -> None:
    kafka_cluster.on("metadata", topic="orders", times=None).answer(error)
    with pytest.raises(error, match=r"^topic 'orders': "):
        check(host, settings(kafka_cluster.bootstrap_servers), ("orders",))


@for_each(
    ("code", "operations", "missing"),
    [
        (0, -(2**31), False),
        (0, 0, False),
        (0, MAY_WRITE | DESCRIBE, False),
        (LeaderNotAvailable.code, 0, False),
        (UnknownTopicOrPartition.code, 0, True),
    ],
)
def test_topic_is_missing_only_by_its_error_code(code: int, operations: int, missing: bool) -> None:
    topic = MetadataResponseTopic(
        error_code=code, name="orders", partitions=[], topic_authorized_operations=operations
    )
    assert committing._is_missing(topic) is missing


def test_login_without_write_permission_is_refused() -> None:
    topic = MetadataResponseTopic(name="orders", partitions=[], topic_authorized_operations=DESCRIBE)
    with pytest.raises(TopicAuthorizationFailed, match="may not write to it; grant it Write on the topic"):
        committing._is_missing(topic)


@pytest.mark.kafka_cluster(topics={"orders": 1}, security_protocol="SASL_PLAINTEXT", users={"app": "secret"})
def test_wrong_login_is_refused(host: Worker, kafka_cluster: ThreadedCluster) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
    servers = settings(
        kafka_cluster.bootstrap_servers, **login, **{"sasl.username": "app", "sasl.password": "x"}
    )
    with pytest.raises(AuthenticationFailed):
        check(host, servers, ("orders",))


def test_unanswered_check_is_logged_once(
    host: Worker,
    kafka_cluster: ThreadedCluster,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(committing, "ANSWER_S", 0.7)
    (port,) = free_ports(1)
    for _ in range(2):
        check(host, settings(f"127.0.0.1:{port}"), ("orders",))
    assert len(caplog.messages) == 1
    assert re.match(r"spark\.driver\.unchecked reason=.ConnectionFailed: no bootstrap", caplog.messages[0])
    kafka_cluster.freeze_broker(1)
    check(host, settings(kafka_cluster.bootstrap_servers), ("orders",))
    assert caplog.messages[1:] == ['spark.driver.unchecked reason="the brokers did not answer in 1 s"']
    kafka_cluster.thaw_broker(1)


def test_brokers_that_start_up_miss_no_topic(
    host: Worker, kafka_cluster: ThreadedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_cluster.on("metadata", times=None).rewrite(without_brokers("orders"))
    check(host, settings(kafka_cluster.bootstrap_servers), ("orders",))
    assert len(caplog.messages) == 1
    assert re.match(
        r"spark\.driver\.unchecked reason=.ConnectionFailed: .*lists no brokers", caplog.messages[0]
    )
