from __future__ import annotations

import ssl
from typing import Any

import pytest

from aioproducer._core.security.security_settings import TlsSettings
from aioproducer._core.security.stores import Source
from aioproducer._core.security.tls import build_context
from aioproducer.testing import Cluster, ThreadedCluster
from tests.cases import for_each
from tests.unit._core.security.certificates import handshake

USERS = {"alice": "secret"}


@for_each(
    ("options", "error", "told"),
    [
        (
            {"security_protocol": "TLS"},
            ValueError,
            "'TLS': expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ({"users": USERS}, ValueError, "users: only for SASL, .* is 'PLAINTEXT'"),
        (
            {"security_protocol": "SSL", "tokens": {"t": "u"}},
            ValueError,
            "tokens: only for SASL, .* is 'SSL'",
        ),
        ({"session_lifetime_s": 3}, ValueError, "session_lifetime_s: only for SASL"),
        ({"sasl_mechanisms": ["PLAIN"]}, ValueError, "sasl_mechanisms: only for SASL"),
        ({"client_auth": True}, ValueError, "client_auth: only with TLS, .* is 'PLAINTEXT'"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "users": USERS, "client_auth": True},
            ValueError,
            "make it 'SSL' or 'SASL_SSL'",
        ),
        ({"security_protocol": "SASL_SSL"}, ValueError, 'set users={"alice": "password"} or tokens='),
        ({"security_protocol": "SASL_SSL", "users": {}}, ValueError, "SASL needs accounts"),
        (
            {"security_protocol": "SASL_SSL", "users": ["alice"]},
            TypeError,
            "users is a mapping of texts to texts",
        ),
        ({"security_protocol": "SASL_SSL", "users": {"alice": ""}}, TypeError, "none of them empty"),
        (
            {"security_protocol": "SASL_SSL", "tokens": {"t": 5}},
            TypeError,
            "tokens is a mapping of texts to texts",
        ),
    ],
)
def test_contradictions_are_refused_at_once(options: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        Cluster(**options)


@for_each(
    ("options", "error", "told"),
    [
        ({"sasl_mechanisms": "PLAIN"}, TypeError, r"such as \['PLAIN'\], not 'PLAIN'"),
        ({"sasl_mechanisms": []}, ValueError, "leave it out"),
        (
            {"sasl_mechanisms": ["GSSAPI"]},
            ValueError,
            "'GSSAPI' is no mechanism of this broker; it has SCRAM-SHA-512,",
        ),
        ({"sasl_mechanisms": ["OAUTHBEARER"]}, ValueError, "OAUTHBEARER needs tokens"),
        (
            {"sasl_mechanisms": ["AWS_MSK_IAM"], "users": None, "tokens": {"t": "u"}},
            ValueError,
            "AWS_MSK_IAM needs users",
        ),
        ({"session_lifetime_s": "3"}, TypeError, "must be a number of seconds, not '3'"),
        ({"session_lifetime_s": 0}, ValueError, "more than 0 s"),
        ({"session_lifetime_s": float("nan")}, ValueError, "more than 0 s"),
    ],
)
def test_illegal_sasl_arguments_are_refused(options: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        Cluster(**({"security_protocol": "SASL_PLAINTEXT", "users": USERS} | options))


def test_client_options_are_empty_with_plaintext() -> None:
    cluster = Cluster()
    assert cluster.client_options == {}
    for ask in (lambda: cluster.ca_pem, cluster.renew_certificates):
        with pytest.raises(RuntimeError, match="speaks PLAINTEXT has no certificates"):
            ask()


def test_client_options_follow_changes() -> None:
    cluster = Cluster(security_protocol="SASL_PLAINTEXT", users=USERS)
    assert cluster.client_options == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "alice",
        "sasl_password": "secret",
    }
    cluster.users["alice"] = "new"
    assert cluster.client_options["sasl_password"] == "new"
    assert USERS == {"alice": "secret"}


def test_first_mechanism_is_the_one_to_log_in_by() -> None:
    mechanisms = ["OAUTHBEARER", "PLAIN"]
    cluster = Cluster(
        security_protocol="SASL_PLAINTEXT", sasl_mechanisms=mechanisms, users=USERS, tokens={"t": "alice"}
    )
    options = cluster.client_options
    assert options["sasl_mechanism"] == "OAUTHBEARER"
    assert "sasl_password" not in options
    assert options["sasl_oauth_token_provider"]() == "t"
    tokens = cluster.tokens
    assert isinstance(tokens, dict)
    del tokens["t"]
    tokens["u"] = "alice"
    assert options["sasl_oauth_token_provider"]() == "u"


@pytest.mark.parametrize(
    "options", [{"tokens": lambda _: "alice"}, {"users": USERS, "sasl_mechanisms": ["AWS_MSK_IAM"]}]
)
def test_client_options_leave_out_callable_tokens(options: Any) -> None:
    found = Cluster(security_protocol="SASL_PLAINTEXT", **options).client_options
    assert set(found) == {"security_protocol", "sasl_mechanism"}


def test_producer_connects_with_client_options() -> None:
    cluster = Cluster(security_protocol="SSL", client_auth=True)
    for _ in range(2):
        options = cluster.client_options
        assert options["ssl_truststore_certificates"] == cluster.ca_pem
        names = ("ssl_truststore_certificates", "ssl_keystore_certificate_chain", "ssl_keystore_key")
        trust, chain, key = (Source(name, options[name]) for name in names)
        context = build_context(TlsSettings(truststore=trust, certificate_chain=chain, key=key))
        server = cluster._security.context
        assert server is not None
        for host in ("127.0.0.1", "localhost", "broker-1.memory"):
            handshake(context, server, host)
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(context, server, "broker-2.memory")
        cluster.renew_certificates(new_authority=True)


def test_threaded_cluster_has_security() -> None:
    with ThreadedCluster(security_protocol="SASL_SSL", users=USERS, tokens={"t": "alice"}) as cluster:
        before = cluster.ca_pem
        assert cluster.client_options["ssl_truststore_certificates"] == before
        assert (cluster.users, cluster.tokens) == (USERS, {"t": "alice"})
        cluster.renew_certificates(new_authority=True)
        assert cluster.ca_pem != before
