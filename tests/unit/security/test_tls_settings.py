from __future__ import annotations

from aioproducer.security.secret import Secret
from aioproducer.security.stores import Source
from aioproducer.security.tls_settings import TlsSettings

TRUST, STORE = Source("ssl_truststore_location", "a"), Source("ssl_keystore_location", "b")
CHAIN = Source("ssl_keystore_certificate_chain", Secret("c"))
KEY = Source("ssl_keystore_key", Secret("hunter2"))


def test_all_that_is_read_is_known() -> None:
    assert TlsSettings().sources == ()
    everything = TlsSettings(truststore=TRUST, keystore=STORE, certificate_chain=CHAIN, key=KEY)
    assert everything.sources == (TRUST, STORE, CHAIN, KEY)
    assert "hunter2" not in repr(everything)


def test_who_has_a_key_has_an_identity() -> None:
    assert TlsSettings(keystore=STORE).has_identity
    assert TlsSettings(key=KEY).has_identity
    assert not TlsSettings(truststore=TRUST).has_identity
