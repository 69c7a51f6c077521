from __future__ import annotations

import ssl
import warnings

import pytest
from hypothesis import given, strategies as st

from aioproducer._core.backoff import Backoff
from aioproducer._core.security.passwords import Login
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.security_settings import (
    AssertionSettings,
    EndpointSettings,
    LoginModule,
    SaslSettings,
    SecuritySettings,
    TlsSettings,
    UnsecuredSettings,
    parse_jaas,
    weaknesses,
    weaknesses_of_context,
)
from aioproducer._core.security.stores import Source
from tests.cases import for_each

TRUST, STORE = Source("ssl_truststore_location", "a"), Source("ssl_keystore_location", "b")
CHAIN = Source("ssl_keystore_certificate_chain", Secret("c"))
KEY = Source("ssl_keystore_key", Secret("hunter2"))


def test_security_settings_default_to_plaintext() -> None:
    assert SecuritySettings() == SecuritySettings(tls=None, sasl=None)


def test_repr_of_sasl_settings_hides_the_password() -> None:
    sasl = SaslSettings("PLAIN", Backoff(1, 2), credentials=Login("u", Secret("hunter2")))
    assert "hunter2" not in repr(SecuritySettings(sasl=sasl))


def test_sources_list_every_file_of_the_settings() -> None:
    assert TlsSettings().sources == ()
    everything = TlsSettings(truststore=TRUST, keystore=STORE, certificate_chain=CHAIN, key=KEY)
    assert everything.sources == (TRUST, STORE, CHAIN, KEY)
    assert "hunter2" not in repr(everything)


def test_keystore_or_key_counts_as_an_identity() -> None:
    assert TlsSettings(keystore=STORE).has_identity
    assert TlsSettings(key=KEY).has_identity
    assert not TlsSettings(truststore=TRUST).has_identity


def test_repr_of_token_settings_hides_secrets() -> None:
    assertion = AssertionSettings(private_key_passphrase=Secret("hunter2"))
    endpoint = EndpointSettings(
        "https://a", Backoff(1, 2), client_secret=Secret("hunter2"), assertion=assertion
    )
    assert "hunter2" not in repr(endpoint)


def test_token_settings_have_the_defaults_of_kafka() -> None:
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
def test_weak_settings_are_named(settings: SecuritySettings, weak: list[str]) -> None:
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


@for_each(
    ("text", "module"),
    [
        (
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";',
            LoginModule("PlainLoginModule", {"username": "a", "password": "b"}),
        ),
        ("PlainLoginModule REQUIRED;", LoginModule("PlainLoginModule", {})),
        (
            "  shaded.ScramLoginModule\trequired\n  username='a b'\n  tokenauth=true ; ",
            LoginModule("ScramLoginModule", {"username": "a b", "tokenauth": "true"}),
        ),
        (
            r'M required password="a\"b\\c\n\101\x;=" other=a/b@C.D;',
            LoginModule("M", {"password": 'a"b\\c\nAx;=', "other": "a/b@C.D"}),
        ),
        ('M required a = "" /* b="c" */ d="e"; // the end', LoginModule("M", {"a": "", "d": "e"})),
    ],
)
def test_jaas_text_is_parsed_into_class_and_options(text: str, module: LoginModule) -> None:
    assert parse_jaas(text) == module


@for_each(
    ("text", "why"),
    [
        ("", "is no login module"),
        ("hunter2", "is no login module"),
        ("= required;", "is no login module"),
        ('M maybe password="hunter2";', "needs one of required, requisite, sufficient, optional"),
        ('M required password="hunter2"', "has to end in a semicolon"),
        ('M required password="hunter2', "has an open quotation mark"),
        ('M required password "hunter2";', "malformed after 0 options"),
        ('M required a="b" password=;', "malformed after 1 options"),
        ('M required a="hunter2" a="hunter2";', "gives a twice"),
        ('M required; N required password="hunter2";', "more than one login module"),
    ],
)
def test_malformed_jaas_text_is_refused_without_its_value(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as raised:
        parse_jaas(text)
    assert "hunter2" not in str(raised.value)


def test_repr_of_a_login_module_hides_the_options() -> None:
    assert "hunter2" not in repr(parse_jaas('M required password="hunter2";'))


@given(st.text(st.characters(exclude_characters="\n"), max_size=20))
def test_quoted_option_value_may_have_any_characters(value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'M required password="{quoted}";').options == {"password": value}


@given(st.text(alphabet="Mrequired =;\"'\\/*\n", max_size=40))
def test_parse_jaas_returns_a_module_or_raises_value_error(text: str) -> None:
    try:
        module = parse_jaas(text)
    except ValueError:
        return
    assert module.name
