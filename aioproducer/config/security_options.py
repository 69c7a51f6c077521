"""Security options: name, accepted and stored types, default, and meaning."""

# Each start of a producer imports this module and options.py. `from __future__ import annotations` is missing, because
# typing would compile each annotation of a TypedDict. ProducerConfig has its own `__repr__` and `__eq__`, because
# dataclasses would generate and compile methods with a hundred names for two classes.
# ruff: noqa: I002 - typing would compile each annotation
import os
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict

from aioproducer._core.security.secret import Secret
from aioproducer._core.steps import Log
from aioproducer.config.kinds import (
    Choice,
    Immutable,
    Integer,
    flag,
    has_options,
    int_ms,
    long_ms,
    option,
    optional,
)
from aioproducer.config.object_kinds import (
    PROTOCOLS,
    STORES,
    TLS_VERSIONS,
    Allowed,
    CallableKind,
    HostnameCheck,
    Jaas,
    MechanismKind,
    MechanismName,
    PathKind,
    SecretKind,
    SecurityProtocolName,
    SslContext,
    Text,
    TlsVersions,
    Url,
    Words,
)

if TYPE_CHECKING:  # modules that are rarely needed, and slow to import
    from aioproducer._core.security.mechanism import MechanismFactory
    from aioproducer._core.security.oauthbearer import TokenProvider
    from aioproducer._core.security.passwords import CredentialsCallable
    from aioproducer._core.security.security_settings import SslContextSource

log: Final = Log(__name__)

Path: TypeAlias = str | os.PathLike[str]
ENDPOINT: Final = "sasl_oauthbearer_token_endpoint_url"
SOURCES: Final = frozenset(
    {
        ENDPOINT,
        "sasl_oauthbearer_assertion_file",
        "sasl_oauthbearer_assertion_private_key_file",
        "sasl_oauthbearer_assertion_template_file",
    }
)
"""Options that name a file or URL whose content or answer is sent to a token endpoint or broker."""
ALLOWED_FILES: Final = "sasl_oauthbearer_allowed_files"
ALLOWED_URLS: Final = "sasl_oauthbearer_allowed_urls"


class SecurityOptionsGiven(TypedDict, total=False):
    """Keyword arguments about security; `SecurityOptions` documents each option."""

    security_protocol: SecurityProtocolName
    ssl_context: "SslContextSource | None"
    ssl_truststore_location: Path | None
    ssl_truststore_certificates: str | None
    ssl_truststore_type: str | None
    ssl_truststore_password: str | Secret | None
    ssl_keystore_location: Path | None
    ssl_keystore_certificate_chain: str | Secret | None
    ssl_keystore_key: str | Secret | None
    ssl_keystore_type: str | None
    ssl_keystore_password: str | Secret | None
    ssl_key_password: str | Secret | None
    ssl_endpoint_identification_algorithm: Literal["https", ""]
    ssl_enabled_protocols: str | Sequence[str]
    ssl_cipher_suites: str | Sequence[str] | None
    sasl_mechanism: "MechanismName | MechanismFactory | None"
    sasl_username: str | None
    sasl_password: str | Secret | None
    sasl_credentials: "CredentialsCallable | None"
    sasl_jaas_config: str | Secret | None
    sasl_kerberos_service_name: str | None
    sasl_oauth_token_provider: "TokenProvider | None"
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | Secret | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_jwt_retriever_class: str | None
    sasl_oauthbearer_assertion_file: Path | None
    sasl_oauthbearer_assertion_private_key_file: Path | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | Secret | None
    sasl_oauthbearer_assertion_template_file: Path | None
    sasl_oauthbearer_assertion_algorithm: str
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_claim_jti_include: bool
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_allowed_files: str | Sequence[Path] | None
    sasl_oauthbearer_allowed_urls: str | Sequence[str] | None
    sasl_login_connect_timeout_ms: int
    sasl_login_read_timeout_ms: int
    sasl_login_retry_backoff_ms: int
    sasl_login_retry_backoff_max_ms: int


