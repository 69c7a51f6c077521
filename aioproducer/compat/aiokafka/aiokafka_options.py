"""Conversion of aiokafka's options, TLS and SASL included, to a `ProducerConfig`."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from aioproducer._core.address import Address
from aioproducer._core.security.gssapi import Gssapi, KerberosSettings
from aioproducer._core.settings import BatchingSettings
from aioproducer.config import ProducerConfig

DEFAULT_PORT: Final = 9092
"""Port of a server without a port."""

UNLIMITED_MS: Final = 2**31 - 1
"""Time limit for the end of a transaction, in milliseconds (24 days). aiokafka's idempotent producer waits without
limit."""

BUFFER_MEMORY: Final = 33_554_432
"""Minimum of `buffer_memory`: Kafka's default, in bytes. aiokafka has no memory limit, so large requests raise the
value."""


class _IdempotentConfig(ProducerConfig):
    """Configuration of an idempotent producer: batches outlive the delivery timeout while their partition has a leader."""

    __slots__ = ()

    def batching_settings(self) -> BatchingSettings:
        return super().batching_settings()._replace(outlives_deadline_if_led=True)


def translated_config(
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
    """Return the configuration with the effect of aiokafka's options; *passed_through* need no conversion.

    aiokafka's `request_timeout_ms` limits the wait before the append, the delivery, and a request.

    Raises: ConfigError (a ValueError).
    """
    if transactional_id is not None:
        enable_idempotence = True
        passed_through |= {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": transaction_timeout_ms,
        }
    if acks is None or type(acks) is object:  # aiokafka's default object, which programs pass on
        acks = "all" if enable_idempotence else 1
    return (_IdempotentConfig if enable_idempotence else ProducerConfig)(
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
    """Return *servers* (`host[:port]`), each with a port. Empty entries are dropped."""
    each = servers.split(",") if isinstance(servers, str) else servers
    stripped = (server.strip() for server in each)
    return [server if _has_port(server) else f"{server}:{DEFAULT_PORT}" for server in stripped if server]


def _has_port(server: str) -> bool:
    return ":" in server.rpartition("]")[2]


PROTOCOLS: Final = ("SSL", "PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL")
BY_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (*BY_PASSWORD, "GSSAPI", "OAUTHBEARER")


def translated_security(
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
    """Return the security options of aioproducer. Options without effect on *security_protocol* are dropped silently.

    Raises: ValueError, as in aiokafka.
    """
    if security_protocol not in PROTOCOLS:
        raise ValueError("`security_protocol` should be SSL or PLAINTEXT, SASL_SSL or SASL_PLAINTEXT")
    options: dict[str, Any] = {"security_protocol": security_protocol}
    if security_protocol.endswith("SSL"):
        if ssl_context is None:
            raise ValueError(f"`ssl_context` is mandatory if security_protocol=={security_protocol!r}")
        options["ssl_context"] = ssl_context
    if not security_protocol.startswith("SASL"):
        return options
    if sasl_mechanism not in MECHANISMS:
        raise ValueError(f"sasl_mechanism should be one of {', '.join(MECHANISMS)}")
    options["sasl_mechanism"] = sasl_mechanism
    if sasl_mechanism in BY_PASSWORD:
        if sasl_plain_username is None or sasl_plain_password is None:
            raise ValueError(f"sasl_plain_username and sasl_plain_password are required for {sasl_mechanism}")
        options |= {"sasl_username": sasl_plain_username, "sasl_password": sasl_plain_password}
    elif sasl_mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = _token_provider(sasl_oauth_token_provider)
    else:
        options["sasl_kerberos_service_name"] = sasl_kerberos_service_name
        if sasl_kerberos_domain_name is not None:
            options["sasl_mechanism"] = partial(
                _DomainGssapi, KerberosSettings(sasl_kerberos_service_name), sasl_kerberos_domain_name
            )
    return options


class _Provided(NamedTuple):
    value: str
    extensions: Mapping[str, str]
    expires_at: None = None
    """Unknown, so each authentication calls the provider, as in aiokafka."""


def _token_provider(provider: Any) -> Callable[[], Awaitable[_Provided]]:
    """Return a token provider that calls an AbstractTokenProvider of this package or of aiokafka."""
    if not callable(getattr(provider, "token", None)):
        raise ValueError(  # noqa: TRY004 - as in aiokafka
            "sasl_oauth_token_provider has to be an AbstractTokenProvider, with a method token()"
        )

    async def provide() -> _Provided:
        extensions = getattr(provider, "extensions", None)
        return _Provided(await provider.token(), extensions() if callable(extensions) else {})

    return provide


class _DomainGssapi(Gssapi):
    """Kerberos with another host name than the broker's."""

    def __init__(self, settings: KerberosSettings, domain: str) -> None:
        super().__init__(settings)
        self._domain = domain

    async def start(self, broker: Address) -> bytes:
        return await super().start(broker._replace(host=self._domain))
