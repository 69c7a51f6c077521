from __future__ import annotations

import ssl
import warnings

from aioproducer._core.backoff import Backoff
from aioproducer._core.security.credentials import Login
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.security_settings import (
    AssertionSettings,
    EndpointSettings,
    SaslSettings,
    SecuritySettings,
    TlsSettings,
    UnsecuredSettings,
    weaknesses,
    weaknesses_of_context,
)
from aioproducer._core.security.stores import Source
from tests.cases import for_each

TRUST, STORE = Source("ssl_truststore_location", "a"), Source("ssl_keystore_location", "b")
CHAIN = Source("ssl_keystore_certificate_chain", Secret("c"))
KEY = Source("ssl_keystore_key", Secret("hunter2"))


def test_nothing_is_secured_unasked() -> None:
    assert SecuritySettings() == SecuritySettings(tls=None, sasl=None)


def test_a_login_shows_no_secret() -> None:
    sasl = SaslSettings("PLAIN", Backoff(1, 2), credentials=Login("u", Secret("hunter2")))
    assert "hunter2" not in repr(SecuritySettings(sasl=sasl))


def test_all_that_is_read_is_known() -> None:
    assert TlsSettings().sources == ()
    everything = TlsSettings(truststore=TRUST, keystore=STORE, certificate_chain=CHAIN, key=KEY)
    assert everything.sources == (TRUST, STORE, CHAIN, KEY)
    assert "hunter2" not in repr(everything)


def test_who_has_a_key_has_an_identity() -> None:
    assert TlsSettings(keystore=STORE).has_identity
    assert TlsSettings(key=KEY).has_identity
    assert not TlsSettings(truststore=TRUST).has_identity


def test_no_token_settings_show_a_secret() -> None:
    assertion = AssertionSettings(private_key_passphrase=Secret("hunter2"))
    endpoint = EndpointSettings(
        "https://a", Backoff(1, 2), client_secret=Secret("hunter2"), assertion=assertion
    )
    assert "hunter2" not in repr(endpoint)


def test_the_defaults_are_kafkas() -> None:
    endpoint, assertion = EndpointSettings("https://a", Backoff(1, 2)), AssertionSettings()
    assert (assertion.algorithm, assertion.lives_s, assertion.valid_before_s) == ("RS256", 300, 60)
    assert (endpoint.urlencode, endpoint.jwt_bearer) == (False, False)
    assert UnsecuredSettings().lives_s == 3600


BACKOFF = Backoff(1, 2)
PLAIN = SaslSettings("PLAIN", BACKOFF, credentials=Login("u", Secret("hunter2")))
SCRAM = SaslSettings("SCRAM-SHA-256", BACKOFF, credentials=Login("u", Secret("hunter2")))
HTTPS = SaslSettings("OAUTHBEARER", BACKOFF, tokens=EndpointSettings("https://a/", BACKOFF))
HTTP = SaslSettings("OAUTHBEARER", BACKOFF, tokens=EndpointSettings("HTTP://a/", BACKOFF))
UNSIGNED = SaslSettings("OAUTHBEARER", BACKOFF, tokens=UnsecuredSettings())
TLS = TlsSettings()


@for_each(
    ("settings", "weak"),
    [
        (SecuritySettings(), []),
        (SecuritySettings(TLS), []),
        (SecuritySettings(TLS, PLAIN), []),
        (SecuritySettings(TLS, HTTPS), []),
        (SecuritySettings(None, SCRAM), []),
        (SecuritySettings(None, PLAIN), ["sasl_mechanism=PLAIN security_protocol=SASL_PLAINTEXT"]),
        (SecuritySettings(None, HTTPS), ["sasl_mechanism=OAUTHBEARER security_protocol=SASL_PLAINTEXT"]),
        (SecuritySettings(TLS, HTTP), ["sasl_oauthbearer_token_endpoint_url=http:"]),
        (SecuritySettings(TLS, UNSIGNED), ["sasl_jaas_config=unsecuredLogin"]),
        (SecuritySettings(TlsSettings(check_hostname=False)), ["ssl_endpoint_identification_algorithm=''"]),
    ],
)
def test_each_weak_setting_is_named(settings: SecuritySettings, weak: list[str]) -> None:
    assert [setting for setting, _ in weaknesses(settings)] == weak


def test_weak_settings_of_a_context_are_named() -> None:
    assert [*weaknesses_of_context(ssl.create_default_context())] == []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    assert [setting for setting, _ in weaknesses_of_context(context)] == ["ssl_context.check_hostname=False"]
    context.verify_mode = ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        limited = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        limited.minimum_version = ssl.TLSVersion.TLSv1
        limited.options |= ssl.OP_NO_TLSv1 | ssl.OP_NO_TLSv1_1
    settings = SecuritySettings(TlsSettings(context=context))
    assert [setting for setting, _ in weaknesses(settings)] == [
        "ssl_context.verify_mode=CERT_NONE",
        "ssl_context.minimum_version=TLSv1",
    ]
    assert [*weaknesses_of_context(limited)] == []
