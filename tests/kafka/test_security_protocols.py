"""Every security protocol with every mechanism: another client reads the records sent."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pytest
from confluent_kafka.admin import AclOperation

from aioproducer import Producer
from aioproducer.config import ProducerOptions
from aioproducer.errors import TopicAuthorizationFailed
from tests.kafka.apache.secured import PASSWORDS, SecuredKafka
from tests.kafka.secured_clients import (
    MECHANISMS,
    MechanismName,
    allow,
    connect,
    connections,
    identity,
    set_password,
    values,
    written,
)
from tests.unit._core.security.certificates import Authority, truststore

KEY_PASSWORD: Final = "the key's password"
RECORDS: Final = [b"%d" % number for number in range(20)]

Trust: TypeAlias = Callable[[SecuredKafka, Path], ProducerOptions]


async def write(producer: Producer, topic: str) -> str | None:
    """Send RECORDS to partition 0, and return the TLS version of the connection."""
    async with producer:
        await producer.send_many(topic, RECORDS[:-1], partitions=[0] * (len(RECORDS) - 1))
        await producer.send(topic, RECORDS[-1], partition=0)
        return tls_version(producer)


def tls_version(producer: Producer) -> str | None:
    """Return the TLS version of all connections of *producer*."""
    objects = [each._transport.get_extra_info("ssl_object") for each in connections(producer)]
    [version] = {None if each is None else each.version() for each in objects}
    return version


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL", "SASL_TLS"])
async def test_mechanism_logs_in(
    secured: SecuredKafka, secured_topic: str, listener: str, mechanism: MechanismName
) -> None:
    version = await write(connect(secured, listener, mechanism), secured_topic)
    assert version == ("TLSv1.3" if listener == "SASL_TLS" else None)
    assert values(secured, secured_topic) == RECORDS


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_producer_logs_in_with_other_acks(
    secured: SecuredKafka, secured_topic: str, mechanism: MechanismName, acks: Literal[0, 1]
) -> None:
    await write(connect(secured, "SASL_TLS", mechanism, acks=acks), secured_topic)
    assert values(secured, secured_topic, at_least=len(RECORDS)) == RECORDS


@pytest.mark.parametrize(
    ("listener", "versions", "spoken"),
    [
        ("TLS", None, "TLSv1.3"),
        ("TLS", "TLSv1.2", "TLSv1.2"),
        ("TLS", "TLSv1.3", "TLSv1.3"),
        ("TLS12", None, "TLSv1.2"),
    ],
)
async def test_tls_connects_with_each_version(
    secured: SecuredKafka, secured_topic: str, listener: str, versions: str | None, spoken: str
) -> None:
    chosen: ProducerOptions = {} if versions is None else {"ssl_enabled_protocols": versions}
    assert await write(connect(secured, listener, **chosen), secured_topic) == spoken
    assert values(secured, secured_topic) == RECORDS


def in_one_file(kafka: SecuredKafka, folder: Path) -> ProducerOptions:
    issued = kafka.client("alice")
    return {"ssl_keystore_location": written(folder / "both.pem", issued.key_pem, issued.chain)}


def in_two_files(kafka: SecuredKafka, folder: Path) -> ProducerOptions:
    issued = kafka.client("alice")
    return {
        "ssl_keystore_certificate_chain": written(folder / "certificate.pem", issued.chain),
        "ssl_keystore_key": written(folder / "key.pem", issued.key_pem),
    }


def as_text(kafka: SecuredKafka, folder: Path) -> ProducerOptions:
    return identity(kafka.client("alice"))


def encrypted(kafka: SecuredKafka, folder: Path) -> ProducerOptions:
    issued = kafka.client("alice")
    key = issued.encrypted_key(KEY_PASSWORD)
    return {
        "ssl_keystore_location": written(folder / "both.pem", issued.chain, key),
        "ssl_key_password": KEY_PASSWORD,
    }


def as_pkcs12(kafka: SecuredKafka, folder: Path) -> ProducerOptions:
    store = folder / "store.p12"
    store.write_bytes(kafka.client("alice").pkcs12(KEY_PASSWORD))
    return {"ssl_keystore_location": str(store), "ssl_keystore_password": KEY_PASSWORD}


@pytest.mark.parametrize("given", [in_one_file, in_two_files, as_text, encrypted, as_pkcs12])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_client_certificate_is_accepted(
    secured: SecuredKafka, secured_topic: str, tmp_path: Path, given: Trust, version: str
) -> None:
    ours = given(secured, tmp_path)
    trusted: ProducerOptions = {
        "security_protocol": "SSL",
        "ssl_truststore_certificates": secured.authority.pem,
        "ssl_enabled_protocols": version,
    }
    producer = Producer(secured.at("MTLS"), **(trusted | ours))
    assert await write(producer, secured_topic) == version
    assert values(secured, secured_topic) == RECORDS


def own_context(kafka: SecuredKafka, folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=kafka.authority.pem)
    issued = kafka.client("alice")
    context.load_cert_chain(written(folder / "both.pem", issued.chain, issued.key_pem))
    return context


@pytest.mark.parametrize("how", ["context", "callable", "coroutine function"])
async def test_ssl_context_of_the_user_is_used(
    secured: SecuredKafka, secured_topic: str, tmp_path: Path, how: str
) -> None:
    context = own_context(secured, tmp_path)

    async def later() -> ssl.SSLContext:
        return context

    given: Any = {"context": context, "callable": lambda: context, "coroutine function": later}[how]
    producer = Producer(secured.at("MTLS"), security_protocol="SSL", ssl_context=given)
    assert await write(producer, secured_topic) == "TLSv1.3"
    assert values(secured, secured_topic) == RECORDS


def trust_file(kafka: SecuredKafka, folder: Path) -> ProducerOptions:
    return {"ssl_truststore_location": written(folder / "ca.pem", kafka.authority.pem)}


def trust_several(kafka: SecuredKafka, folder: Path) -> ProducerOptions:
    return {"ssl_truststore_certificates": Authority("another").pem + kafka.authority.pem}


def trust_store(kafka: SecuredKafka, folder: Path) -> ProducerOptions:
    store = folder / "trust.p12"
    store.write_bytes(truststore(kafka.authority, password=KEY_PASSWORD))
    return {"ssl_truststore_location": str(store), "ssl_truststore_password": KEY_PASSWORD}


@pytest.mark.parametrize("given", [trust_file, trust_several, trust_store])
async def test_certificate_authority_is_trusted_from_each_source(
    secured: SecuredKafka, secured_topic: str, tmp_path: Path, given: Trust
) -> None:
    trusting = given(secured, tmp_path)
    trusting["security_protocol"] = "SSL"
    producer = Producer(secured.at("TLS"), **trusting)
    await write(producer, secured_topic)
    assert values(secured, secured_topic) == RECORDS


async def test_host_name_check_can_be_disabled(secured: SecuredKafka, secured_topic: str) -> None:
    await write(
        connect(secured, "ELSEWHERE", ssl_endpoint_identification_algorithm=""),
        secured_topic,
    )
    assert values(secured, secured_topic) == RECORDS


@pytest.mark.parametrize(
    "password",
    ["soft\u00adhyphen", "no\u00a0break", "\u00aa\u2168", "\u06271", "\U0001f600", "tab\tand=,", "\u212b"],
)
async def test_password_logs_in_as_stored_by_another_client(
    secured: SecuredKafka, secured_topic: str, password: str
) -> None:
    set_password(secured, secured_topic, password)
    allow(secured, secured_topic, AclOperation.WRITE, [secured_topic])
    producer = Producer(
        secured.at("SASL"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username=secured_topic,
        sasl_password=password,
    )
    await write(producer, secured_topic)
    assert values(secured, secured_topic) == RECORDS


async def test_jaas_line_of_a_jvm_producer_logs_in(secured: SecuredKafka, secured_topic: str) -> None:
    line = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="alice" password="{PASSWORDS["alice"]}";'
    )
    await write(
        Producer(
            secured.at("SASL"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_jaas_config=line,
        ),
        secured_topic,
    )
    assert values(secured, secured_topic) == RECORDS


async def test_principal_is_taken_from_the_certificate(secured: SecuredKafka, secured_topic: str) -> None:
    async with connect(secured, "MTLS", **identity(secured.client("carol"))) as producer:
        with pytest.raises(TopicAuthorizationFailed):
            await producer.send(secured_topic, b"not mine")
        allow(secured, "CN=carol,O=lab", AclOperation.WRITE, [secured_topic])
        await producer.send(secured_topic, b"mine")
    assert values(secured, secured_topic) == [b"mine"]
