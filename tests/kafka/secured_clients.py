"""Clients of `SecuredKafka`: options for each of its listeners, tokens and permissions."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, Unpack

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from aioproducer import Producer
from aioproducer._core.net.connection import Connection
from aioproducer.config import ProducerOptions
from aioproducer.config.object_kinds import SecurityProtocolName
from tests.kafka.apache.secured import PASSWORDS, PROTOCOLS, SecuredKafka
from tests.kafka.readback import await_records
from tests.unit._core.security.certificates import Issued

MechanismName: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
MECHANISMS: Final[tuple[MechanismName, ...]] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SOON_S: Final = 10.0
"""What a broker is told, it does within this time."""


def options(
    kafka: SecuredKafka, listener: str, mechanism: MechanismName | None = None, user: str = "alice"
) -> ProducerOptions:
    """Return the options of a producer for *listener* as *user*."""
    protocol: SecurityProtocolName = "PLAINTEXT" if listener == "PLAINTEXT" else PROTOCOLS[listener]
    chosen: ProducerOptions = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        chosen["ssl_truststore_certificates"] = kafka.authority.pem
    if listener == "MTLS":
        chosen |= identity(kafka.client(user))
    if mechanism is not None:
        chosen["sasl_mechanism"] = mechanism
    if mechanism == "OAUTHBEARER":
        chosen["sasl_oauth_token_provider"] = lambda: unsigned(user)
    elif mechanism is not None:
        chosen |= {"sasl_username": user, "sasl_password": PASSWORDS[user]}
    return chosen


def identity(issued: Issued) -> ProducerOptions:
    """Return the options that show a certificate."""
    return {"ssl_keystore_certificate_chain": issued.chain, "ssl_keystore_key": issued.key_pem}


def connect(
    kafka: SecuredKafka,
    listener: str,
    mechanism: MechanismName | None = None,
    **others: Unpack[ProducerOptions],
) -> Producer:
    """Return a producer for *listener*, as alice unless *others* have another user."""
    return Producer(kafka.at(listener), **(options(kafka, listener, mechanism) | others))


def unsigned(subject: str, lives_s: float = 3_600) -> str:
    """Return an unsigned JWT, which Kafka accepts by default."""
    now = time.time()
    claims = {"sub": subject, "iat": now, "exp": now + lives_s}
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(content: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def written(path: Path, *texts: str) -> str:
    """Write *texts* into a file and return its name, as options take it."""
    path.write_text("".join(texts))
    return str(path)


def values(kafka: SecuredKafka, topic: str, *, at_least: int = 0) -> list[bytes | None]:
    """Return the values once there are *at_least* values."""
    servers = kafka.kafka.bootstrap_servers
    return [record.value for record in await_records(servers, topic, lambda log: len(log) >= at_least)]


def admin(kafka: SecuredKafka) -> AdminClient:
    """Return an admin client with all permissions."""
    return AdminClient({"bootstrap.servers": kafka.kafka.bootstrap_servers, "log_level": 0})


def set_password(kafka: SecuredKafka, user: str, password: str) -> None:
    """Make *user*, for SCRAM-SHA-512, or give them another password."""
    kind = ScramMechanism.SCRAM_SHA_512
    _alter(kafka, UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, 4096), password.encode()))


def delete_user(kafka: SecuredKafka, user: str) -> None:
    """Let *user* of `set_password` log in no more."""
    _alter(kafka, UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512))


def _alter(kafka: SecuredKafka, change: UserScramCredentialAlteration) -> None:
    with admin(kafka) as client:
        client.alter_user_scram_credentials([change])[change.user].result(SOON_S)


def allow(kafka: SecuredKafka, user: str, operation: AclOperation, topics: Iterable[str]) -> None:
    """Let *user* do something with *topics*; return when the broker acts on it."""
    rules = [
        AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for topic in topics
    ]
    with admin(kafka) as client:
        for done in client.create_acls(rules).values():
            done.result(SOON_S)
        deadline = time.monotonic() + SOON_S
        while not set(rules) <= set(client.describe_acls(_rules_of(user)).result(SOON_S)):
            assert time.monotonic() < deadline, "the broker has not heard of the rules"


def _rules_of(user: str) -> AclBindingFilter:
    anything: Any = None  # which its types do not know of
    return AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        f"User:{user}",
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def reset(producer: Producer) -> None:
    """Lose all connections of *producer*, as when a network does."""
    for each in connections(producer):
        each._transport.abort()


def connections(producer: Producer) -> list[Connection]:
    """Return the open connections of a started producer."""
    assert producer._engine is not None
    return list(producer._engine.pool._open)
