"""Clients that other people wrote log in here as they do to Kafka."""

from __future__ import annotations

import time
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from aioproducer.testing import ThreadedCluster
from aioproducer.testing.certificates import Authority
from tests.cases import for_each

pytestmark = pytest.mark.slow

MARKERS_WAIT_S = 20.0
USERS = {"alice": "alice's password"}


def secured(protocol: Any, **options: Any) -> ThreadedCluster:
    return ThreadedCluster(topics={"orders": 1}, security_protocol=protocol, **options)


def librdkafka(cluster: ThreadedCluster, mechanism: str | None = None) -> dict[str, Any]:
    ours = cluster.client_options
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": ours["security_protocol"],
        "ssl.ca.pem": ours.get("ssl_truststore_certificates"),
        "ssl.certificate.pem": ours.get("ssl_keystore_certificate_chain"),
        "ssl.key.pem": ours.get("ssl_keystore_key"),
        "sasl.mechanism": mechanism,
        "sasl.username": ours.get("sasl_username"),
        "sasl.password": ours.get("sasl_password"),
        "log_level": 0,
    }
    return {name: value for name, value in settings.items() if value is not None}


def produce(cluster: ThreadedCluster, settings: dict[str, Any]) -> None:
    producer = confluent_kafka.Producer(settings)
    producer.produce("orders", b"value")
    assert producer.flush(MARKERS_WAIT_S) == 0
    [record] = cluster.records("orders", 0)
    assert record.value == b"value"


@for_each("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
@for_each("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_logs_in_with_a_password(protocol: str, mechanism: str) -> None:
    with secured(protocol, users=USERS, sasl_mechanisms=[mechanism]) as cluster:
        produce(cluster, librdkafka(cluster, mechanism))


def test_librdkafka_logs_in_with_a_token() -> None:
    with secured("SASL_SSL", tokens={"good": "alice"}) as cluster:
        settings = librdkafka(cluster, "OAUTHBEARER") | {"oauth_cb": lambda _: ("good", time.time() + 600)}
        produce(cluster, settings)


@pytest.mark.parametrize("client_auth", [False, True])
def test_librdkafka_speaks_tls(client_auth: bool) -> None:
    with secured("SSL", client_auth=client_auth) as cluster:
        produce(cluster, librdkafka(cluster))


def test_librdkafka_renews_its_session() -> None:
    with secured("SASL_PLAINTEXT", users=USERS, session_lifetime_s=2) as cluster:
        producer = confluent_kafka.Producer(librdkafka(cluster, "SCRAM-SHA-512"))
        producer.produce("orders", b"before")
        assert producer.flush(MARKERS_WAIT_S) == 0
        logins = cluster.request_count("sasl_handshake")
        deadline = time.monotonic() + MARKERS_WAIT_S
        while cluster.request_count("sasl_handshake") == logins and time.monotonic() < deadline:
            producer.poll(0.1)
        producer.produce("orders", b"after")
        assert producer.flush(MARKERS_WAIT_S) == 0
        assert len(cluster.records("orders", 0)) == 2


@for_each(
    ("mechanism", "wrong", "code"),
    [
        ("PLAIN", {"sasl.password": "wrong"}, confluent_kafka.KafkaError._AUTHENTICATION),
        ("SCRAM-SHA-512", {"sasl.password": "wrong"}, confluent_kafka.KafkaError._AUTHENTICATION),
        (
            "OAUTHBEARER",
            {"oauth_cb": lambda _: ("bad", time.time() + 600)},
            confluent_kafka.KafkaError._AUTHENTICATION,
        ),
        ("PLAIN", {"ssl.ca.pem": Authority().pem}, confluent_kafka.KafkaError._SSL),
    ],
)
def test_librdkafka_reports_authentication_errors(mechanism: str, wrong: dict[str, Any], code: int) -> None:
    told: list[int] = []
    with secured("SASL_SSL", users=USERS, tokens={"good": "alice"}) as cluster:
        producer = confluent_kafka.Producer(
            librdkafka(cluster, mechanism) | wrong | {"error_cb": lambda error: told.append(error.code())}
        )
        deadline = time.monotonic() + MARKERS_WAIT_S
        while code not in told and time.monotonic() < deadline:
            producer.poll(0.1)
    assert code in told


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_aiokafka_logs_in_with_a_password(mechanism: str) -> None:
    with secured("SASL_PLAINTEXT", users=USERS) as cluster:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=USERS["alice"],
        ) as producer:
            await producer.send_and_wait("orders", b"value")
        assert len(cluster.records("orders", 0)) == 1
