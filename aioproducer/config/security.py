"""The settings of TLS and authentication, from options that are checked together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from importlib.util import find_spec
from math import isfinite
from typing import Any, Final

from aioproducer._core.backoff import Backoff
from aioproducer._core.extras import needs
from aioproducer._core.security.gssapi import KerberosSettings
from aioproducer._core.security.oauthbearer import TokenProvider
from aioproducer._core.security.passwords import CredentialsCallable, Login
from aioproducer._core.security.secret import Secret, without_frames
from aioproducer._core.security.security_settings import (
    AssertionSettings,
    EndpointSettings,
    LoginModule,
    SaslSettings,
    SecuritySettings,
    TlsSettings,
    UnsecuredSettings,
    file_of,
    file_url,
    parse_jaas,
)
from aioproducer._core.security.stores import Source, StoreError, open_regular
from aioproducer._core.steps import Log
from aioproducer.config.object_kinds import MECHANISMS
from aioproducer.config.security_options import (
    ALLOWED_FILES,
    ALLOWED_URLS,
    ENDPOINT,
    SOURCES,
    SecurityOptions,
    parts_of_protocol,
)
from aioproducer.errors import ConfigError

log: Final = Log(__name__)

_MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
    "IAMLoginModule": ("AWS_MSK_IAM",),
}
"""Java's login modules with a counterpart in this package. For AWS's module only the name is used."""
_KERBEROS_IGNORED: Final = frozenset(
    "useKeyTab storeKey useTicketCache renewTGT doNotPrompt debug refreshKrb5Config isInitiator".split()  # noqa: SIM905 - shorter
)
_PACKAGES: Final = {"GSSAPI": ("gssapi", "kerberos"), "AWS_MSK_IAM": ("botocore", "msk")}
_RETRIEVERS: Final = (
    "DefaultJwtRetriever",
    "ClientCredentialsJwtRetriever",
    "JwtBearerJwtRetriever",
    "FileJwtRetriever",
)


def security_settings(options: SecurityOptions, login_timeout_s: float | None = None) -> SecuritySettings:
    """Return the security settings of connections; *login_timeout_s* is the time limit of the user's callables.

    Raises:
        ConfigError: an option is missing, contradicts another, names an unreadable file, or needs a missing package.
    """
    tls, has_login = parts_of_protocol(options)
    sasl = sasl_settings(options) if has_login else None
    if sasl is not None and login_timeout_s is not None:
        sasl = replace(sasl, login_timeout_s=login_timeout_s)
    return SecuritySettings(tls_settings(options) if tls else None, sasl)


def tls_settings(options: SecurityOptions) -> TlsSettings:
    """Return the settings of TLS. Raises: ConfigError."""
    if options.ssl_context is not None:
        _check_ssl_context_alone(options)
        return TlsSettings(context=options.ssl_context)
    _not_both(options, "ssl_truststore_location", "ssl_truststore_certificates")
    for name in "ssl_keystore_certificate_chain", "ssl_keystore_key":
        _not_both(options, "ssl_keystore_location", name)
    if options.ssl_keystore_certificate_chain is not None and options.ssl_keystore_key is None:
        raise ConfigError("ssl_keystore_certificate_chain is given without ssl_keystore_key; it needs both")
    for kind in "truststore", "keystore":
        if getattr(options, f"ssl_{kind}_type") == "PKCS12" and not getattr(options, f"ssl_{kind}_location"):
            raise ConfigError(f"ssl_{kind}_type = 'PKCS12' needs ssl_{kind}_location")
    settings = TlsSettings(
        truststore=_source(options, "ssl_truststore_location")
        or _source(options, "ssl_truststore_certificates"),
        truststore_type=options.ssl_truststore_type,
        truststore_password=options.ssl_truststore_password,
        keystore=_source(options, "ssl_keystore_location"),
        certificate_chain=_source(options, "ssl_keystore_certificate_chain"),
        key=_source(options, "ssl_keystore_key"),
        keystore_type=options.ssl_keystore_type,
        keystore_password=options.ssl_keystore_password,
        key_password=options.ssl_key_password,
        check_hostname=options.ssl_endpoint_identification_algorithm == "https",
        versions=options.ssl_enabled_protocols,
        cipher_suites=options.ssl_cipher_suites,
    )
    from aioproducer._core.security.tls import build_context  # noqa: PLC0415 - rarely needed

    try:
        build_context(settings, system_trust=False)
    except StoreError as error:
        without_frames(error)  # a frame of the traceback holds the private key
        raise ConfigError(str(error)) from error.__cause__
    return settings


def _source(options: SecurityOptions, name: str) -> Source | None:
    value: str | Secret | None = getattr(options, name)
    return None if value is None else Source(name, value)


def sasl_settings(options: SecurityOptions) -> SaslSettings:
    """Return the settings of the login. Raises: ConfigError."""
    mechanism = options.sasl_mechanism
    backoff = Backoff(
        (options.sasl_login_retry_backoff_ms or 100) / 1000, options.sasl_login_retry_backoff_max_ms / 1000
    )
    if mechanism is None:
        raise ConfigError(
            f"security_protocol = {options.security_protocol!r} needs sasl_mechanism: {', '.join(MECHANISMS)}"
        )
    if not isinstance(mechanism, str):
        return SaslSettings(mechanism=mechanism, backoff=backoff)
    if mechanism in _PACKAGES:
        _installed(f"sasl_mechanism = {mechanism!r}", *_PACKAGES[mechanism])
    jaas = _jaas(options, mechanism)
    if mechanism == "OAUTHBEARER":
        extensions, jaas = _extensions(jaas)
        return SaslSettings(mechanism, backoff, tokens=_tokens(options, jaas, backoff), extensions=extensions)
    if mechanism == "GSSAPI":
        return SaslSettings(mechanism, backoff, kerberos=_kerberos(options, jaas))
    if mechanism == "AWS_MSK_IAM":
        if jaas:
            raise ConfigError(
                f"sasl_jaas_config: {', '.join(jaas)} cannot be given here; botocore has it configured"
            )
        return SaslSettings(mechanism, backoff)
    token_auth = jaas.pop("tokenauth", "false").lower() == "true" and mechanism != "PLAIN"
    credentials = _credentials(options, mechanism, jaas)
    return SaslSettings(mechanism, backoff, credentials=credentials, token_auth=token_auth)


def _jaas(options: SecurityOptions, mechanism: str) -> dict[str, str]:
    """Return the options of the login module; empty without a login module."""
    if options.sasl_jaas_config is None:
        return {}
    module: LoginModule = parse_jaas(options.sasl_jaas_config.reveal())
    if module.name not in _MODULES:
        raise ConfigError(f"sasl_jaas_config: unsupported login module; use one of {', '.join(_MODULES)}")
    if mechanism not in _MODULES[module.name]:
        raise ConfigError(f"sasl_jaas_config: {module.name} does not go with sasl_mechanism = {mechanism!r}")
    return dict(module.options)


def _credentials(
    options: SecurityOptions, mechanism: str, jaas: dict[str, str]
) -> Login | CredentialsCallable:
    given = [
        name
        for name in ("sasl_username", "sasl_password", "sasl_credentials")
        if getattr(options, name) is not None
    ]
    if options.sasl_jaas_config is not None:
        if given:
            raise ConfigError(f"sasl_jaas_config and {given[0]} are both given; leave one out")
        username, password = jaas.get("username"), jaas.get("password")
        if not username or not password:
            raise ConfigError("sasl_jaas_config needs username and password")
        return Login(username, Secret(password))
    if options.sasl_credentials is not None:
        if len(given) > 1:
            raise ConfigError(f"sasl_credentials and {given[0]} are both given; leave one out")
        return options.sasl_credentials
    if options.sasl_username is None or options.sasl_password is None:
        raise ConfigError(
            f"sasl_mechanism = {mechanism!r} needs sasl_username and sasl_password, sasl_credentials,"
            " or sasl_jaas_config"
        )
    return Login(options.sasl_username, options.sasl_password)


def _kerberos(options: SecurityOptions, jaas: dict[str, str]) -> KerberosSettings:
    service = options.sasl_kerberos_service_name or jaas.get("serviceName")
    if not service:
        raise ConfigError("sasl_mechanism = 'GSSAPI' needs sasl_kerberos_service_name: usually kafka")
    use_keytab = jaas.get("useKeyTab", "false").lower() == "true"
    if use_keytab and not jaas.get("keyTab"):
        raise ConfigError("sasl_jaas_config: useKeyTab=true needs keyTab")
    keytab = jaas["keyTab"].removeprefix("FILE:") if use_keytab else None
    if keytab is not None:
        try:
            open_regular(keytab).close()
        except (OSError, ValueError) as error:
            raise ConfigError(f"sasl_jaas_config: keyTab cannot be read: {error}") from error
    unknown = jaas.keys() - _KERBEROS_IGNORED - {"serviceName", "keyTab", "principal"}
    for name in sorted(unknown):
        log.warning("config.without_effect name=sasl_jaas_config:%s", name)
    return KerberosSettings(service, jaas.get("principal"), keytab)


def _extensions(jaas: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the SASL extensions among the options of the login module, and the other options."""
    prefix = "extension_"
    extensions = {name.removeprefix(prefix): value for name, value in jaas.items() if name.startswith(prefix)}
    return extensions, {name: value for name, value in jaas.items() if not name.startswith(prefix)}


