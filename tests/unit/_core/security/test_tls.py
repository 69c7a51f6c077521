from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from aioproducer._core.backoff import Backoff
from aioproducer._core.security import tls as module
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.security_settings import TlsSettings
from aioproducer._core.security.stores import Source, StoreError
from aioproducer._core.security.tls import (
    TLS13_SUITES,
    TlsContexts,
    build_context,
    openssl_name,
    restrict,
    server_name,
)
from aioproducer.errors import AuthenticationFailed
from aioproducer.testing.virtual_time import in_virtual_time
from tests.cases import for_each
from tests.unit._core.security.certificates import Authority, handshake, server_context, truststore


@for_each(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ],
)
def test_cipher_suites_in_javas_notation_are_translated(suite: str, name: str) -> None:
    assert openssl_name(suite) == name


def restricted(*suites: str) -> tuple[set[str], ssl.TLSVersion, ssl.TLSVersion]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    restrict(context, suites)
    older = {cipher["name"] for cipher in context.get_ciphers() if not cipher["name"].startswith("TLS_")}
    return older, context.minimum_version, context.maximum_version


def test_cipher_suites_and_versions_are_unrestricted_by_default() -> None:
    older, *versions = restricted()
    assert len(older) > 5
    assert versions == [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def test_cipher_suites_of_tls_1_2_restrict_the_version(caplog: pytest.LogCaptureFixture) -> None:
    older, lowest, highest = restricted("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    assert older == {"ECDHE-RSA-AES128-GCM-SHA256"}
    assert lowest == highest == ssl.TLSVersion.TLSv1_2
    assert not caplog.messages


@pytest.mark.skipif(hasattr(ssl.SSLContext, "set_ciphersuites"), reason="this Python can restrict them")
def test_cipher_suites_of_tls_1_3_only_restrict_the_version(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, lowest, highest = restricted(TLS13_SUITES[0])
    assert lowest == highest == ssl.TLSVersion.TLSv1_3
    assert caplog.messages == ["security.cipher_suites.of_tls_1_3 limited=False"]


def test_unknown_cipher_suites_are_named() -> None:
    with pytest.raises(ValueError, match=r"knows no cipher suite NONSENSE, TLS-NOT-WITH-THAT$"):
        restricted("NONSENSE", "ECDHE-RSA-AES128-GCM-SHA256", "TLS-NOT-WITH-THAT")


@for_each(
    "suites",
    [
        ("ALL:@SECLEVEL=0",),
        ("ALL", "@SECLEVEL=0"),
        ("ECDHE-RSA-AES128-GCM-SHA256:@seclevel=0",),
        ("ALL",),
        ("aNULL",),
        ("ADH-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("eNULL",),
        ("NULL-SHA256",),
    ],
)
def test_suites_without_authentication_or_encryption_are_refused(suites: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"authentication or encryption|encrypt nothing"):
        restricted(*suites)


@for_each("suites", ["ALL:!aNULL:!eNULL", "HIGH:!aNULL", "DEFAULT:@SECLEVEL=2", "ECDHE+AESGCM"])
def test_strings_of_openssl_that_authenticate_are_taken(suites: str) -> None:
    older, *_ = restricted(suites)
    assert older


AUTHORITY, OTHERS = Authority(), Authority("others")
BROKER, ALICE = AUTHORITY.issue("broker.example", "10.0.0.1"), AUTHORITY.issue(common_name="alice")
TRUST = Source("ssl_truststore_certificates", AUTHORITY.pem)
BACKOFF = Backoff(initial_s=1, max_s=8, jitter=0)


def text(option: str, *parts: str) -> Source:
    return Source(option, Secret("".join(parts)))


def identity(key: str, **more: Any) -> TlsSettings:
    chain = text("ssl_keystore_certificate_chain", ALICE.chain)
    return TlsSettings(truststore=TRUST, certificate_chain=chain, key=text("ssl_keystore_key", key), **more)


class TestServerName:
    @for_each(
        ("host", "name"),
        [
            ("a.example", "a.example"),
            ("a.example.", "a.example"),
            ("::1", "::1"),
            ("fe80::1%eth0", "fe80::1"),
        ],
    )
    def test_server_name_is_the_host_as_in_certificates(self, host: str, name: str) -> None:
        assert server_name(host) == name

    @pytest.mark.parametrize("host", ["", "."])
    def test_server_name_of_an_empty_host_is_an_error(self, host: str) -> None:
        with pytest.raises(ValueError, match="without a host name"):
            server_name(host)


class TestTrust:
    @pytest.mark.parametrize("host", ["broker.example", "10.0.0.1"])
    def test_certificate_of_a_trusted_authority_verifies(self, tmp_path: Path, host: str) -> None:
        context = build_context(TlsSettings(truststore=TRUST))
        assert handshake(context, server_context(BROKER, tmp_path), host).version() == "TLSv1.3"

    def test_truststore_may_be_pkcs12(self, tmp_path: Path) -> None:
        path = tmp_path / "trust.p12"
        path.write_bytes(truststore(AUTHORITY, password="hunter2"))
        settings = TlsSettings(
            truststore=Source("ssl_truststore_location", str(path)), truststore_password=Secret("hunter2")
        )
        handshake(build_context(settings), server_context(BROKER, tmp_path), "broker.example")

    def test_certificate_in_the_truststore_is_trusted_itself(self, tmp_path: Path) -> None:
        settings = TlsSettings(truststore=Source("ssl_truststore_certificates", BROKER.chain))
        handshake(build_context(settings), server_context(BROKER, tmp_path), "broker.example")

    @pytest.mark.parametrize("truststore", [None, Source("ssl_truststore_certificates", OTHERS.pem)])
    def test_certificate_of_another_authority_is_refused(
        self, tmp_path: Path, truststore: Source | None
    ) -> None:
        context = build_context(TlsSettings(truststore=truststore))
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(context, server_context(BROKER, tmp_path), "broker.example")

    def test_truststore_defaults_to_that_of_the_system(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loaded: list[ssl.SSLContext] = []
        monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda context: loaded.append(context))  # noqa: PLW0108 - a method
        context = build_context(TlsSettings())
        build_context(TlsSettings(truststore=TRUST))
        build_context(TlsSettings(), system_trust=False)
        assert loaded == [context]

    def test_host_name_is_checked_by_default(self, tmp_path: Path) -> None:
        server = server_context(BROKER, tmp_path)
        with pytest.raises(ssl.SSLCertVerificationError, match=r"wrong\.example"):
            handshake(build_context(TlsSettings(truststore=TRUST)), server, "wrong.example")
        lax = build_context(TlsSettings(truststore=TRUST, check_hostname=False))
        assert lax.verify_mode is ssl.CERT_REQUIRED
        handshake(lax, server, "wrong.example")

    @pytest.mark.parametrize(
        ("certificates", "why"),
        [
            (ALICE.key_pem, "has no certificate to trust"),
            ("-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----", "makes no sense"),
        ],
        ids=range(2),
    )
    def test_unusable_truststore_is_refused(self, certificates: str, why: str) -> None:
        with pytest.raises(StoreError, match=f"^ssl_truststore_certificates .*{why}"):
            build_context(TlsSettings(truststore=Source("ssl_truststore_certificates", certificates)))


class TestVersions:
    @pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
    def test_enabled_protocols_restrict_the_version(self, tmp_path: Path, version: str) -> None:
        context = build_context(TlsSettings(truststore=TRUST, versions=(version,)))
        assert handshake(context, server_context(BROKER, tmp_path), "broker.example").version() == version

    def test_cipher_suite_in_javas_notation_is_negotiated(self, tmp_path: Path) -> None:
        suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        context = build_context(TlsSettings(truststore=TRUST, cipher_suites=(suite,)))
        cipher = handshake(context, server_context(BROKER, tmp_path), "broker.example").cipher()
        assert cipher is not None
        assert cipher[:2] == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2")

    def test_unknown_cipher_suite_is_named(self) -> None:
        with pytest.raises(
            StoreError, match=r"^ssl_cipher_suites: OpenSSL here knows no cipher suite NONSENSE$"
        ):
            build_context(TlsSettings(truststore=TRUST, cipher_suites=("NONSENSE",)))


class TestIdentity:
    @pytest.mark.parametrize("in_order", [True, False])
    def test_certificate_and_key_in_one_file(self, tmp_path: Path, in_order: bool) -> None:
        path = tmp_path / "alice.pem"
        path.write_text(ALICE.chain + ALICE.key_pem if in_order else ALICE.key_pem + ALICE.chain)
        settings = TlsSettings(truststore=TRUST, keystore=Source("ssl_keystore_location", str(path)))
        handshake(
            build_context(settings), server_context(BROKER, tmp_path, clients_of=AUTHORITY), "broker.example"
        )

    def test_certificate_and_key_as_text(self, tmp_path: Path) -> None:
        server = server_context(BROKER, tmp_path, clients_of=AUTHORITY)
        handshake(build_context(identity(ALICE.key_pem)), server, "broker.example")
        both = TlsSettings(truststore=TRUST, key=text("ssl_keystore_key", ALICE.key_pem, ALICE.chain))
        handshake(build_context(both), server, "broker.example")

    def test_certificate_and_key_from_pkcs12(self, tmp_path: Path) -> None:
        path = tmp_path / "alice.p12"
        path.write_bytes(ALICE.pkcs12("hunter2"))
        settings = TlsSettings(
            truststore=TRUST,
            keystore=Source("ssl_keystore_location", str(path)),
            keystore_password=Secret("hunter2"),
        )
        handshake(
            build_context(settings), server_context(BROKER, tmp_path, clients_of=AUTHORITY), "broker.example"
        )

    @pytest.mark.parametrize("legacy", [False, True])
    def test_encrypted_key_is_used_with_its_password(self, tmp_path: Path, legacy: bool) -> None:
        key = ALICE.encrypted_key("hunter2", legacy=legacy)
        settings = identity(key, key_password=Secret("hunter2"))
        handshake(
            build_context(settings), server_context(BROKER, tmp_path, clients_of=AUTHORITY), "broker.example"
        )

    @pytest.mark.parametrize("in_memory", [True, False])
    def test_key_leaves_no_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        if not in_memory:
            monkeypatch.delattr(os, "memfd_create")
        build_context(identity(ALICE.key_pem))
        assert list(tmp_path.iterdir()) == []

    @for_each("legacy", [False, True])
    @for_each(
        ("password", "why"),
        [
            (None, "is encrypted: give ssl_key_password"),
            ("hunter3", "ssl_key_password is wrong, or the key is damaged"),
            ("x" * 1_025, "longer than OpenSSL takes"),
        ],
    )
    def test_encrypted_key_without_its_password_raises(
        self, legacy: bool, password: str | None, why: str
    ) -> None:
        key = ALICE.encrypted_key("hunter2", legacy=legacy)
        secret = Secret(password) if password else None
        with pytest.raises(StoreError, match=why) as raised:
            build_context(identity(key, key_password=secret))
        assert "_ssl.c" not in str(raised.value)
        assert "hunter" not in str(raised.value)

    @for_each(
        ("settings", "why"),
        [
            (identity(OTHERS.issue().key_pem), "the certificate does not belong to the key"),
            (identity(ALICE.chain), "ssl_keystore_key has no private key"),
            (
                TlsSettings(truststore=TRUST, keystore=text("ssl_keystore_location", ALICE.chain)),
                "ssl_keystore_location has no private key",
            ),
            (
                TlsSettings(truststore=TRUST, key=text("ssl_keystore_key", ALICE.key_pem)),
                "ssl_keystore_key has no certificate",
            ),
            (
                identity("-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----"),
                "certificate or key make no sense",
            ),
        ],
    )
    def test_mismatched_certificate_and_key_are_named(self, settings: TlsSettings, why: str) -> None:
        with pytest.raises(StoreError, match=why) as raised:
            build_context(settings)
        assert "_ssl.c" not in str(raised.value)


class TestContexts:
    """In real time: nothing here waits."""

    async def test_given_ssl_context_is_used_unchanged(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        contexts = TlsContexts(TlsSettings(context=context), backoff=BACKOFF)
        assert await contexts.context() is context

    async def test_context_callable_is_called_in_a_thread_per_connection(self) -> None:
        threads: list[threading.Thread] = []

        def make() -> ssl.SSLContext:
            threads.append(threading.current_thread())
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

        contexts = TlsContexts(TlsSettings(context=make), backoff=BACKOFF)
        assert await contexts.context() is not await contexts.context()
        assert threading.main_thread() not in threads

    async def test_context_is_built_once_in_a_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        threads: list[threading.Thread] = []

        def build(settings: TlsSettings) -> ssl.SSLContext:
            threads.append(threading.current_thread())
            return build_context(settings)

        monkeypatch.setattr(module, "build_context", build)
        contexts = TlsContexts(TlsSettings(truststore=TRUST), backoff=BACKOFF)
        first, *others = await asyncio.gather(*[contexts.context() for _ in range(5)])
        assert all(other is first for other in others)
        assert len(threads) == 1
        assert threads[0] is not threading.main_thread()

    async def test_changed_file_rebuilds_the_context(self, tmp_path: Path) -> None:
        path = tmp_path / "trust.pem"
        path.write_text(OTHERS.pem)
        settings = TlsSettings(truststore=Source("ssl_truststore_location", str(path)))
        contexts = TlsContexts(settings, backoff=BACKOFF)
        old = await contexts.context()
        assert await contexts.context() is old
        fresh = tmp_path / "fresh.pem"
        fresh.write_text(AUTHORITY.pem)
        fresh.replace(path)
        new = await contexts.context()
        assert new is not old, "a connection that is being made keeps its context"
        handshake(new, server_context(BROKER, tmp_path), "broker.example")

    async def test_missing_file_fails_the_first_context(self, tmp_path: Path) -> None:
        settings = TlsSettings(truststore=Source("ssl_truststore_location", str(tmp_path / "missing")))
        with pytest.raises(AuthenticationFailed, match=r"^no TLS: ssl_truststore_location = .*No such file"):
            await TlsContexts(settings, backoff=BACKOFF).context()

    @pytest.mark.parametrize(
        ("given", "why"), [(OSError("hunter2"), "raised OSError"), ("text", "and returned str")]
    )
    async def test_error_of_a_context_callable_hides_its_text(self, given: Any, why: str) -> None:
        def make() -> Any:
            if isinstance(given, Exception):
                raise given
            return given

        with pytest.raises(AuthenticationFailed, match=why) as raised:
            await TlsContexts(TlsSettings(context=make), backoff=BACKOFF).context()
        assert "hunter2" not in str(raised.value)


@in_virtual_time
async def test_last_good_context_is_kept_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trust.pem"
    path.write_text(AUTHORITY.pem)
    contexts = TlsContexts(
        TlsSettings(truststore=Source("ssl_truststore_location", str(path))), backoff=BACKOFF
    )
    good = await contexts.context()
    path.write_text(AUTHORITY.pem[:100])
    assert [await contexts.context() for _ in range(3)] == [good] * 3
    await asyncio.sleep(5)
    assert await contexts.context() is good
    (warning,) = caplog.messages
    assert warning.startswith('security.tls.kept error="ssl_truststore_location = ')
    path.write_text(OTHERS.pem)
    assert await contexts.context() is not good, "a changed file is read at once"
    path.unlink()
    await asyncio.sleep(2)
    await contexts.context()
    assert len(caplog.messages) == 2


@in_virtual_time
async def test_failing_context_callable_is_retried_after_the_backoff(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asked: list[float] = []
    fails = False

    async def make() -> ssl.SSLContext:
        asked.append(asyncio.get_running_loop().time())
        if fails:
            raise OSError("hunter2")
        return good

    contexts = TlsContexts(TlsSettings(context=make), backoff=BACKOFF)
    await contexts.context()
    fails = True
    for _ in range(8):
        assert await contexts.context() is good
        await asyncio.sleep(0.5)
    assert asked == [0, 0, 1, 3]
    assert caplog.messages == ["security.tls.kept error=OSError"]
    fails = False
    await asyncio.sleep(10)
    await contexts.context()
    await contexts.context()
    assert asked[4:] == [14, 14]
