"""Errors of TLS handshakes, with the certificates that a broker presented."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from aioproducer._core.address import Address
from aioproducer._core.logfmt import escaped
from aioproducer._core.security.security_settings import TlsSettings
from aioproducer._core.security.stores import read_store
from aioproducer._core.security.tls import server_name
from aioproducer.errors import AuthenticationFailed, ConnectionFailed

_ATTRIBUTES: Final = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU"}
MOST_NAMES: Final = 100


class PeerCertificate(NamedTuple):
    """Fields of an unverified certificate."""

    subject: str
    issuer: str
    not_before: datetime
    not_after: datetime
    names: tuple[str, ...]
    """Host names and addresses of the subject."""


def _certificate(info: Mapping[str, Any]) -> PeerCertificate:
    """Return the fields in *info*, a result of `SSLSocket.getpeercert`. Raises: ValueError for invalid fields."""
    not_before, not_after = (
        datetime.fromtimestamp(ssl.cert_time_to_seconds(info[each]), UTC)
        for each in ("notBefore", "notAfter")
    )
    names = tuple(
        str(ipaddress.ip_address(name.strip())) if kind == "IP Address" else _printable(name)
        for kind, name in info.get("subjectAltName", ())[:MOST_NAMES]
        if kind in {"DNS", "IP Address"}
    )
    return PeerCertificate(_name(info["subject"]), _name(info["issuer"]), not_before, not_after, names)


def _name(relative_names: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Return a distinguished name as text, for example CN=broker, O=lab."""
    shown = [
        f"{_ATTRIBUTES[attribute]}={_printable(value)}"
        for each in relative_names
        for attribute, value in each
        if attribute in _ATTRIBUTES
    ]
    return ", ".join(reversed(shown)) or "(no name)"


def _printable(text: str) -> str:
    return escaped(text[:200])


_NOT_YET_VALID, _EXPIRED = 9, 10
_SELF_SIGNED, _SELF_SIGNED_IN_CHAIN = 18, 19
_UNKNOWN_ISSUER = (2, 20, 21, 27)
_HOSTNAME, _ADDRESS = 62, 64

_NAMES_SHOWN: Final = 8
_PLAINTEXT: Final = frozenset(
    {
        "WRONG_VERSION_NUMBER",
        "RECORD_LAYER_FAILURE",
        "UNKNOWN_PROTOCOL",
        "HTTP_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
    }
)
_CLIENT_CERTIFICATE: Final = {
    "CERTIFICATE_REQUIRED": "it requires a client certificate",
    "BAD_CERTIFICATE": "it does not accept the client certificate",
    "UNSUPPORTED_CERTIFICATE": "it does not support this type of client certificate",
    "CERTIFICATE_REVOKED": "the client certificate has been revoked",
    "CERTIFICATE_EXPIRED": "the client certificate has expired",
    "CERTIFICATE_UNKNOWN": "it does not accept the client certificate",
    "UNKNOWN_CA": "it does not trust the issuer of the client certificate",
    "ACCESS_DENIED": "access is denied",
    "DECRYPT_ERROR": "the signature of the client certificate is invalid",
}
"""Alerts about the client certificate. Under TLS 1.3 such an alert arrives after the client has completed its handshake."""
_NOTHING_IN_COMMON: Final = {
    "PROTOCOL_VERSION": "it supports none of {versions}; set ssl_enabled_protocols",
    "UNSUPPORTED_PROTOCOL": "it supports none of {versions}; set ssl_enabled_protocols",
    "NO_PROTOCOLS_AVAILABLE": "OpenSSL here allows none of {versions}; set ssl_enabled_protocols",
    "HANDSHAKE_FAILURE": "there is no common cipher suite, or it requires a client certificate",
    "INSUFFICIENT_SECURITY": "it requires stronger cipher suites",
    "NO_SHARED_CIPHER": "there is no common cipher suite",
    "UNRECOGNIZED_NAME": "it has no certificate for this name",
    "DH_KEY_TOO_SMALL": "its key exchange is too weak for OpenSSL here",
    "EE_KEY_TOO_SMALL": "the key of its certificate is too weak for OpenSSL here",
    "CA_MD_TOO_WEAK": "the signature of its certificate is too weak for OpenSSL here",
}
_ALERT = re.compile(r"^(?:SSLV3|TLSV1|TLSV13)_ALERT_|^(?:SSL|TLS)_?")


