"""Settings of TLS and SASL, made from the configuration."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote, urlsplit

from aioproducer._core.backoff import Backoff
from aioproducer._core.security.credentials import CredentialsCallable, Login
from aioproducer._core.security.gssapi import KerberosSettings
from aioproducer._core.security.mechanism import MechanismFactory
from aioproducer._core.security.oauthbearer import TokenProvider
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.stores import Source

SslContextSource: TypeAlias = "ssl.SSLContext | Callable[[], ssl.SSLContext | Awaitable[ssl.SSLContext]]"

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Settings of TLS: truststore, client certificate, versions and cipher suites."""

    context: SslContextSource | None = None
    """Context of the user, which replaces every other setting."""
    truststore: Source | None = None
    """Trusted certificates; None for the authorities of the system."""
    truststore_type: str | None = None
    truststore_password: Secret | None = None
    keystore: Source | None = None
    """Certificate and key of the client; None without them, or with *certificate_chain* and *key*."""
    certificate_chain: Source | None = None
    key: Source | None = None
    keystore_type: str | None = None
    keystore_password: Secret | None = None
    key_password: Secret | None = None
    check_hostname: bool = True
    versions: tuple[str, ...] = tuple(VERSIONS)
    cipher_suites: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """Sources of certificates and keys."""
        each = (self.truststore, self.keystore, self.certificate_chain, self.key)
        return tuple(source for source in each if source is not None)

    @property
    def has_identity(self) -> bool:
        """True with a client certificate."""
        return self.keystore is not None or self.key is not None


@dataclass(frozen=True, slots=True)
class AssertionSettings:
    """Settings of an assertion: a file with it, or a private key that signs it."""

    file: str | None = None
    private_key_file: str | None = None
    private_key_passphrase: Secret | None = None
    template_file: str | None = None
    """File with a JSON object of `header` and `payload`, the base of the assertion."""
    algorithm: str = "RS256"
    audience: str | None = None
    issuer: str | None = None
    subject: str | None = None
    with_jti: bool = False
    lives_s: int = 300
    valid_before_s: int = 60


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Settings of a token endpoint."""

    url: str
    backoff: Backoff
    """Pauses between attempts, which end after the maximum pause since the first attempt."""
    client_id: str | None = None
    client_secret: Secret | None = None
    assertion: AssertionSettings | None = None
    jwt_bearer: bool = False
    """True if the assertion is the grant; False if it replaces the client secret."""
    scope: str | None = None
    urlencode: bool = False
    """True to form-encode id and secret in the Basic header (RFC 6749), which few endpoints expect."""
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class UnsecuredSettings:
    """Settings of unsigned tokens."""

    claims: Mapping[str, Any] = field(default_factory=dict)
    lives_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """Settings of SASL."""

    mechanism: str | MechanismFactory
    backoff: Backoff
    """Pauses between attempts to renew a token."""
    credentials: Login | CredentialsCallable | None = None
    """Credentials of PLAIN and SCRAM."""
    token_auth: bool = False
    """True if the credentials are a delegation token."""
    tokens: TokenProvider | EndpointSettings | UnsecuredSettings | str | None = None
    """Token source of OAUTHBEARER; a str is the `file:` URL of a token."""
    extensions: Mapping[str, str] = field(default_factory=dict)
    kerberos: KerberosSettings | None = None
    login_timeout_s: float = 10.0
    """Time that a callable has to return a token or credentials."""


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Security of connections; both None for PLAINTEXT."""

    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None


def file_of(url: str) -> str | None:
    """Return the path of a `file:` *url*, in any spelling; None if *url* has another scheme."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else None


def file_url(path: str) -> str:
    """Return the `file:` URL of *path*, which is absolute."""
    return f"file://{quote(path)}"


def weaknesses(settings: SecuritySettings) -> Iterator[tuple[str, str]]:
    """Yield each weak setting with its risk, for one WARNING each at the start."""
    tls, sasl = settings.tls, settings.sasl
    if tls is not None:
        if isinstance(tls.context, ssl.SSLContext):
            yield from weaknesses_of_context(tls.context)
        elif not tls.check_hostname:
            yield (
                "ssl_endpoint_identification_algorithm=''",
                "any holder of a trusted certificate can pose as a broker; leave the option out",
            )
    if sasl is None:
        return
    if tls is None and sasl.mechanism in {"PLAIN", "OAUTHBEARER"}:
        secret = "password" if sasl.mechanism == "PLAIN" else "token"
        yield (
            f"sasl_mechanism={sasl.mechanism} security_protocol=SASL_PLAINTEXT",
            f"the {secret} crosses the network in clear text; use SASL_SSL",
        )
    match sasl.tokens:
        case EndpointSettings(url=url) if url.lower().startswith("http:"):
            yield (
                "sasl_oauthbearer_token_endpoint_url=http:",
                "secret and token cross the network in clear text; use https",
            )
        case UnsecuredSettings():
            yield "sasl_jaas_config=unsecuredLogin", "anyone can make such a token; use signed tokens"
        case _:
            pass


def weaknesses_of_context(context: ssl.SSLContext) -> Iterator[tuple[str, str]]:
    """Yield each weak setting of a user's *context* with its risk."""
    if context.verify_mode is ssl.CERT_NONE:
        yield "ssl_context.verify_mode=CERT_NONE", "any server can pose as a broker; use CERT_REQUIRED"
    elif not context.check_hostname:
        yield (
            "ssl_context.check_hostname=False",
            "any holder of a trusted certificate can pose as a broker; use check_hostname=True",
        )
    older = {
        ssl.TLSVersion.SSLv3: ssl.OP_NO_SSLv3,
        ssl.TLSVersion.TLSv1: ssl.OP_NO_TLSv1,
        ssl.TLSVersion.TLSv1_1: ssl.OP_NO_TLSv1_1,
    }
    if any(
        context.minimum_version <= version and not context.options & off for version, off in older.items()
    ):
        yield (
            f"ssl_context.minimum_version={context.minimum_version.name}",
            "TLS before 1.2 has known attacks; use minimum_version=TLSVersion.TLSv1_2",
        )
