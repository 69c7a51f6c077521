from __future__ import annotations

from aioproducer.backoff import Backoff
from aioproducer.security.credentials import Login
from aioproducer.security.secret import Secret
from aioproducer.security.security_settings import (
    AssertionSettings,
    EndpointSettings,
    SaslSettings,
    SecuritySettings,
    TlsSettings,
    UnsecuredSettings,
)
from aioproducer.security.stores import Source

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
