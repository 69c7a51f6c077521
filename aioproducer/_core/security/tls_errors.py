"""Errors of TLS handshakes, with the certificates that a broker presented."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import ssl
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from aioproducer._core.logfmt import escaped
from aioproducer._core.security.mechanism import Broker
from aioproducer._core.security.security_settings import TlsSettings
from aioproducer._core.security.stores import read_store
from aioproducer._core.security.tls import server_name
from aioproducer.errors import AuthenticationFailed, ConnectionFailed

_SEQUENCE, _SET, _OID, _INTEGER, _OCTETS = 0x30, 0x31, 0x06, 0x02, 0x04
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_DNS_NAME, _IP_ADDRESS = 0x82, 0x87
_SUBJECT_ALT_NAME: Final = bytes.fromhex("551d11")
_ATTRIBUTES: Final = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
}
MOST_NAMES: Final = 100


class PeerCertificate(NamedTuple):
    """Fields of an unverified certificate."""

    subject: str
    issuer: str
    not_before: datetime
    not_after: datetime
    names: tuple[str, ...]
    """Host names and addresses of the subject."""


class _Element(NamedTuple):
    tag: int
    content: bytes


def read_certificate(der: bytes) -> PeerCertificate:
    """Return the fields of a certificate in DER.

    Raises: ValueError if *der* is no certificate.
    """
    try:
        (outer,) = _elements(der)
        to_be_signed = next(_elements(outer.content))
        fields = list(_elements(to_be_signed.content))
        if fields[0].tag == _VERSION:
            del fields[0]
        _, _, issuer, validity, subject = fields[:5]
        not_before, not_after = map(_time, _elements(validity.content))
        return PeerCertificate(
            _name(subject.content), _name(issuer.content), not_before, not_after, tuple(_names(fields[6:]))
        )
    except (IndexError, StopIteration, OverflowError) as error:
        raise ValueError(f"no certificate: {type(error).__name__}") from None


def _elements(data: bytes) -> Iterator[_Element]:
    """Yield the elements of *data* in order."""
    pos = 0
    while pos < len(data):
        tag, length, start = data[pos], data[pos + 1], pos + 2
        if length & 0x80:
            count = length & 0x7F
            if not 0 < count <= 4:
                raise ValueError("a length that DER does not have")
            length, start = int.from_bytes(data[start : start + count], "big"), start + count
        end = start + length
        if end > len(data):
            raise ValueError("cut off")
        yield _Element(tag, data[start:end])
        pos = end


def _time(element: _Element) -> datetime:
    text = element.content.decode("ascii", "replace")
    if element.tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif element.tag != _GENERALIZED_TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _name(data: bytes) -> str:
    """Return a distinguished name as text, for example CN=broker, O=lab."""
    parts = []
    for relative in _elements(data):
        for attribute in _elements(relative.content):
            oid, value = _elements(attribute.content)
            if oid.content in _ATTRIBUTES:
                parts.append(f"{_ATTRIBUTES[oid.content]}={_printable(value.content)}")
    return ", ".join(reversed(parts)) or "(no name)"


def _names(fields: list[_Element]) -> Iterator[str]:
    """Yield the subject alternative names."""
    for field in fields:
        if field.tag != _EXTENSIONS:
            continue
        for extension in _elements(next(_elements(field.content)).content):
            oid, *_, value = _elements(extension.content)
            if oid.content == _SUBJECT_ALT_NAME:
                (names,) = _elements(value.content)
                yield from _alternatives(names.content)


def _alternatives(data: bytes) -> Iterator[str]:
    for count, name in enumerate(_elements(data)):
        if count == MOST_NAMES:
            return
        if name.tag == _DNS_NAME:
            yield _printable(name.content)
        elif name.tag == _IP_ADDRESS:
            yield str(ipaddress.ip_address(name.content))


def _printable(content: bytes) -> str:
    return escaped(content[:200].decode("utf-8", "replace"))


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
_OUR_CERTIFICATE: Final = {
    "CERTIFICATE_REQUIRED": "it wants a client certificate",
    "BAD_CERTIFICATE": "it does not accept our certificate",
    "UNSUPPORTED_CERTIFICATE": "it does not accept our kind of certificate",
    "CERTIFICATE_REVOKED": "our certificate has been revoked",
    "CERTIFICATE_EXPIRED": "our certificate has expired",
    "CERTIFICATE_UNKNOWN": "it does not accept our certificate",
    "UNKNOWN_CA": "it does not know who issued our certificate",
    "ACCESS_DENIED": "it denies us access",
    "DECRYPT_ERROR": "our certificate's signature did not convince it",
}
"""Alerts about the client certificate. Under TLS 1.3 they arrive after the client has completed its handshake."""
_NOTHING_IN_COMMON: Final = {
    "PROTOCOL_VERSION": "it does not speak any of {versions}: see ssl_enabled_protocols",
    "UNSUPPORTED_PROTOCOL": "it does not speak any of {versions}: see ssl_enabled_protocols",
    "NO_PROTOCOLS_AVAILABLE": "there is no version of TLS that OpenSSL here may use: see ssl_enabled_protocols",
    "HANDSHAKE_FAILURE": "it shares no cipher suite with us, or wants a client certificate",
    "INSUFFICIENT_SECURITY": "it wants stronger cipher suites than ours",
    "NO_SHARED_CIPHER": "it shares no cipher suite with us",
    "UNRECOGNIZED_NAME": "it has no certificate for this name",
    "DH_KEY_TOO_SMALL": "its key exchange is too weak for OpenSSL here",
    "EE_KEY_TOO_SMALL": "its certificate's key is too weak for OpenSSL here",
    "CA_MD_TOO_WEAK": "its certificate is signed in a way that is too weak for OpenSSL here",
}
_ALERT = re.compile(r"^(?:SSLV3|TLSV1|TLSV13)_ALERT_|^(?:SSL|TLS)_?")


def tls_failure(
    error: Exception,
    broker: Broker,
    settings: TlsSettings,
    chain: Sequence[PeerCertificate] = (),
) -> AuthenticationFailed | ConnectionFailed:
    """Return the exception for an *error* of a TLS connection.

    AuthenticationFailed, which no retry fixes, if one side refused the other; else ConnectionFailed.
    *chain* has the certificates that the broker presents, its own first; the text names the fault in them. The error
    is no `__cause__`: the caller sets that.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _failed(broker, f"does not prove who it is: {_unverified(error, broker, settings, chain)}")
    if isinstance(error, ssl.SSLError):
        reason = _reason(error)
        if reason in _OUR_CERTIFICATE:
            return _failed(broker, f"refused us: {_refused(reason, settings)}")
        if reason in _NOTHING_IN_COMMON:
            versions = " and ".join(settings.versions)
            return _failed(
                broker, f"and we do not get together: {_NOTHING_IN_COMMON[reason].format(versions=versions)}"
            )
        if reason in _PLAINTEXT:
            return _lost(
                broker, "does not answer in TLS: is this a listener for PLAINTEXT or SASL_PLAINTEXT?"
            )
        if isinstance(error, ssl.SSLEOFError):
            return _lost(
                broker,
                "hung up during TLS: is this a listener for PLAINTEXT, or does it want another client?",
            )
        said = reason.replace("_", " ").lower() or "no reason given"
        return _lost(broker, f"broke off TLS: {said}")
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return _lost(broker, "did not complete the TLS handshake in time: is this a listener for TLS?")
    return _lost(
        broker, "hung up during the TLS handshake: is this a listener for PLAINTEXT or SASL_PLAINTEXT?"
    )


