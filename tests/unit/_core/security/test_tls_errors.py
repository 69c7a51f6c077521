from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from aioproducer._core.address import Address
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.security_settings import TlsSettings
from aioproducer._core.security.stores import Source
from aioproducer._core.security.tls import build_context
from aioproducer._core.security.tls_errors import (
    MOST_NAMES,
    PeerCertificate,
    presented_chain,
    refuses_client,
    shown_chain,
    tls_failure,
    unverified_context,
)
from aioproducer.errors import AuthenticationFailed, ConnectionFailed
from tests.unit._core.security.certificates import NOW, Authority, Issued, handshake, server_context

FROM, UNTIL = datetime(2049, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2051, 1, 2, 3, 4, 5, tzinfo=UTC)
LAB = Authority("Lab, Ü")


def presented(issued: Issued, folder: Path) -> tuple[PeerCertificate, ...]:
    return presented_chain(handshake(unverified_context(), server_context(issued, folder), None))


def shown(issued: Issued, folder: Path) -> PeerCertificate:
    return presented(issued, folder)[0]


def test_certificate_has_subject_issuer_validity_and_names(tmp_path: Path) -> None:
    names = ("a.example", "*.b", "10.0.0.1", "::1")
    issued = LAB.issue(*names, common_name="bob\n", not_before=FROM, not_after=UNTIL)
    assert presented(issued, tmp_path) == (
        PeerCertificate("CN=bob\\n, O=lab", "CN=Lab, Ü", FROM, UNTIL, names),
    )


def test_certificate_may_have_no_names(tmp_path: Path) -> None:
    assert shown(LAB.issue(), tmp_path).names == ()


def test_number_of_names_is_limited(tmp_path: Path) -> None:
    many = LAB.issue(*[f"b{number}.example" for number in range(MOST_NAMES + 1)])
    assert len(shown(many, tmp_path).names) == MOST_NAMES


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"subject": (), "issuer": (), "notBefore": "yesterday", "notAfter": "Jan  2 03:04:05 2049 GMT"},
        {"subjectAltName": (("IP Address", "<invalid>"),), "subject": (), "issuer": ()}
        | dict.fromkeys(("notBefore", "notAfter"), "Jan  2 03:04:05 2049 GMT"),
    ],
)
def test_malformed_certificate_presents_no_chain(info: dict[str, object]) -> None:
    certificate = SimpleNamespace(get_info=lambda: info)
    inner = SimpleNamespace(get_unverified_chain=lambda: [certificate])
    assert presented_chain(SimpleNamespace(_sslobj=inner)) == ()


def test_another_kind_of_object_presents_no_chain() -> None:
    assert presented_chain(object()) == ()


AUTHORITY, OTHERS = Authority(), Authority("others")
TRUSTING = TlsSettings(truststore=Source("ssl_truststore_certificates", AUTHORITY.pem))
BROKER = Address("broker.example", 9093)
ISSUED = AUTHORITY.issue("broker.example")


def alice(authority: Authority, **more: str) -> TlsSettings:
    issued = authority.issue(common_name="alice")
    return TlsSettings(
        truststore=TRUSTING.truststore,
        certificate_chain=Source("ssl_keystore_certificate_chain", Secret(issued.chain)),
        key=Source("ssl_keystore_key", Secret(issued.key_pem)),
        versions=tuple(more.values()) or TRUSTING.versions,
    )


def error_of(
    tmp_path: Path, settings: TlsSettings, issued: Issued, *, clients_of: Authority | None = None
) -> ssl.SSLError:
    server = server_context(issued, tmp_path, clients_of=clients_of)
    with pytest.raises(ssl.SSLError) as raised:
        handshake(build_context(settings), server, BROKER.host)
    return raised.value


def told(error: Exception, settings: TlsSettings, certificate: PeerCertificate | None = None) -> str:
    failed = tls_failure(error, BROKER, settings, () if certificate is None else (certificate,))
    text = str(failed)
    assert text.startswith("broker.example:9093: ")
    assert "_ssl.c" not in text
    assert "[SSL" not in text
    assert isinstance(failed, AuthenticationFailed | ConnectionFailed)
    if isinstance(failed, AuthenticationFailed):
        assert failed.broker == "broker.example:9093"
    return text