@has_options
class SecurityOptions(Immutable):
    """Security options, with Kafka's names and `_` for `.`. Options of Java classes have callables as counterparts."""

    security_protocol: SecurityProtocolName = option(
        "PLAINTEXT",
        Choice(PROTOCOLS),
        "Protocol of broker connections: TLS (`SSL`), login (`SASL_PLAINTEXT`), TLS and login (`SASL_SSL`), or plain"
        " TCP without login (`PLAINTEXT`).",
    )
    ssl_context: "SslContextSource | None" = optional(
        SslContext(),
        "Your own context, in place of the other `ssl_*` options. A callable is called for each connection.",
    )
    ssl_truststore_location: str | None = optional(
        PathKind("ssl_truststore_certificates"),
        "File with trusted CA certificates (PEM or PKCS12), or a directory hashed by `openssl rehash`. Defaults to the system's trust store.",
    )
    ssl_truststore_certificates: str | None = optional(
        Text(), "Trusted CA certificates as PEM text, or the path of a PEM file."
    )
    ssl_truststore_type: Literal["PEM", "PKCS12", "JKS"] | None = optional(
        Choice(STORES, optional=True), "Format of the truststore file. None: detected from the content."
    )
    ssl_truststore_password: Secret | None = optional(SecretKind(), "Password of a PKCS12 truststore.")
    ssl_keystore_location: str | None = optional(
        PathKind("ssl_keystore_certificate_chain and ssl_keystore_key"),
        "File with the client certificate and its key: PEM (in any order) or PKCS12.",
    )
    ssl_keystore_certificate_chain: Secret | None = optional(
        SecretKind(), "Client certificate as PEM text, or the path of a PEM file. Needs `ssl_keystore_key`."
    )
    ssl_keystore_key: Secret | None = optional(
        SecretKind(), "Private key of the client certificate as PEM text, or the path of a PEM file."
    )
    ssl_keystore_type: Literal["PEM", "PKCS12", "JKS"] | None = optional(
        Choice(STORES, optional=True), "Format of the keystore file. None: detected from the content."
    )
    ssl_keystore_password: Secret | None = optional(SecretKind(), "Password of a PKCS12 keystore.")
    ssl_key_password: Secret | None = optional(SecretKind(), "Password of the client's private key.")
    ssl_endpoint_identification_algorithm: Literal["https", ""] = option(
        "https",
        HostnameCheck(("https", "")),
        "`https` (default) requires the broker's host name in its certificate. An empty string accepts any"
        " name.",
    )
    ssl_enabled_protocols: tuple[str, ...] = option(
        TLS_VERSIONS, TlsVersions(TLS_VERSIONS), "Allowed TLS versions."
    )
    ssl_cipher_suites: tuple[str, ...] = option(
        (),
        Words(),
        "Allowed cipher suites, in Kafka's or OpenSSL's names. Empty (default): OpenSSL's choice.",
    )
    sasl_mechanism: "MechanismName | MechanismFactory | None" = optional(
        MechanismKind(), "Login mechanism. Required if `security_protocol` has SASL."
    )
    sasl_username: str | None = optional(Text(), "User name for PLAIN and SCRAM.")
    sasl_password: Secret | None = optional(SecretKind(), "Password of `sasl_username`.")
    sasl_credentials: "CredentialsCallable | None" = optional(
        CallableKind("a user name and a password"),
        "Returns user name and password, in place of `sasl_username` and `sasl_password`. Called at each"
        " authentication.",
    )
    sasl_jaas_config: Secret | None = optional(
        Jaas(), "Login of a Java client, for PLAIN, SCRAM, OAUTHBEARER or GSSAPI."
    )
    sasl_kerberos_service_name: str | None = optional(
        Text(), "Kerberos service name of the brokers, for GSSAPI; usually `kafka`."
    )
    sasl_oauth_token_provider: "TokenProvider | None" = optional(
        CallableKind("a token as str, or an object with value, expires_at and extensions"),
        "Returns tokens for OAUTHBEARER. All connections share a token.",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = optional(
        Url(), "URL of the token endpoint for OAUTHBEARER. A file: URL names a file with a token."
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = optional(Text(), "OAuth client ID.")
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = optional(
        SecretKind(), "OAuth client secret."
    )
    sasl_oauthbearer_scope: str | None = optional(Text(), "Scope of the token request.")
    sasl_oauthbearer_header_urlencode: bool = flag(
        False, "Form-encodes the client ID and secret in the Basic header of the token request."
    )
    sasl_oauthbearer_jwt_retriever_class: str | None = optional(
        Text(),
        "Kafka's class that gets tokens: ClientCredentials-, JwtBearer-, File- or DefaultJwtRetriever.",
    )
    sasl_oauthbearer_assertion_file: str | None = optional(
        PathKind(),
        "File with a JWT that replaces the client secret, or is exchanged for the token (jwt-bearer).",
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = optional(
        PathKind(),
        "PEM file with the private key that signs the JWT, in place of `sasl_oauthbearer_assertion_file`.",
    )
    sasl_oauthbearer_assertion_private_key_passphrase: Secret | None = optional(
        SecretKind(), "Passphrase of `sasl_oauthbearer_assertion_private_key_file`."
    )
    sasl_oauthbearer_assertion_template_file: str | None = optional(
        PathKind(), "JSON file with the initial `header` and `payload` of the JWT."
    )
    sasl_oauthbearer_assertion_algorithm: Literal["RS256", "ES256"] = option(
        "RS256", Choice(("RS256", "ES256")), "Signature algorithm of the JWT."
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = optional(Text(), "Audience of the JWT.")
    sasl_oauthbearer_assertion_claim_iss: str | None = optional(Text(), "Issuer of the JWT.")
    sasl_oauthbearer_assertion_claim_sub: str | None = optional(Text(), "Subject of the JWT.")
    sasl_oauthbearer_assertion_claim_jti_include: bool = flag(False, "Adds a unique id to each JWT.")
    sasl_oauthbearer_assertion_claim_exp_seconds: int = option(
        300, Integer(0, 86_400, unit="s"), "Lifetime of the JWT."
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = option(
        60,
        Integer(0, 3_600, unit="s"),
        "Time before the current time at which the JWT becomes valid, to allow for clock differences.",
    )
    sasl_oauthbearer_allowed_files: tuple[str, ...] | None = optional(
        Allowed(),
        "Exact paths that a file, mapping or command line may name as `file:` endpoint or assertion."
        " Keyword argument only. Defaults to AIOPRODUCER_SASL_OAUTHBEARER_ALLOWED_FILES, or to no file.",
    )
    sasl_oauthbearer_allowed_urls: tuple[str, ...] | None = optional(
        Allowed(),
        "Exact URLs that a file, mapping or command line may name as token endpoint. Keyword argument only. Defaults"
        " to AIOPRODUCER_SASL_OAUTHBEARER_ALLOWED_URLS, or to any URL.",
    )
    sasl_login_connect_timeout_ms: int = int_ms(
        10_000, "Time limit of a connection attempt to the token endpoint.", low=1
    )
    sasl_login_read_timeout_ms: int = int_ms(
        10_000,
        "Time limit of each read of the token endpoint's response. A whole request may take this time plus"
        " `sasl_login_connect_timeout_ms`.",
        low=1,
    )
    sasl_login_retry_backoff_ms: int = long_ms(
        100,
        "Initial delay before the token request is retried. Doubles with each consecutive failure, up to"
        " `sasl_login_retry_backoff_max_ms`.",
    )
    sasl_login_retry_backoff_max_ms: int = long_ms(
        10_000,
        "Upper bound of the exponential backoff that starts at `sasl_login_retry_backoff_ms`. A login that"
        " has waited for this time fails.",
    )


def parts_of_protocol(options: SecurityOptions) -> tuple[bool, bool]:
    """Return two flags: True if connections use TLS, and True if connections authenticate."""
    return options.security_protocol.endswith("SSL"), options.security_protocol.startswith("SASL")


def warn_of_unused(options: SecurityOptions) -> None:
    """Log a warning for each option that has no effect under `security_protocol`. A JVM client logs no such warning."""
    tls, sasl = parts_of_protocol(options)
    for each in fields(SecurityOptions):
        prefix = each.name.partition("_")[0]
        unused = (prefix == "ssl" and not tls) or (prefix == "sasl" and not sasl)
        if unused and getattr(options, each.name) != each.default:
            log.warning("config.ignored name=%s by=security_protocol", each.name)