def is_about_us(error: BaseException) -> bool:
    """Return True if the broker refused the client certificate, under TLS 1.3 after the handshake."""
    return isinstance(error, ssl.SSLError) and _reason(error) in _OUR_CERTIFICATE


def _reason(error: ssl.SSLError) -> str:
    """Return OpenSSL's name of *error*; "" for errors that Python itself raises."""
    return _ALERT.sub("", getattr(error, "reason", None) or "")


def _refused(reason: str, settings: TlsSettings) -> str:
    if settings.context is not None:
        return f"{_OUR_CERTIFICATE[reason]}; see what your ssl_context has loaded"
    if not settings.has_identity and reason != "ACCESS_DENIED":
        return "it wants a client certificate, and we have none: give ssl_keystore_location"
    return (
        f"{_OUR_CERTIFICATE[reason]}; see {settings.keystore or settings.certificate_chain or settings.key}"
    )


def _unverified(
    error: ssl.SSLCertVerificationError,
    broker: Broker,
    settings: TlsSettings,
    chain: Sequence[PeerCertificate],
) -> str:
    code = error.verify_code
    certificate = chain[0] if chain else None
    if code in {_HOSTNAME, _ADDRESS}:
        names = "" if certificate is None else f", but for {_listed(certificate.names)}"
        return (
            f"its certificate is not for {broker.host}{names}; connect by such a name, or have the certificate made"
            ' anew (ssl_endpoint_identification_algorithm="" would accept any name)'
        )
    if code == _EXPIRED:
        return _expired(chain, settings)
    if code == _NOT_YET_VALID:
        return _not_yet_valid(chain, settings)
    if code in {_SELF_SIGNED, _SELF_SIGNED_IN_CHAIN, *_UNKNOWN_ISSUER}:
        issuer = "" if certificate is None else f" ({certificate.issuer})"
        return f"we do not trust who issued its certificate{issuer}; {_to_trust(settings)}"
    return f"{error.verify_message or 'its certificate does not verify'}"


