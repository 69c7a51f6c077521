"""One service, two clients: TLS and logins, with aiokafka itself and with the compatible producer."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import aiokafka
import pytest

from aioproducer.compat import aiokafka as compat
from aioproducer.testing import ThreadedCluster

TOPIC = "orders"
USERS = {"alice": "hunter2"}
TOKENS = {"t0ken": "alice"}

pytestmark = pytest.mark.parametrize("client", [aiokafka, compat], ids=["aiokafka", "compat"])


def part(client: ModuleType, name: str) -> Any:
    return importlib.import_module(f"{client.__name__}.{name}")


def context(client: ModuleType, cluster: ThreadedCluster) -> Any:
    return part(client, "helpers").create_ssl_context(cadata=cluster.ca_pem)


async def send(client: ModuleType, cluster: ThreadedCluster, **options: Any) -> None:
    """Send a record as any service does."""
    producer = client.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options)
    try:
        await producer.start()
        await producer.send_and_wait(TOPIC, b"v", partition=0)
    finally:
        await producer.stop()


@pytest.mark.kafka_cluster(topics={TOPIC: 1}, security_protocol="SASL_SSL", users=USERS)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_password_logs_in(client: ModuleType, kafka_cluster: ThreadedCluster, mechanism: str) -> None:
    await send(
        client,
        kafka_cluster,
        security_protocol="SASL_SSL",
        ssl_context=context(client, kafka_cluster),
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password="hunter2",
    )
    assert [record.value for record in kafka_cluster.records(TOPIC, 0)] == [b"v"]


@pytest.mark.kafka_cluster(topics={TOPIC: 1}, security_protocol="SASL_SSL", tokens=TOKENS)
async def test_token_logs_in(client: ModuleType, kafka_cluster: ThreadedCluster) -> None:
    class Provider(part(client, "abc").AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return "t0ken"

        def extensions(self) -> dict[str, str]:
            return {"logicalCluster": "lkc"}

    await send(
        client,
        kafka_cluster,
        security_protocol="SASL_SSL",
        ssl_context=context(client, kafka_cluster),
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    assert [record.value for record in kafka_cluster.records(TOPIC, 0)] == [b"v"]


@pytest.mark.kafka_cluster(topics={TOPIC: 1}, security_protocol="SSL", client_auth=True)
async def test_client_certificate_is_the_principal(
    client: ModuleType, kafka_cluster: ThreadedCluster, tmp_path: Path
) -> None:
    options = kafka_cluster.client_options
    (tmp_path / "cert.pem").write_text(options["ssl_keystore_certificate_chain"])
    (tmp_path / "key.pem").write_text(options["ssl_keystore_key"])
    ssl_context = part(client, "helpers").create_ssl_context(
        cadata=kafka_cluster.ca_pem,
        certfile=str(tmp_path / "cert.pem"),
        keyfile=str(tmp_path / "key.pem"),
    )
    await send(client, kafka_cluster, security_protocol="SSL", ssl_context=ssl_context)
    assert [record.value for record in kafka_cluster.records(TOPIC, 0)] == [b"v"]


@pytest.mark.kafka_cluster(topics={TOPIC: 1}, security_protocol="SASL_SSL", users=USERS)
@pytest.mark.parametrize(
    "wrong",
    [{"sasl_plain_password": "wrong"}, {"sasl_mechanism": "OAUTHBEARER"}, {"ssl_context": None}],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_refused_login_equals_that_of_aiokafka(
    client: ModuleType, kafka_cluster: ThreadedCluster, wrong: dict[str, Any]
) -> None:
    class Provider(part(client, "abc").AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return "nobody's"

    options = {
        "ssl_context": context(client, kafka_cluster),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "hunter2",
        "sasl_oauth_token_provider": Provider(),
        **wrong,
    }
    if options["ssl_context"] is None:  # no trusted CA has signed the certificate of the broker
        options["ssl_context"] = part(client, "helpers").create_ssl_context()
    with pytest.raises(part(client, "errors").KafkaConnectionError):
        await send(client, kafka_cluster, security_protocol="SASL_SSL", **options)
    assert not kafka_cluster.records(TOPIC, 0)