def test_unknown_issuer_is_named(tmp_path: Path) -> None:
    issued = OTHERS.issue("broker.example")
    error = error_of(tmp_path, TRUSTING, issued)
    assert isinstance(tls_failure(error, BROKER, TRUSTING), AuthenticationFailed)
    assert told(error, TRUSTING, shown(issued, tmp_path)) == (
        "broker.example:9093: the broker's certificate does not verify: the issuer of its certificate (CN=others) is not"
        " trusted; add its authority to ssl_truststore_certificates"
    )
    nothing = TlsSettings()
    assert "only the system's authorities are trusted" in told(error, nothing)
    users = TlsSettings(context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    assert "load its authority into your ssl_context" in told(error, users)


def test_expired_certificate_has_its_last_date(tmp_path: Path) -> None:
    until = NOW - timedelta(hours=2)
    issued = AUTHORITY.issue("broker.example", not_after=until)
    error = error_of(tmp_path, TRUSTING, issued)
    assert f"has expired on {until:%Y-%m-%d %H:%M} UTC; replace it" in told(
        error, TRUSTING, shown(issued, tmp_path)
    )
    assert "has expired; replace it" in told(error, TRUSTING)


def test_expired_intermediate_is_named_with_its_own_date(tmp_path: Path) -> None:
    until = NOW - timedelta(hours=3)
    between = Authority("between", issuer=AUTHORITY, not_after=until)
    issued = between.issue("broker.example")
    issued_chain = issued._replace(chain_above=between.pem)
    error = error_of(tmp_path, TRUSTING, issued_chain)
    text = str(tls_failure(error, BROKER, TRUSTING, presented(issued_chain, tmp_path)))
    assert f"the certificate of its authority (CN=between) has expired on {until:%Y-%m-%d %H:%M} UTC" in text


def test_expired_trusted_certificate_is_named_with_its_store(tmp_path: Path) -> None:
    until = NOW - timedelta(hours=4)
    old = Authority("old", not_after=until)
    settings = TlsSettings(truststore=Source("ssl_truststore_certificates", old.pem))
    issued = old.issue("broker.example")
    error = error_of(tmp_path, settings, issued)
    assert (
        f"a trusted certificate (CN=old in ssl_truststore_certificates) has expired on {until:%Y-%m-%d}"
        in told(error, settings, shown(issued, tmp_path))
    )


def test_future_certificate_has_its_first_date(tmp_path: Path) -> None:
    begin = NOW + timedelta(hours=2)
    issued = AUTHORITY.issue("broker.example", not_before=begin)
    error = error_of(tmp_path, TRUSTING, issued)
    assert f"is not valid before {begin:%Y-%m-%d %H:%M} UTC; check the clock" in told(
        error, TRUSTING, shown(issued, tmp_path)
    )


@pytest.mark.parametrize(
    ("names", "listed"),
    [
        (("a.example", "10.0.0.1"), "but for a.example, 10.0.0.1; connect to"),
        ((), "but for no name at all (it has no subjectAltName); connect to"),
        (tuple(f"b{n}.example" for n in range(10)), "b7.example and 2 more; connect to"),
    ],
)
def test_wrong_host_name_lists_names_of_the_certificate(
    tmp_path: Path, names: tuple[str, ...], listed: str
) -> None:
    issued = AUTHORITY.issue(*names)
    error = error_of(tmp_path, TRUSTING, issued)
    text = told(error, TRUSTING, shown(issued, tmp_path))
    assert "its certificate is not for broker.example" in text
    assert listed in text
    assert "its certificate is not for broker.example; connect to" in told(error, TRUSTING)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_required_client_certificate_is_named_in_the_error(tmp_path: Path, version: str) -> None:
    settings = TlsSettings(truststore=TRUSTING.truststore, versions=(version,))
    error = error_of(tmp_path, settings, ISSUED, clients_of=AUTHORITY)
    failed = tls_failure(error, BROKER, settings)
    assert isinstance(failed, AuthenticationFailed)
    assert "requires a client certificate" in told(error, settings)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_rejected_client_certificate_is_named_in_the_error(tmp_path: Path, version: str) -> None:
    settings = alice(OTHERS, version=version)
    error = error_of(tmp_path, settings, ISSUED, clients_of=AUTHORITY)
    assert refuses_client(error)
    assert told(error, settings) == (
        "broker.example:9093: the broker refused this client: it does not trust the issuer of the client certificate;"
        " check ssl_keystore_certificate_chain"
    )
    users = TlsSettings(context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    assert "check the certificate in your ssl_context" in told(error, users)


def test_missing_common_tls_version_is_named_in_the_error(tmp_path: Path) -> None:
    server = server_context(ISSUED, tmp_path)
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    settings = TlsSettings(truststore=TRUSTING.truststore, versions=("TLSv1.3",))
    with pytest.raises(ssl.SSLError) as raised:
        handshake(build_context(settings), server, BROKER.host)
    assert told(raised.value, settings).endswith("it supports none of TLSv1.3; set ssl_enabled_protocols")
    assert not refuses_client(raised.value)


@pytest.mark.parametrize("answer", [b"\0\0\0\x0a\0\0\0\0\0\x23", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_response_that_is_not_tls_hints_at_plaintext(answer: bytes) -> None:
    from_server = ssl.MemoryBIO()
    client = build_context(TRUSTING).wrap_bio(from_server, ssl.MemoryBIO(), server_hostname=BROKER.host)
    from_server.write(answer)
    with pytest.raises(ssl.SSLError) as raised:
        client.do_handshake()
    assert isinstance(tls_failure(raised.value, BROKER, TRUSTING), ConnectionFailed)
    assert "the answer is not TLS; is this a listener for PLAINTEXT" in told(raised.value, TRUSTING)


def test_close_during_tls_hints_at_plaintext() -> None:
    from_server = ssl.MemoryBIO()
    client = build_context(TRUSTING).wrap_bio(from_server, ssl.MemoryBIO(), server_hostname=BROKER.host)
    from_server.write_eof()
    with pytest.raises(ssl.SSLEOFError) as raised:
        client.do_handshake()
    assert "closed during TLS; is this a listener for PLAINTEXT" in told(raised.value, TRUSTING)
    for error in ConnectionResetError(), BrokenPipeError():
        assert "closed during the TLS handshake; is this a listener for PLAINTEXT" in told(error, TRUSTING)
    for late in ConnectionAbortedError("SSL handshake is taking longer than 60.0 seconds"), TimeoutError():
        assert "the TLS handshake did not finish in time" in told(late, TRUSTING)


def test_unknown_tls_error_has_the_reason_of_openssl() -> None:
    error = ssl.SSLError(1, "[SSL: TLSV1_ALERT_INTERNAL_ERROR] tlsv1 alert internal error (_ssl.c:1006)")
    error.reason = "TLSV1_ALERT_INTERNAL_ERROR"
    assert told(error, TRUSTING) == "broker.example:9093: TLS failed: internal error"
    assert told(ssl.SSLError(1, "x (_ssl.c:1)"), TRUSTING).endswith("TLS failed: no reason given")
    assert not refuses_client(OSError())
    verify = ssl.SSLCertVerificationError(1, "x (_ssl.c:1)")
    verify.verify_code, verify.verify_message = 23, "certificate revoked"
    assert told(verify, TRUSTING).endswith("does not verify: certificate revoked")


@contextlib.asynccontextmanager
async def listening(
    tmp_path: Path,
    *,
    tls: bool = True,
    clients_of: Authority | None = None,
    issued: Issued = AUTHORITY.issue("a.example", "b.example"),  # noqa: B008 - not changed by anyone
) -> AsyncIterator[int]:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    context = server_context(issued, tmp_path, clients_of=clients_of) if tls else None
    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_broker_shows_its_certificate(tmp_path: Path) -> None:
    async with listening(tmp_path) as port:
        chain = await shown_chain(Address("wrong.example.", port), ("127.0.0.1", port))
    (certificate,) = chain
    assert certificate.names == ("a.example", "b.example")
    assert certificate.issuer == "CN=lab authority"


async def test_chain_has_intermediate_certificates(tmp_path: Path) -> None:
    between = Authority("between", issuer=AUTHORITY)
    issued = between.issue("a.example")._replace(chain_above=between.pem)
    async with listening(tmp_path, issued=issued) as port:
        chain = await shown_chain(Address("a.example", port), ("127.0.0.1", port))
    assert [each.subject for each in chain] == ["CN=broker, O=lab", "CN=between"]


@pytest.mark.parametrize("broker", [Address("127.0.0.1", 1), Address("", 1)])
async def test_unreachable_broker_shows_no_chain(broker: Address) -> None:
    assert await shown_chain(broker) == ()


async def test_broker_without_tls_shows_no_chain(tmp_path: Path) -> None:
    async with listening(tmp_path, tls=False) as port:
        assert await shown_chain(Address("127.0.0.1", port)) == ()