def tls_failure(
    error: Exception,
    broker: Address,
    settings: TlsSettings,
    chain: Sequence[PeerCertificate] = (),
) -> AuthenticationFailed | ConnectionFailed:
    """Return the exception for an *error* of a TLS connection.

    The exception is AuthenticationFailed, which no retry fixes, if client or broker refused its peer; else
    ConnectionFailed. *chain* has the certificates that the broker presents, the broker's own first; the text names the
    fault in the chain. The caller sets `__cause__`.
    """
    refused = lost = None
    if isinstance(error, ssl.SSLCertVerificationError):
        refused = f"the broker's certificate does not verify: {_unverified(error, broker, settings, chain)}"
    elif isinstance(error, ssl.SSLError):
        reason = _reason(error)
        if reason in _CLIENT_CERTIFICATE:
            refused = f"the broker refused this client: {_refusal(reason, settings)}"
        elif reason in _NOTHING_IN_COMMON:
            versions = " and ".join(settings.versions)
            refused = f"TLS failed: {_NOTHING_IN_COMMON[reason].format(versions=versions)}"
        elif reason in _PLAINTEXT:
            lost = "the answer is not TLS; is this a listener for PLAINTEXT or SASL_PLAINTEXT?"
        elif isinstance(error, ssl.SSLEOFError):
            lost = "closed during TLS; is this a listener for PLAINTEXT, or does it require a client certificate?"
        else:
            lost = f"TLS failed: {reason.replace('_', ' ').lower() or 'no reason given'}"
    elif isinstance(error, ConnectionAbortedError | TimeoutError):
        lost = "the TLS handshake did not finish in time; is this a listener for TLS?"
    else:
        lost = "closed during the TLS handshake; is this a listener for PLAINTEXT or SASL_PLAINTEXT?"
    if refused is not None:
        return AuthenticationFailed(f"{broker}: {refused}", broker=str(broker))
    return ConnectionFailed(f"{broker}: {lost}", written=False)


def refuses_client(error: BaseException) -> bool:
    """Return True if *error* is the refusal of the client certificate, which under TLS 1.3 follows the handshake."""
    return isinstance(error, ssl.SSLError) and _reason(error) in _CLIENT_CERTIFICATE


def _reason(error: ssl.SSLError) -> str:
    """Return OpenSSL's name of *error*; "" for errors that Python itself raises."""
    return _ALERT.sub("", getattr(error, "reason", None) or "")


def _refusal(reason: str, settings: TlsSettings) -> str:
    if settings.context is not None:
        return f"{_CLIENT_CERTIFICATE[reason]}; check the certificate in your ssl_context"
    if not settings.has_identity and reason != "ACCESS_DENIED":
        return "it requires a client certificate; set ssl_keystore_location"
    store = settings.keystore or settings.certificate_chain or settings.key
    return f"{_CLIENT_CERTIFICATE[reason]}; check {store}"


def _unverified(
    error: ssl.SSLCertVerificationError,
    broker: Address,
    settings: TlsSettings,
    chain: Sequence[PeerCertificate],
) -> str:
    code = error.verify_code
    if code in {_HOSTNAME, _ADDRESS}:
        names = f", but for {_listed(chain[0].names)}" if chain else ""
        return (
            f"its certificate is not for {broker.host}{names}; connect to a name of the certificate, or issue a"
            ' certificate for this name (ssl_endpoint_identification_algorithm="" would accept any name)'
        )
    if code in {_EXPIRED, _NOT_YET_VALID}:
        return _invalid_now(chain, settings, expired=code == _EXPIRED)
    if code in {_SELF_SIGNED, _SELF_SIGNED_IN_CHAIN, *_UNKNOWN_ISSUER}:
        issuer = f" ({chain[0].issuer})" if chain else ""
        return f"the issuer of its certificate{issuer} is not trusted; {_to_trust(settings)}"
    return error.verify_message or "OpenSSL gives no reason"