def _tokens(
    options: SecurityOptions, jaas: dict[str, str], backoff: Backoff
) -> TokenProvider | EndpointSettings | UnsecuredSettings | str:
    provider, url = options.sasl_oauth_token_provider, options.sasl_oauthbearer_token_endpoint_url
    if provider is not None:
        if url is not None:
            raise ConfigError(
                "sasl_oauth_token_provider and sasl_oauthbearer_token_endpoint_url are both given; leave one out"
            )
        return provider
    if url is None:
        if any(name.startswith("unsecuredLogin") for name in jaas):
            return _unsecured(jaas)
        raise ConfigError(
            "sasl_mechanism = 'OAUTHBEARER' needs sasl_oauth_token_provider, or sasl_oauthbearer_token_endpoint_url"
        )
    return url if file_of(url) is not None else _endpoint(options, url, jaas, backoff)


def _endpoint(options: SecurityOptions, url: str, jaas: dict[str, str], backoff: Backoff) -> EndpointSettings:
    """Return the settings of the token endpoint, which Java clients before 4.1 give in the login module."""
    retriever = (options.sasl_oauthbearer_jwt_retriever_class or _RETRIEVERS[0]).rpartition(".")[2]
    if retriever not in _RETRIEVERS:
        raise ConfigError(
            f"sasl_oauthbearer_jwt_retriever_class: unsupported class; use one of {', '.join(_RETRIEVERS)},"
            " or give sasl_oauth_token_provider"
        )
    secret = jaas.get("clientSecret")
    client_id = options.sasl_oauthbearer_client_credentials_client_id or jaas.get("clientId")
    client_secret = options.sasl_oauthbearer_client_credentials_client_secret or (
        Secret(secret) if secret else None
    )
    proof = _assertion(options)
    jwt_bearer = retriever == "JwtBearerJwtRetriever"
    if proof is None and (jwt_bearer or client_id is None or client_secret is None):
        needed = (
            "" if jwt_bearer else "sasl_oauthbearer_client_credentials_client_id and …_client_secret, or "
        )
        raise ConfigError(
            f"sasl_oauthbearer_token_endpoint_url needs {needed}sasl_oauthbearer_assertion_file,"
            " or sasl_oauthbearer_assertion_private_key_file"
        )
    return EndpointSettings(
        url=url,
        backoff=backoff,
        client_id=client_id,
        client_secret=client_secret,
        assertion=proof,
        jwt_bearer=jwt_bearer,
        scope=options.sasl_oauthbearer_scope or jaas.get("scope"),
        urlencode=options.sasl_oauthbearer_header_urlencode,
        connect_timeout_s=options.sasl_login_connect_timeout_ms / 1000,
        read_timeout_s=options.sasl_login_read_timeout_ms / 1000,
    )


