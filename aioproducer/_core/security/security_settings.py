"""Settings of TLS and SASL, made from the configuration."""

from __future__ import annotations

import re
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote, urlsplit

from aioproducer._core.backoff import Backoff
from aioproducer._core.security.gssapi import KerberosSettings
from aioproducer._core.security.mechanism import MechanismFactory
from aioproducer._core.security.oauthbearer import TokenProvider
from aioproducer._core.security.passwords import CredentialsCallable, Login
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.stores import Source

SslContextSource: TypeAlias = "ssl.SSLContext | Callable[[], ssl.SSLContext | Awaitable[ssl.SSLContext]]"

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Settings of TLS: truststore, client certificate, versions and cipher suites."""

    context: SslContextSource | None = None
    """SSL context of the user in place of every other setting; None for the other settings."""
    truststore: Source | None = None
    """Trusted certificates; None for the authorities of the system."""
    truststore_type: str | None = None
    truststore_password: Secret | None = None
    keystore: Source | None = None
    """Certificate and key of the client; None without a client certificate, or with *certificate_chain* and *key*."""
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
    """Settings of an assertion: a file with the assertion, or a private key that signs the assertion."""

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
    """Pauses between attempts; the attempts end once the maximum pause has passed since the first attempt."""
    client_id: str | None = None
    client_secret: Secret | None = None
    assertion: AssertionSettings | None = None
    jwt_bearer: bool = False
    """True if the assertion is the grant; False if the assertion replaces the client secret."""
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
    """Security of connections; *tls* and *sasl* are None for PLAINTEXT."""

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
    """Yield each weak setting with its risk; the start of the producer logs one WARNING per weak setting."""
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


# `sasl.jaas.config`: one line of Java's login configuration, for example
# org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="…";

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |"(?P<double>(?:\\.|[^"\\\n])*)"
    |'(?P<single>(?:\\.|[^'\\\n])*)'
    |(?P<sign>[=;])
    |(?P<word>[^\s=;"']+)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True)
class LoginModule:
    """Login module with its options, which are hidden in the repr because they may be secrets."""

    name: str
    """Class name without package."""
    options: dict[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """Read the one login module of *text*. Raises: ValueError, whose text contains no part of *text*."""
    tokens = _tokens(text)
    name, flag = (tokens.pop(0) if tokens else ("", "") for _ in range(2))
    if name[0] != "text" or flag[0] != "text":
        raise ValueError("is no login module; expected: class, the word required, options, and a semicolon")
    if flag[1].lower() not in _FLAGS:
        raise ValueError(f"needs one of {', '.join(_FLAGS)} behind the class")
    options: dict[str, str] = {}
    while tokens and tokens[0] != ("sign", ";"):
        option, equals, value = (tokens.pop(0) if tokens else ("", "") for _ in range(3))
        if option[0] != "text" or equals != ("sign", "=") or value[0] != "text":
            raise ValueError(
                f'is malformed after {len(options)} options; expected name="value", with the value in quotes'
            )
        if option[1] in options:
            raise ValueError(f"gives {option[1]} twice")
        options[option[1]] = value[1]
    if not tokens:
        raise ValueError("has to end in a semicolon")
    if len(tokens) > 1:
        raise ValueError("has more than one login module; expected one")
    return LoginModule(name[1].rpartition(".")[2], options)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    pos = 0
    while pos < len(text):
        match = _TOKEN.match(text, pos)
        if match is None:
            raise ValueError("has an open quotation mark")
        pos = match.end()
        kind = match.lastgroup or ""
        if kind in {"double", "single"}:
            tokens.append(("text", _ESCAPE.sub(_unescaped, match[kind])))
        elif kind != "space":
            tokens.append(("sign" if kind == "sign" else "text", match[kind]))
    return tokens


def _unescaped(escape: re.Match[str]) -> str:
    escaped = escape[1]
    if escaped[0].isdigit() and escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _SIMPLE.get(escaped, escaped)
