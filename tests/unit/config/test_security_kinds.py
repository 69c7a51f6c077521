from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from aioproducer._core.security.passwords import Plain
from aioproducer._core.security.secret import Secret
from aioproducer.config.kinds import Kind
from aioproducer.config.security_kinds import (
    PROTOCOLS,
    STORES,
    CallableKind,
    HostnameCheck,
    Jaas,
    MechanismKind,
    PathKind,
    SecretKind,
    SslContext,
    Text,
    Url,
    Word,
    Words,
)
from tests.cases import for_each
from tests.unit._core.security.conversation import credentials

CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
PROTOCOL = Word(PROTOCOLS, optional=False)
VERSIONS = Words(("TLSv1.2", "TLSv1.3"))
JAAS = 'M required password="hunter2";'


@for_each(
    ("kind", "value", "kept"),
    [
        (PROTOCOL, "sasl_ssl", "SASL_SSL"),
        (Word(STORES), "pkcs12", "PKCS12"),
        (Word(STORES), None, None),
        (Word(STORES), "", None),
        (Text(), "a", "a"),
        (Text(), "", None),
        (PathKind(), "a/b", "a/b"),
        (PathKind(), Path("a/b"), "a/b"),
        (PathKind(), "", None),
        (SecretKind(), "a", Secret("a")),
        (SecretKind(), Secret("a"), Secret("a")),
        (SecretKind(), "", None),
        (SecretKind(), None, None),
        (Jaas(), JAAS, Secret(JAAS)),
        (Jaas(), None, None),
        (VERSIONS, "TLSv1.3, TLSv1.2,", ("TLSv1.3", "TLSv1.2")),
        (VERSIONS, ["TLSv1.3"], ("TLSv1.3",)),
        (Words(), None, ()),
        (Words(), "", ()),
        (Words(), "a, b,a", ("a", "b")),
        (HostnameCheck(), "HTTPS", "https"),
        (HostnameCheck(), "", ""),
        (SslContext(), CONTEXT, CONTEXT),
        (SslContext(), ssl.create_default_context, ssl.create_default_context),
        (SslContext(), None, None),
        (MechanismKind(), "scram-sha-256", "SCRAM-SHA-256"),
        (MechanismKind(), Plain, Plain),
        (MechanismKind(), "", None),
        (MechanismKind(), None, None),
        (CallableKind("it"), print, print),
        (CallableKind("it"), None, None),
        (Url(), "https://a.example:8443/token?x=y", "https://a.example:8443/token?x=y"),
        (Url(), "file:///a/b", "file:///a/b"),
        (Url(), "", None),
        (Url(), None, None),
    ],
)
def test_a_good_value_is_kept_in_its_one_form(kind: Kind, value: object, kept: object) -> None:
    assert kind.check(value) == kept


@for_each(
    ("kind", "value"),
    [
        *((PROTOCOL, value) for value in ("", "TLS", 1, None)),
        *((Word(STORES), value) for value in ("DER", 1)),
        *((Text(), value) for value in (1, b"a")),
        *((PathKind(), value) for value in (1, b"a")),
        *((SecretKind(), value) for value in (1, b"a")),
        *((VERSIONS, value) for value in ("TLSv1.1", "", [], [1], None, 1, b"TLSv1.2")),
        *((Words(), value) for value in (1, [None])),
        *((HostnameCheck(), value) for value in ("http", None, False)),
        *((SslContext(), value) for value in (1, b"ctx")),
        *((MechanismKind(), value) for value in (1,)),
        *((CallableKind("it"), value) for value in (1, ("u", "p"))),
        *(
            (Url(), value)
            for value in ("a.example", "ftp://a", "https://", "http://a:b", "file:", 1, "http://[::1")
        ),
    ],
)
def test_a_bad_value_is_answered_with_what_was_expected(kind: Kind, value: object) -> None:
    with pytest.raises(ValueError) as raised:
        kind.check(value)
    assert str(raised.value) == f"expected {kind.expected}"


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (
            PathKind("ssl_keystore_key"),
            "-----BEGIN PRIVATE KEY-----",
            "is PEM text, not a path; give it as ssl_keystore_key",
        ),
        (SslContext(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), "is made for servers"),
        (
            MechanismKind(),
            "NTLM",
            "is not known; expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER",
        ),
        (MechanismKind(), Plain(credentials()), "give a factory"),
        (Url(), "https://u:hunter2@a/", "contains a user name or password"),
        (Jaas(), "hunter2", "is no login module"),
    ],
)
def test_invalid_values_are_refused_with_a_reason(kind: Kind, value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        kind.check(value)


@for_each(
    ("kind", "value", "shown"),
    [
        (SecretKind(), "hunter2", "***"),
        (Jaas(), "hunter2", "***"),
        (CallableKind("it"), "hunter2", "***"),
        (PathKind(), "-----BEGIN", "***"),
        (Url(), "https://u:hunter2@a", "***"),
        (PathKind(), "a", "'a'"),
        (Url(), "http:", "'http:'"),
        (Text(), 1, "1"),
        (SecretKind(), None, "None"),
    ],
)
def test_possible_secrets_are_hidden(kind: Kind, value: object, shown: str) -> None:
    assert kind.shown(value) == shown


@pytest.mark.parametrize("kind", [CallableKind("it"), SslContext()])
def test_text_names_no_code(kind: Kind) -> None:
    with pytest.raises(ValueError, match="text cannot name code"):
        kind.check("package.module:function")
