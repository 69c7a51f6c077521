"""GSSAPI on a real Apache Kafka and a real KDC: tickets, keytabs, sessions that expire, and mistakes."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import pytest
from aiokafka import AIOKafkaProducer as TheirProducer

from aioproducer import AuthenticationFailed, ConfigError, Producer, ProducerConfig
from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.config import ProducerOptions
from aioproducer.errors import ConnectionFailed, TopicAuthorizationFailed
from tests.kafka.apache.secured import REAUTH_MS, SecuredKafka
from tests.kafka.numbered import assert_all_once_in_order, send_numbered
from tests.kafka.secured_clients import values
from tests.kerberos.kdc import REALM, Kdc

PER_S: Final = 2_000
RECORDS: Final = 20_000
AT_ONCE_S: Final = 2.0
HELD_UP_S: Final = 0.3
"""The longest that the event loop may go without a turn: far less than a KDC takes that does not answer."""


def options(
    kafka: SecuredKafka, listener: str, keytab: Path | None = None, user: str = "alice"
) -> ProducerOptions:
    """Return the options of a producer; without *keytab* it uses a ticket."""
    chosen: ProducerOptions = {
        "security_protocol": "SASL_SSL" if listener == "KERBEROS_TLS" else "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
    }
    if listener == "KERBEROS_TLS":
        chosen["ssl_truststore_certificates"] = kafka.authority.pem
    if keytab is not None:
        chosen["sasl_jaas_config"] = (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true"
            f' keyTab="{keytab}" principal="{user}@{REALM}";'
        )
    return chosen


@pytest.mark.parametrize("listener", ["KERBEROS", "KERBEROS_TLS"])
@pytest.mark.parametrize("acks", ["all", 0])
async def test_keytab_logs_in(
    kerberized: SecuredKafka, topic: str, keytab: Path, listener: str, acks: Literal["all", 0]
) -> None:
    chosen = options(kerberized, listener, keytab)
    chosen["acks"] = acks
    async with Producer(kerberized.at(listener), **chosen) as producer:
        await producer.send(topic, b"value")
    assert values(kerberized, topic, at_least=1) == [b"value"]


async def test_ticket_logs_in(
    kerberized: SecuredKafka, topic: str, kdc: Kdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{kdc.ticket('alice')}")
    async with Producer(kerberized.at("KERBEROS"), **options(kerberized, "KERBEROS")) as producer:
        await producer.send(topic, b"value")
    assert values(kerberized, topic) == [b"value"]


async def test_properties_file_of_a_jvm_client_logs_in(
    kerberized: SecuredKafka, topic: str, keytab: Path, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"bootstrap.servers={kerberized.at('KERBEROS')}\n"
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true \\\n"
        f'    keyTab="{keytab}" principal="alice@{REALM}";\n'
    )
    async with Producer.from_config(ProducerConfig.from_properties(file)) as producer:
        await producer.send(topic, b"value")
    assert values(kerberized, topic) == [b"value"]


async def test_aiokafka_compatible_producer_logs_in(
    kerberized: SecuredKafka, topic: str, kdc: Kdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{kdc.ticket('alice')}")
    async with AIOKafkaProducer(
        bootstrap_servers=kerberized.at("KERBEROS"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kafka",
    ) as producer:
        await producer.send_and_wait(topic, b"value")
    assert values(kerberized, topic) == [b"value"]


async def test_librdkafka_logs_in_with_the_same_keytab(
    kerberized: SecuredKafka, topic: str, kdc: Kdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This login succeeds, so the refusals of other tests have their intended cause."""
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{kdc.ticket('alice')}")
    async with TheirProducer(
        bootstrap_servers=kerberized.at("KERBEROS"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kafka",
    ) as producer:
        await producer.send_and_wait(topic, b"value")
    assert values(kerberized, topic) == [b"value"]


async def test_principal_of_the_ticket_may_write(kerberized: SecuredKafka, topic: str, kdc: Kdc) -> None:
    chosen = options(kerberized, "KERBEROS", kdc.keytab("bob"), "bob")
    async with Producer(kerberized.at("KERBEROS"), **chosen) as producer:
        with pytest.raises(TopicAuthorizationFailed):
            await producer.send(topic, b"value")


@pytest.mark.timeout(120)
async def test_reauthentication_harms_no_stream(
    kerberized: SecuredKafka, topic: str, keytab: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "aioproducer")
    began_at = time.monotonic()
    chosen = options(kerberized, "KERBEROS_REAUTH", keytab)
    async with Producer(kerberized.at("KERBEROS_REAUTH"), **chosen) as producer:
        await send_numbered(producer, topic, RECORDS, per_s=PER_S)
    lasted_s = time.monotonic() - began_at
    logins = [each for each in caplog.messages if each.startswith("connection.reauthenticated")]
    assert len(logins) >= int(lasted_s * 1_000 / REAUTH_MS)
    assert not [each for each in caplog.messages if each.startswith(("connection.lost", "connection.failed"))]
    await asyncio.to_thread(assert_all_once_in_order, kerberized, topic, RECORDS)


async def refusal(kafka: SecuredKafka, chosen: ProducerOptions) -> str:
    """Return the error of `start`, which is raised at once."""
    producer = Producer(kafka.at("KERBEROS"), **chosen)
    began_at = time.monotonic()
    try:
        with pytest.raises(AuthenticationFailed) as failure:
            await producer.start()
    finally:
        await producer.close()
    assert time.monotonic() - began_at < AT_ONCE_S
    assert not failure.value.fatal
    said = str(failure.value)
    assert kafka.at("KERBEROS") in said
    assert "GSSAPI" in said
    return said


async def test_login_fails_without_a_ticket(kerberized: SecuredKafka) -> None:
    said = await refusal(kerberized, options(kerberized, "KERBEROS"))
    assert "Kerberos reports" in said
    assert "No Kerberos credentials available" in said
    assert "kinit" in said


async def test_login_fails_when_the_ticket_has_expired(
    kerberized: SecuredKafka, kdc: Kdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = kdc.ticket("alice", lives="1s")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")

    async def log_in_until_refused() -> None:
        while True:
            async with Producer(kerberized.at("KERBEROS"), **options(kerberized, "KERBEROS")):
                pass

    with pytest.raises(AuthenticationFailed, match="expired"):
        await asyncio.wait_for(log_in_until_refused(), 5)


async def test_login_fails_when_the_keytab_is_missing_or_empty(
    kerberized: SecuredKafka, tmp_path: Path
) -> None:
    keytab = tmp_path / "no.keytab"
    with pytest.raises(ConfigError, match=r"keyTab cannot be read: .*No such file.*no\.keytab"):
        Producer(kerberized.at("KERBEROS"), **options(kerberized, "KERBEROS", keytab))
    keytab.touch()  # and then there is nothing in it
    said = await refusal(kerberized, options(kerberized, "KERBEROS", keytab))
    assert str(keytab) in said


async def test_login_fails_when_the_key_was_changed(kerberized: SecuredKafka, kdc: Kdc) -> None:
    old = kdc.keytab("carol")
    kept = old.with_suffix(".old")
    kept.write_bytes(old.read_bytes())
    kdc.keytab("carol")
    said = await refusal(kerberized, options(kerberized, "KERBEROS", kept, "carol"))
    assert "Kerberos reports" in said


async def test_login_fails_when_the_service_is_unknown(kerberized: SecuredKafka, keytab: Path) -> None:
    chosen = options(kerberized, "KERBEROS", keytab)
    chosen["sasl_kerberos_service_name"] = "kafkaesque"
    said = await refusal(kerberized, chosen)
    assert "kafkaesque/localhost@LAB not found" in said
    assert "sasl_kerberos_service_name" in said


async def test_login_fails_with_a_ticket_for_another_service(
    kerberized: SecuredKafka, kdc: Kdc, keytab: Path
) -> None:
    """The KDC issues the ticket, and the broker refuses it."""
    kdc.keytab("elsewhere/localhost")
    chosen = options(kerberized, "KERBEROS", keytab)
    chosen["sasl_kerberos_service_name"] = "elsewhere"
    said = await refusal(kerberized, chosen)
    assert "sasl_kerberos_service_name" in said


async def test_silent_kdc_blocks_no_other_task(kerberized: SecuredKafka, kdc: Kdc, keytab: Path) -> None:
    loop = asyncio.get_running_loop()
    turns = [loop.time()]
    over = False

    def tick() -> None:
        turns.append(loop.time())
        if not over:
            loop.call_later(0.01, tick)

    chosen = options(kerberized, "KERBEROS", keytab)
    chosen["max_block_ms"] = 1_000
    chosen["socket_connection_setup_timeout_ms"] = 500
    tick()
    kdc.freeze()
    try:
        producer = Producer(kerberized.at("KERBEROS"), **chosen)
        began_at = time.monotonic()
        with pytest.raises(ConnectionFailed, match="GSSAPI"):
            await producer.start()
        assert time.monotonic() - began_at < AT_ONCE_S
        await producer.close()
    finally:
        kdc.thaw()
        over = True
    assert max(after - before for before, after in pairwise(turns)) < HELD_UP_S


async def test_principals_of_one_process_never_mix(kerberized: SecuredKafka, topic: str, kdc: Kdc) -> None:
    """Each login has its own ticket cache in memory, which is deleted after the login."""
    chosen = {user: options(kerberized, "KERBEROS", kdc.keytab(user), user) for user in ("alice", "carol")}

    async def log_in(user: str) -> None:
        async with Producer(kerberized.at("KERBEROS"), **chosen[user]) as producer:
            if user == "alice":
                await producer.send(topic, b"value")
            else:
                with pytest.raises(TopicAuthorizationFailed):
                    await producer.send(topic, b"value")

    for _ in range(20):
        await asyncio.gather(*map(log_in, chosen))
    assert values(kerberized, topic) == [b"value"] * 20
