from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from aioproducer._core.security.mechanism import Broker
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.security_settings import TlsSettings
from aioproducer._core.security.stores import Source
from aioproducer._core.security.tls import build_context
from aioproducer._core.security.tls_errors import (
    MOST_NAMES,
    PeerCertificate,
    is_about_us,
    read_certificate,
    shown_chain,
    tls_failure,
)
from aioproducer.errors import AuthenticationFailed, ConnectionFailed
from tests.cases import for_each
from tests.unit._core.security.certificates import NOW, Authority, Issued, handshake, server_context

FROM, UNTIL = datetime(2049, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2051, 1, 2, 3, 4, 5, tzinfo=UTC)
LAB = Authority("Lab, Ü")
DER = ssl.PEM_cert_to_DER_cert(
    LAB.issue(
        "a.example", "*.b", "10.0.0.1", "::1", common_name="bob", not_before=FROM, not_after=UNTIL
    ).chain
)


def test_it_says_whose_it_is_from_whom_for_what_and_how_long() -> None:
    certificate = read_certificate(DER)
    assert certificate.subject == "CN=bob, O=lab"
    assert certificate.issuer == "CN=Lab, Ü"
    assert (certificate.not_before, certificate.not_after) == (
        FROM,
        UNTIL,
    )  # as UTCTime, and as GeneralizedTime
    assert certificate.names == ("a.example", "*.b", "10.0.0.1", "::1")


def test_names_may_be_missing() -> None:
    assert read_certificate(ssl.PEM_cert_to_DER_cert(LAB.issue().chain)).names == ()


def test_of_many_names_some_are_enough() -> None:
    many = LAB.issue(*[f"b{number}.example" for number in range(MOST_NAMES + 1)])
    assert len(read_certificate(ssl.PEM_cert_to_DER_cert(many.chain)).names) == MOST_NAMES


@for_each("der", [b"", b"0", b"0\x80", b"0\x85\x01\x01\x01\x01\x01", b"0\x03abc", b"hello", DER[:-1]])
def test_what_is_no_certificate_is_a_value_error(der: bytes) -> None:
    with pytest.raises(ValueError):
        read_certificate(der)


@given(st.data())
def test_whatever_is_damaged_is_read_or_a_value_error(data: st.DataObject) -> None:
    damaged = bytearray(DER)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(DER) - 1))] = data.draw(st.integers(0, 255))
    try:
        certificate = read_certificate(bytes(damaged[: data.draw(st.integers(0, len(DER)))]))
    except ValueError:
        return
    assert certificate.subject.isprintable()


@given(st.binary(max_size=200))
def test_any_bytes_are_no_more_than_a_value_error(der: bytes) -> None:
    with pytest.raises(ValueError):
        read_certificate(der)


AUTHORITY, OTHERS = Authority(), Authority("others")
TRUSTING = TlsSettings(truststore=Source("ssl_truststore_certificates", AUTHORITY.pem))
BROKER = Broker("broker.example", 9093)
ISSUED = AUTHORITY.issue("broker.example")


def alice(authority: Authority, **more: str) -> TlsSettings:
    issued = authority.issue(common_name="alice")
    return TlsSettings(
        truststore=TRUSTING.truststore,
        certificate_chain=Source("ssl_keystore_certificate_chain", Secret(issued.chain)),
        key=Source("ssl_keystore_key", Secret(issued.key_pem)),
        versions=tuple(more.values()) or TRUSTING.versions,
    )


def shown(issued: Issued) -> PeerCertificate:
    return read_certificate(ssl.PEM_cert_to_DER_cert(issued.chain))


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
    assert text.startswith("broker.example:9093 ")
    assert "_ssl.c" not in text
    assert "[SSL" not in text
    assert isinstance(failed, AuthenticationFailed | ConnectionFailed)
    if isinstance(failed, AuthenticationFailed):
        assert failed.broker == "broker.example:9093"
    return text


