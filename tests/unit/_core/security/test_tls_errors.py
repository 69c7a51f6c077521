"""Real errors, from handshakes in memory."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path

import pytest

from aioproducer._core.security.certificate import PeerCertificate, read_certificate
from aioproducer._core.security.mechanism import Broker
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.security_settings import TlsSettings
from aioproducer._core.security.stores import Source
from aioproducer._core.security.tls import build_context
from aioproducer._core.security.tls_errors import is_about_us, tls_failure
from aioproducer.errors import AuthenticationFailed, ConnectionFailed
from tests.unit._core.security.certificates import NOW, Authority, Issued, handshake, server_context

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
