from __future__ import annotations

import ssl

import pytest

from aioproducer._core.security.ciphers import TLS13, openssl_name, restrict


@pytest.mark.parametrize(
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
def test_javas_names_become_openssls(suite: str, name: str) -> None:
    assert openssl_name(suite) == name


def restricted(*suites: str) -> tuple[set[str], ssl.TLSVersion, ssl.TLSVersion]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    restrict(context, suites)
    older = {cipher["name"] for cipher in context.get_ciphers() if not cipher["name"].startswith("TLS_")}
    return older, context.minimum_version, context.maximum_version


def test_nothing_is_restricted_unasked() -> None:
    older, *versions = restricted()
    assert len(older) > 5
    assert versions == [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def test_suites_of_tls_1_2_leave_no_other_version(caplog: pytest.LogCaptureFixture) -> None:
    older, lowest, highest = restricted("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    assert older == {"ECDHE-RSA-AES128-GCM-SHA256"}
    assert lowest == highest == ssl.TLSVersion.TLSv1_2
    assert not caplog.messages


@pytest.mark.skipif(hasattr(ssl.SSLContext, "set_ciphersuites"), reason="this Python can restrict them")
def test_suites_of_tls_1_3_leave_no_other_version_and_cannot_be_told_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, lowest, highest = restricted(TLS13[0])
    assert lowest == highest == ssl.TLSVersion.TLSv1_3
    assert caplog.messages == ["security.cipher_suites.of_tls_1_3 limited=False"]


def test_unknown_ones_are_named() -> None:
    with pytest.raises(ValueError, match=r"knows no cipher suite NONSENSE, TLS-NOT-WITH-THAT$"):
        restricted("NONSENSE", "ECDHE-RSA-AES128-GCM-SHA256", "TLS-NOT-WITH-THAT")


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "suites", ["ALL:!aNULL:!eNULL", "HIGH:!aNULL", "DEFAULT:@SECLEVEL=2", "ECDHE+AESGCM"]
)
def test_strings_of_openssl_that_authenticate_are_taken(suites: str) -> None:
    older, *_ = restricted(suites)
    assert older