def test_an_unknown_issuer_is_named(tmp_path: Path) -> None:
    issued = OTHERS.issue("broker.example")
    error = error_of(tmp_path, TRUSTING, issued)
    assert isinstance(tls_failure(error, BROKER, TRUSTING), AuthenticationFailed)
    assert told(error, TRUSTING, shown(issued)) == (
        "broker.example:9093 does not prove who it is: we do not trust who issued its certificate (CN=others); "
        "it is not in ssl_truststore_certificates"
    )
    nothing = TlsSettings()
    assert "only the system's authorities are trusted" in told(error, nothing)
    users = TlsSettings(context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    assert "load that authority into your ssl_context" in told(error, users)


def test_an_expired_certificate_says_since_when(tmp_path: Path) -> None:
    until = NOW - timedelta(hours=2)
    issued = AUTHORITY.issue("broker.example", not_after=until)
    error = error_of(tmp_path, TRUSTING, issued)
    assert f"has expired on {until:%Y-%m-%d %H:%M} UTC; it needs a new one" in told(
        error, TRUSTING, shown(issued)
    )
    assert "has expired; it needs a new one" in told(error, TRUSTING)


def test_expired_intermediate_is_named_with_its_own_date(tmp_path: Path) -> None:
    until = NOW - timedelta(hours=3)
    between = Authority("between", issuer=AUTHORITY, not_after=until)
    issued = between.issue("broker.example")
    presented = issued._replace(chain_above=between.pem)
    error = error_of(tmp_path, TRUSTING, presented)
    chain = (shown(issued), read_certificate(ssl.PEM_cert_to_DER_cert(between.pem)))
    text = str(tls_failure(error, BROKER, TRUSTING, chain))
    assert f"its authority's certificate (CN=between) has expired on {until:%Y-%m-%d %H:%M} UTC" in text


def test_expired_trusted_certificate_is_named_with_its_store(tmp_path: Path) -> None:
    until = NOW - timedelta(hours=4)
    old = Authority("old", not_after=until)
    settings = TlsSettings(truststore=Source("ssl_truststore_certificates", old.pem))
    issued = old.issue("broker.example")
    error = error_of(tmp_path, settings, issued)
    assert (
        f"a trusted certificate (CN=old in ssl_truststore_certificates) has expired on {until:%Y-%m-%d}"
        in told(error, settings, shown(issued))
    )


def test_one_that_is_not_valid_yet_says_before_when(tmp_path: Path) -> None:
    begin = NOW + timedelta(hours=2)
    issued = AUTHORITY.issue("broker.example", not_before=begin)
    error = error_of(tmp_path, TRUSTING, issued)
    assert f"not valid yet, before {begin:%Y-%m-%d %H:%M} UTC; is the clock right?" in told(
        error, TRUSTING, shown(issued)
    )


@pytest.mark.parametrize(
    ("names", "listed"),
    [
        (("a.example", "10.0.0.1"), "but for a.example, 10.0.0.1; connect by"),
        ((), "but for nobody by name (it has no subjectAltName); connect by"),
        (tuple(f"b{n}.example" for n in range(10)), "b7.example and 2 more; connect by"),
    ],
)
def test_a_wrong_host_name_is_answered_with_the_right_ones(
    tmp_path: Path, names: tuple[str, ...], listed: str
) -> None:
    issued = AUTHORITY.issue(*names)
    error = error_of(tmp_path, TRUSTING, issued)
    text = told(error, TRUSTING, shown(issued))
    assert "its certificate is not for broker.example" in text
    assert listed in text
    assert "its certificate is not for broker.example; connect by" in told(error, TRUSTING)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_certificate_that_is_required(tmp_path: Path, version: str) -> None:
    settings = TlsSettings(truststore=TRUSTING.truststore, versions=(version,))
    error = error_of(tmp_path, settings, ISSUED, clients_of=AUTHORITY)
    failed = tls_failure(error, BROKER, settings)
    assert isinstance(failed, AuthenticationFailed)
    assert "wants a client certificate" in told(error, settings)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_certificate_that_is_not_accepted(tmp_path: Path, version: str) -> None:
    settings = alice(OTHERS, version=version)
    error = error_of(tmp_path, settings, ISSUED, clients_of=AUTHORITY)
    assert is_about_us(error)
    assert told(error, settings) == (
        "broker.example:9093 refused us: it does not know who issued our certificate; see ssl_keystore_certificate_chain"
    )
    users = TlsSettings(context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    assert "see what your ssl_context has loaded" in told(error, users)


def test_no_version_in_common(tmp_path: Path) -> None:
    server = server_context(ISSUED, tmp_path)
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    settings = TlsSettings(truststore=TRUSTING.truststore, versions=("TLSv1.3",))
    with pytest.raises(ssl.SSLError) as raised:
        handshake(build_context(settings), server, BROKER.host)
    assert told(raised.value, settings).endswith(
        "it does not speak any of TLSv1.3: see ssl_enabled_protocols"
    )
    assert not is_about_us(raised.value)


@pytest.mark.parametrize("answer", [b"\0\0\0\x0a\0\0\0\0\0\x23", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_that_does_not_speak_tls(answer: bytes) -> None:
    from_server = ssl.MemoryBIO()
    client = build_context(TRUSTING).wrap_bio(from_server, ssl.MemoryBIO(), server_hostname=BROKER.host)
    from_server.write(answer)
    with pytest.raises(ssl.SSLError) as raised:
        client.do_handshake()
    assert isinstance(tls_failure(raised.value, BROKER, TRUSTING), ConnectionFailed)
    assert "does not answer in TLS: is this a listener for PLAINTEXT" in told(raised.value, TRUSTING)


def test_a_port_that_hangs_up() -> None:
    from_server = ssl.MemoryBIO()
    client = build_context(TRUSTING).wrap_bio(from_server, ssl.MemoryBIO(), server_hostname=BROKER.host)
    from_server.write_eof()
    with pytest.raises(ssl.SSLEOFError) as raised:
        client.do_handshake()
    assert "hung up during TLS: is this a listener for PLAINTEXT" in told(raised.value, TRUSTING)
    for error in ConnectionResetError(), BrokenPipeError():
        assert "hung up during the TLS handshake: is this a listener for PLAINTEXT" in told(error, TRUSTING)
    for late in ConnectionAbortedError("SSL handshake is taking longer than 60.0 seconds"), TimeoutError():
        assert "did not complete the TLS handshake in time" in told(late, TRUSTING)


def test_what_has_no_words_of_its_own_is_passed_on_in_openssls() -> None:
    error = ssl.SSLError(1, "[SSL: TLSV1_ALERT_INTERNAL_ERROR] tlsv1 alert internal error (_ssl.c:1006)")
    error.reason = "TLSV1_ALERT_INTERNAL_ERROR"
    assert told(error, TRUSTING) == "broker.example:9093 broke off TLS: internal error"
    assert told(ssl.SSLError(1, "x (_ssl.c:1)"), TRUSTING).endswith("broke off TLS: no reason given")
    assert not is_about_us(OSError())
    verify = ssl.SSLCertVerificationError(1, "x (_ssl.c:1)")
    verify.verify_code, verify.verify_message = 23, "certificate revoked"
    assert told(verify, TRUSTING).endswith("does not prove who it is: certificate revoked")


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


async def test_a_certificate_is_shown_to_anybody(tmp_path: Path) -> None:
    async with listening(tmp_path) as port:
        chain = await shown_chain(Broker("wrong.example.", port), ("127.0.0.1", port))
    (certificate,) = chain
    assert certificate.names == ("a.example", "b.example")
    assert certificate.issuer == "CN=lab authority"


async def test_chain_has_intermediate_certificates(tmp_path: Path) -> None:
    between = Authority("between", issuer=AUTHORITY)
    issued = between.issue("a.example")._replace(chain_above=between.pem)
    async with listening(tmp_path, issued=issued) as port:
        chain = await shown_chain(Broker("a.example", port), ("127.0.0.1", port))
    assert [each.subject for each in chain] == ["CN=broker, O=lab", "CN=between"]


@pytest.mark.parametrize("broker", [Broker("127.0.0.1", 1), Broker("", 1)])
async def test_who_is_not_there_shows_none(broker: Broker) -> None:
    assert await shown_chain(broker) == ()


async def test_who_speaks_no_tls_shows_none(tmp_path: Path) -> None:
    async with listening(tmp_path, tls=False) as port:
        assert await shown_chain(Broker("127.0.0.1", port)) == ()
