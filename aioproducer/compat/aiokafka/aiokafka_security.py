"""aiokafka's options for TLS and logins, in ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from aioproducer._core.security.gssapi import Gssapi, KerberosSettings
from aioproducer._core.security.mechanism import Broker

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