def _assertion(options: SecurityOptions) -> AssertionSettings | None:
    file = options.sasl_oauthbearer_assertion_file
    private_key_file = options.sasl_oauthbearer_assertion_private_key_file
    if file is None and private_key_file is None:
        return None
    if file is None:
        _installed("sasl_oauthbearer_assertion_private_key_file", "joserfc", "oauth")
    return AssertionSettings(
        file=file,
        private_key_file=private_key_file,
        private_key_passphrase=options.sasl_oauthbearer_assertion_private_key_passphrase,
        template_file=options.sasl_oauthbearer_assertion_template_file,
        algorithm=options.sasl_oauthbearer_assertion_algorithm,
        audience=options.sasl_oauthbearer_assertion_claim_aud,
        issuer=options.sasl_oauthbearer_assertion_claim_iss,
        subject=options.sasl_oauthbearer_assertion_claim_sub,
        with_jti=options.sasl_oauthbearer_assertion_claim_jti_include,
        lives_s=options.sasl_oauthbearer_assertion_claim_exp_seconds,
        valid_before_s=options.sasl_oauthbearer_assertion_claim_nbf_seconds,
    )


def _unsecured(jaas: dict[str, str]) -> UnsecuredSettings:
    claims: dict[str, Any] = {}
    lives_s = 3600.0
    try:
        for name, value in jaas.items():
            kind, _, claim = name.removeprefix("unsecuredLogin").partition("_")
            match kind:
                case "StringClaim":
                    claims[claim] = value
                case "NumberClaim":
                    claims[claim] = _number(value)
                case "ListClaim":  # the first character is the separator
                    claims[claim] = value[1:].split(value[0]) if value else []
                case "LifetimeSeconds":
                    lives_s = _number(value)
                case _:
                    raise ConfigError(f"sasl_jaas_config: {name} is not known here")
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError("sasl_jaas_config: a claim or lifetime is not a number") from None
    return UnsecuredSettings(claims, lives_s)


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(text)
    return number


