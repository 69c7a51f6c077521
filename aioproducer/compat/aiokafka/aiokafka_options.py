"""aiokafka's options in ours."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from aioproducer._core.security.gssapi import Gssapi, KerberosSettings
from aioproducer._core.security.mechanism import Broker
from aioproducer._core.settings import BatchingSettings
from aioproducer.config import ProducerConfig

DEFAULT_PORT: Final = 9092
"""The port of a server that is given without one."""

NEVER_MS: Final = 2**31 - 1
"""24 days: an idempotent producer of aiokafka's waits for ever for the end of a transaction."""

BUFFER_MEMORY: Final = 33_554_432
"""Kafka's default. aiokafka has no such limit, so it is raised where it would refuse records."""


class _KeepsTrying(ProducerConfig):
    """Of an idempotent producer, which keeps trying; but as long as the delivery may take where a partition has no leader."""

    __slots__ = ()

    def batching_settings(self) -> BatchingSettings:
        return super().batching_settings()._replace(outlives_deadline_if_led=True)


def our_config(
    *,
    bootstrap_servers: str | Sequence[str],
    acks: Any,
    enable_idempotence: bool,
    request_timeout_ms: int,
    max_batch_size: int,
    max_request_size: int,
    linger_ms: float,
    connections_max_idle_ms: int | None,
    transactional_id: str | None = None,
    transaction_timeout_ms: int = 60_000,
    **passed_through: Any,
) -> ProducerConfig:
    """Return the configuration that does what aiokafka's options say; *passed_through* mean the same here.

    There, `request_timeout_ms` bounds three things: the wait before the append, the delivery, and a request.

    Raises: ConfigError (a ValueError).
    """
    if transactional_id is not None:
        enable_idempotence = True
        passed_through |= {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": transaction_timeout_ms,
        }
    if acks is None or type(acks) is object:  # aiokafka's own default, which programs hand on
        acks = "all" if enable_idempotence else 1
    return (_KeepsTrying if enable_idempotence else ProducerConfig)(
        bootstrap_servers=with_ports(bootstrap_servers),
        acks=acks,
        enable_idempotence=enable_idempotence,
        request_timeout_ms=request_timeout_ms,
        max_block_ms=request_timeout_ms,
        delivery_timeout_ms=request_timeout_ms + math.ceil(linger_ms),
        batch_size=max_batch_size,
        max_request_size=max_request_size,
        buffer_memory=max(BUFFER_MEMORY, 2 * max_request_size),
        linger_ms=linger_ms,
        connections_max_idle_ms=-1 if connections_max_idle_ms is None else connections_max_idle_ms,
        **passed_through,
    )


def with_ports(servers: str | Sequence[str]) -> list[str]:
    """Return *servers*, `host[:port]`, each with a port. What is empty, say after a last comma, is left out."""
    each = servers.split(",") if isinstance(servers, str) else servers
    stripped = (server.strip() for server in each)
    return [server if _has_port(server) else f"{server}:{DEFAULT_PORT}" for server in stripped if server]


def _has_port(server: str) -> bool:
    return ":" in server.rpartition("]")[2]


PROTOCOLS: Final = ("SSL", "PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL")
BY_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (*BY_PASSWORD, "GSSAPI", "OAUTHBEARER")


def our_security(
    *,
    security_protocol: str,
    ssl_context: Any,
    sasl_mechanism: str,
    sasl_plain_username: str | None,
    sasl_plain_password: str | None,
    sasl_kerberos_service_name: str,
    sasl_kerberos_domain_name: str | None,
    sasl_oauth_token_provider: Any,
) -> dict[str, Any]:
    """Return our options. What *security_protocol* has no use for is left out: there, nobody mentions it either.

    Raises: ValueError, as aiokafka does.
    """
    if security_protocol not in PROTOCOLS:
        raise ValueError("`security_protocol` should be SSL or PLAINTEXT, SASL_SSL or SASL_PLAINTEXT")
    ours: dict[str, Any] = {"security_protocol": security_protocol}
    if security_protocol.endswith("SSL"):
        if ssl_context is None:
            raise ValueError(f"`ssl_context` is mandatory if security_protocol=={security_protocol!r}")
        ours["ssl_context"] = ssl_context
    if not security_protocol.startswith("SASL"):
        return ours
    if sasl_mechanism not in MECHANISMS:
        raise ValueError(f"sasl_mechanism should be one of {', '.join(MECHANISMS)}")
    ours["sasl_mechanism"] = sasl_mechanism
    if sasl_mechanism in BY_PASSWORD:
        if sasl_plain_username is None or sasl_plain_password is None:
            raise ValueError(f"sasl_plain_username and sasl_plain_password are required for {sasl_mechanism}")
        ours |= {"sasl_username": sasl_plain_username, "sasl_password": sasl_plain_password}
    elif sasl_mechanism == "OAUTHBEARER":
        ours["sasl_oauth_token_provider"] = _asking(sasl_oauth_token_provider)
    else:
        ours["sasl_kerberos_service_name"] = sasl_kerberos_service_name
        if sasl_kerberos_domain_name is not None:
            ours["sasl_mechanism"] = partial(
                _InDomain, KerberosSettings(sasl_kerberos_service_name), sasl_kerberos_domain_name
            )
    return ours


class _Provided(NamedTuple):
    value: str
    extensions: Mapping[str, str]
    expires_at: None = None
    """Nobody knows: it is asked for at each login, as there."""


def _asking(provider: Any) -> Callable[[], Awaitable[_Provided]]:
    """Return what asks an AbstractTokenProvider, ours or aiokafka's."""
    if not callable(getattr(provider, "token", None)):
        raise ValueError(  # noqa: TRY004 - as in aiokafka
            "sasl_oauth_token_provider has to be an AbstractTokenProvider, with a method token()"
        )

    async def ask() -> _Provided:
        extensions = getattr(provider, "extensions", None)
        return _Provided(await provider.token(), extensions() if callable(extensions) else {})

    return ask


class _InDomain(Gssapi):
    """Kerberos where the service is known by another name than the broker's."""

    def __init__(self, settings: KerberosSettings, domain: str) -> None:
        super().__init__(settings)
        self._domain = domain

    async def start(self, broker: Broker) -> bytes:
        return await super().start(broker._replace(host=self._domain))