def _invalid_now(chain: Sequence[PeerCertificate], settings: TlsSettings, *, expired: bool) -> str:
    """Return the text about the first certificate that has expired or is not valid yet."""
    now = datetime.now(UTC)
    for each in (*chain, *_trusted(settings)):
        if expired and each.not_after < now:
            fault = f"has expired on {each.not_after:%Y-%m-%d %H:%M} UTC; replace it"
        elif not expired and each.not_before > now:
            fault = f"is not valid before {each.not_before:%Y-%m-%d %H:%M} UTC; check the clock"
        else:
            continue
        if chain and each is chain[0]:
            return f"its certificate {fault}"
        if each in chain:
            return f"the certificate of its authority ({each.subject}) {fault}"
        return f"a trusted certificate ({each.subject} in {settings.truststore}) {fault}"
    fault = "has expired; replace it" if expired else "is not valid yet; check the clock"
    return f"its certificate, or one of an authority, {fault}"


def _trusted(settings: TlsSettings) -> list[PeerCertificate]:
    """Return the authorities in the truststore; an empty list if the truststore is unreadable."""
    if settings.truststore is None:
        return []
    try:
        store = read_store(
            settings.truststore, store_type=settings.truststore_type, password=settings.truststore_password
        )
        context = unverified_context()
        context.load_verify_locations(cadata=store.certificates)
        return [*map(_certificate, context.get_ca_certs())]
    except (ValueError, ssl.SSLError):
        return []


def _to_trust(settings: TlsSettings) -> str:
    if settings.context is not None:
        return "load its authority into your ssl_context"
    if settings.truststore is None:
        return "without ssl_truststore_location only the system's authorities are trusted"
    return f"add its authority to {settings.truststore}"


def _listed(names: tuple[str, ...]) -> str:
    if not names:
        return "no name at all (it has no subjectAltName)"
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


# A second connection reads the certificates of a broker whose certificate does not verify.

TIMEOUT_S: Final = 5.0
MOST_PRESENTED: Final = 10
"""Maximum number of certificates read. A chain has two or three certificates."""


def unverified_context() -> ssl.SSLContext:
    """Return a context that accepts every certificate, to read certificates only. The caller must send no data."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def shown_chain(
    broker: Address, address: tuple[str, int] | None = None, *, timeout_s: float = TIMEOUT_S
) -> tuple[PeerCertificate, ...]:
    """Return the certificate chain of *broker* (dialled at *address* if given), leaf first; () on failure."""
    host, port = address or broker
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(
                host, port, ssl=unverified_context(), server_hostname=server_name(broker.host)
            )
    except Exception:  # noqa: BLE001 - the chain only improves the text of a known refusal
        return ()
    try:
        return presented_chain(writer.get_extra_info("ssl_object"))
    finally:
        writer.transport.abort()


def presented_chain(ssl_object: Any) -> tuple[PeerCertificate, ...]:
    """Return the certificates that the peer of *ssl_object* presented; () if one certificate is malformed.

    The object inside `SSLObject` has certificates decoded by OpenSSL, including unverified certificates.
    """
    try:
        chain = ssl_object._sslobj.get_unverified_chain() or ()  # noqa: SLF001 - the public method returns only bytes, from Python 3.13 on
        return tuple(_certificate(each.get_info()) for each in chain[:MOST_PRESENTED])
    except Exception:  # noqa: BLE001 - OpenSSL and Python raise many types for malformed fields
        return ()
