"""An Apache Kafka with a listener for each security protocol and mechanism, and with ACLs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from tests.kafka.apache.broker import HOST as ADDRESS, QUICK_START, ApacheKafka, free_ports
from tests.unit._core.security.certificates import NOW, Authority, Issued

HOST: Final = "localhost"
PASSWORDS: Final = {"alice": "alices-password", "bob": "bobs-password"}
"""Alice may write to every topic; bob may write to none."""
REAUTH_MS: Final = 3_000
"""How long a session lasts on the listeners `REAUTH` and `REAUTH_SSL`."""

_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
Protocol: TypeAlias = Literal["SSL", "SASL_PLAINTEXT", "SASL_SSL"]
PROTOCOLS: Final[Mapping[str, Protocol]] = {
    "TLS": "SSL",
    "TLS12": "SSL",
    "MTLS": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASL_TLS": "SASL_SSL",
    "REAUTH": "SASL_PLAINTEXT",
    "REAUTH_TLS": "SASL_SSL",
}
"""The listeners beside PLAINTEXT, and what they speak."""


class SecuredKafka:
    """One broker; `at(listener)` is where to reach it. Its PLAINTEXT listener is for those who set it up and read back."""

    def __init__(
        self,
        *,
        listeners: Mapping[str, Protocol] | None = None,
        properties: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = (),
    ) -> None:
        """*listeners* and *properties* are added to those that it has; *jvm_options* to those of a quick start."""
        self.authority: Final = Authority()
        self._protocols = {**PROTOCOLS, **(listeners or {})}
        names = ("PLAINTEXT", "CONTROLLER", *self._protocols)
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.kafka: Final = ApacheKafka(
            properties={**self._properties(), **(properties or {})},
            jvm_options=(*QUICK_START, *jvm_options),
            format_options=[
                f"--add-scram={mechanism}=[name={user},password={password}]"
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
                for user, password in PASSWORDS.items()
            ],
            ports={1: self._ports["PLAINTEXT"]},
        )

    def at(self, listener: str) -> str:
        """Return the address of *listener*, to bootstrap from."""
        return f"{HOST}:{self._ports[listener]}"

    def client(self, name: str) -> Issued:
        """Return a certificate that the listener MTLS takes for `User:CN=name,O=lab`."""
        return self.authority.issue(common_name=name)

    def _properties(self) -> Mapping[str, str | int]:
        ports, broker = self._ports, self.authority.issue("localhost", "127.0.0.1")
        listeners = {name: f"{name}://{HOST}:{port}" for name, port in ports.items()}
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self._protocols}
        expired = self.authority.issue(
            "localhost", not_before=NOW - timedelta(days=9), not_after=NOW - timedelta(days=2)
        )
        of_listener = {
            **_key_store("", broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": _in_one_line(self.authority.pem),
            **_key_store("listener.name.expired.", expired),
            **_key_store("listener.name.elsewhere.", self.authority.issue("kafka.elsewhere.example")),
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.tls12.ssl.enabled.protocols": "TLSv1.2",
        }
        for listener in ("sasl", "sasl_tls", "reauth", "reauth_tls"):
            prefix = f"listener.name.{listener}."
            of_listener |= {
                f"{prefix}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
                f"{prefix}plain.sasl.jaas.config": f"{_PLAIN} required "
                + " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
                + ";",
                f"{prefix}scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
                f"{prefix}scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
                f"{prefix}oauthbearer.sasl.jaas.config": f'{_OAUTH} required unsecuredLoginStringClaim_sub="broker";',
            }
            if listener.startswith("reauth"):
                for mechanism in ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer"):
                    of_listener[f"{prefix}{mechanism}.connections.max.reauth.ms"] = str(REAUTH_MS)
        return {
            "listeners": ",".join(listeners.values()),
            "advertised.listeners": ",".join(at for name, at in listeners.items() if name != "CONTROLLER"),
            "controller.quorum.bootstrap.servers": f"{HOST}:{ports['CONTROLLER']}",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice;User:CN=alice,O=lab",
            "connection.failed.authentication.delay.ms": 0,
            "delegation.token.secret.key": "delegation",
            **of_listener,
        }


def with_tls(authority: Authority, plain: int, tls: int, controller: int) -> dict[str, str | int]:
    """Return the properties of a broker that listens for TLS beside PLAINTEXT, on these ports."""
    listeners = f"PLAINTEXT://{ADDRESS}:{plain},SSL://{ADDRESS}:{tls}"
    return {
        "listeners": f"{listeners},CONTROLLER://{ADDRESS}:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": f"{ADDRESS}:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        **_key_store("", authority.issue(ADDRESS)),
    }


def _key_store(prefix: str, issued: Issued) -> dict[str, str | int]:
    return {
        f"{prefix}ssl.keystore.type": "PEM",
        f"{prefix}ssl.keystore.key": _in_one_line(issued.key_pem),
        f"{prefix}ssl.keystore.certificate.chain": _in_one_line(issued.chain),
    }


def _in_one_line(pem: str) -> str:
    return pem.strip().replace("\n", "\\n")