def _expired(chain: Sequence[PeerCertificate], settings: TlsSettings) -> str:
    now = datetime.now(UTC)
    for each in chain:
        if each.not_after < now:
            which = "its certificate" if each is chain[0] else f"its authority's certificate ({each.subject})"
            return f"{which} has expired on {each.not_after:%Y-%m-%d %H:%M} UTC; it needs a new one"
    for each in _trusted(settings):
        if each.not_after < now:
            return (
                f"a trusted certificate ({each.subject} in {settings.truststore}) has expired on"
                f" {each.not_after:%Y-%m-%d %H:%M} UTC; replace it"
            )
    return "its certificate, or one above it, has expired; it needs a new one"


def _not_yet_valid(chain: Sequence[PeerCertificate], settings: TlsSettings) -> str:
    now = datetime.now(UTC)
    for each in (*chain, *_trusted(settings)):
        if each.not_before > now:
            which = "its certificate" if chain and each is chain[0] else f"the certificate of {each.subject}"
            return (
                f"{which} is not valid yet, before {each.not_before:%Y-%m-%d %H:%M} UTC; is the clock right?"
            )
    return "its certificate, or one above it, is not valid yet; is the clock right?"


def _trusted(settings: TlsSettings) -> list[PeerCertificate]:
    """Return the certificates of the truststore, if the file is readable."""
    if settings.truststore is None:
        return []
    try:
        store = read_store(
            settings.truststore, store_type=settings.truststore_type, password=settings.truststore_password
        )
        blocks = store.certificates.split("-----END CERTIFICATE-----")[:-1]
        return [
            read_certificate(ssl.PEM_cert_to_DER_cert(f"{each.strip()}\n-----END CERTIFICATE-----\n"))
            for each in blocks
        ]
    except ValueError:
        return []


def _to_trust(settings: TlsSettings) -> str:
    if settings.context is not None:
        return "load that authority into your ssl_context"
    if settings.truststore is None:
        return "without ssl_truststore_location only the system's authorities are trusted"
    return f"it is not in {settings.truststore}"


def _listed(names: tuple[str, ...]) -> str:
    if not names:
        return "nobody by name (it has no subjectAltName)"
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


def _failed(broker: Broker, what: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"{broker} {what}", broker=str(broker))


def _lost(broker: Broker, what: str) -> ConnectionFailed:
    return ConnectionFailed(f"{broker} {what}", written=False)


# A second look at the certificates of a broker whose certificate was not accepted.

PATIENCE_S: Final = 5.0
MOST_PRESENTED: Final = 10
"""Maximum number of certificates read. A chain has two or three."""


def unverified_context() -> ssl.SSLContext:
    """Return a context that accepts every certificate, to read certificates only. No data may be sent through it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def shown_chain(
    broker: Broker, address: tuple[str, int] | None = None, *, timeout_s: float = PATIENCE_S
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
        return tuple(map(read_certificate, _presented(writer.get_extra_info("ssl_object"))[:MOST_PRESENTED]))
    except ValueError:
        return ()
    finally:
        writer.transport.abort()


def _presented(ssl_object: Any) -> list[bytes]:
    """Return the certificates in DER. Before Python 3.13 only the object inside `SSLObject` has the whole chain."""
    if hasattr(ssl_object, "get_unverified_chain"):
        return list(ssl_object.get_unverified_chain())
    inner: Any = getattr(ssl_object, "_sslobj", None)
    if inner is not None and hasattr(inner, "get_unverified_chain"):
        return [ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in inner.get_unverified_chain() or ()]
    own = ssl_object.getpeercert(binary_form=True)
    return [own] if own else []