def _check_ssl_context_alone(options: SecurityOptions) -> None:
    others = [
        each.name
        for each in fields(SecurityOptions)
        if each.name.startswith("ssl_")
        and each.name != "ssl_context"
        and getattr(options, each.name) != each.default
    ]
    if others:
        raise ConfigError(
            f"ssl_context and {', '.join(others)} are both given; configure the context instead"
        )


def _not_both(options: SecurityOptions, one: str, other: str) -> None:
    if getattr(options, one) is not None and getattr(options, other) is not None:
        raise ConfigError(f"{one} and {other} are both given; leave one out")


def _installed(what: str, package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise ConfigError(needs(what, extra))


def variable(option: str) -> str:
    """Return the environment variable of *option*, a list of allowed files or URLs."""
    return f"AIOPRODUCER_{option.upper()}"


def from_environment(option: str) -> tuple[str, ...] | None:
    """Return the list in the environment variable of *option*; None if the variable is not set."""
    text = os.environ.get(variable(option))
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def checked_sources(
    named: Mapping[str, Any],
    files: Sequence[str] | None,
    urls: Sequence[str] | None,
    written: Mapping[str, str],
) -> Iterator[tuple[str, str]]:
    """Yield each option of *named* that names a file, with the path from *files*, the list of allowed files.

    None for *files* or *urls* allows all. Paths are compared after symbolic links and `..` are resolved. The producer
    later reads the path in *files*, because a symbolic link of an untrusted writer may change after the comparison.

    Raises: ConfigError, which names an option as the option was *written*.
    """
    for option in SOURCES & named.keys():
        value = named[option]
        path = value if value is None or option != ENDPOINT else file_of(value)
        if path is None:
            if value is not None and urls is not None and value not in urls:
                raise _refused(written.get(option, option), value, ALLOWED_URLS)
        elif files is not None:
            found = next((each for each in files if _resolved(each) == _resolved(path)), None)
            if found is None:
                raise _refused(written.get(option, option), value, ALLOWED_FILES)
            listed = os.path.abspath(found)  # noqa: PTH100 - resolve() would follow symbolic links
            if listed != path:
                yield option, file_url(listed) if option == ENDPOINT else listed


def _resolved(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a NUL, which no file name has
        return path


def _refused(option: str, value: object, allowing: str) -> ConfigError:
    return ConfigError(
        f"{option} = {value!r}: refused, because {allowing} does not list it and its content would be sent over the"
        f" network; if you trust it, list it in the keyword argument {allowing}, the flag"
        f" --{allowing.replace('_', '-')} or the environment variable {variable(allowing)}"
    )
