"""Where the tokens of OAUTHBEARER come from."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer._core.backoff import Backoff
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.security_settings import (
    AssertionSettings,
    EndpointSettings,
    UnsecuredSettings,
)
from aioproducer.config import security as module
from tests.unit.config.securing import sasl, sasl_refusal

BACKOFF = Backoff(0.1, 10.0)
JAAS = "org.apache.kafka.common.security"
ENDPOINT = "https://idp.example/token"


@pytest.fixture(autouse=True)
def everything_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: "found")


class TestOAuth:
    def test_a_provider(self) -> None:
        assert sasl("OAUTHBEARER", sasl_oauth_token_provider=print).tokens is print

    def test_a_file(self) -> None:
        assert sasl("OAUTHBEARER", sasl_oauthbearer_token_endpoint_url="file:///t").tokens == "file:///t"

    def test_client_credentials(self) -> None:
        found = sasl(
            "OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=ENDPOINT,
            sasl_oauthbearer_client_credentials_client_id="me",
            sasl_oauthbearer_client_credentials_client_secret="hunter2",
            sasl_oauthbearer_scope="all",
            sasl_oauthbearer_header_urlencode=True,
            sasl_login_connect_timeout_ms=1_500,
            sasl_login_read_timeout_ms=2_500,
            sasl_login_retry_backoff_ms=200,
            sasl_login_retry_backoff_max_ms=3_000,
        )
        assert found.tokens == EndpointSettings(
            url=ENDPOINT,
            backoff=Backoff(0.2, 3.0),
            client_id="me",
            client_secret=Secret("hunter2"),
            scope="all",
            urlencode=True,
            connect_timeout_s=1.5,
            read_timeout_s=2.5,
        )

    def test_client_credentials_as_older_clients_have_them(self) -> None:
        jaas = (
            f'{JAAS}.oauthbearer.OAuthBearerLoginModule required clientId="me" clientSecret="hunter2"'
            ' scope="all" extension_logicalCluster="lkc-1";'
        )
        found = sasl("OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=ENDPOINT, sasl_jaas_config=jaas)
        assert found.tokens == EndpointSettings(ENDPOINT, BACKOFF, "me", Secret("hunter2"), scope="all")
        assert found.extensions == {"logicalCluster": "lkc-1"}

    @pytest.mark.parametrize("jwt_bearer", [False, True])
    def test_an_assertion(self, jwt_bearer: bool) -> None:
        retriever = (
            "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever" if jwt_bearer else None
        )
        found = sasl(
            "OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=ENDPOINT,
            sasl_oauthbearer_jwt_retriever_class=retriever,
            sasl_oauthbearer_assertion_private_key_file="key.pem",
            sasl_oauthbearer_assertion_private_key_passphrase="hunter2",
            sasl_oauthbearer_assertion_algorithm="es256",
            sasl_oauthbearer_assertion_claim_aud="idp",
            sasl_oauthbearer_assertion_claim_iss="me",
            sasl_oauthbearer_assertion_claim_sub="you",
            sasl_oauthbearer_assertion_claim_jti_include=True,
            sasl_oauthbearer_assertion_claim_exp_seconds=10,
            sasl_oauthbearer_assertion_claim_nbf_seconds=20,
        ).tokens
        assertion = AssertionSettings(
            private_key_file="key.pem",
            private_key_passphrase=Secret("hunter2"),
            algorithm="ES256",
            audience="idp",
            issuer="me",
            subject="you",
            with_jti=True,
            lives_s=10,
            valid_before_s=20,
        )
        assert found == EndpointSettings(ENDPOINT, BACKOFF, assertion=assertion, jwt_bearer=jwt_bearer)

    def test_unsecured_tokens(self) -> None:
        jaas = (
            'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice" unsecuredLoginNumberClaim_n="1.5"'
            ' unsecuredLoginListClaim_scope="|a|b" unsecuredLoginLifetimeSeconds="60";'
        )
        assert sasl("OAUTHBEARER", sasl_jaas_config=jaas).tokens == UnsecuredSettings(
            {"sub": "alice", "n": 1.5, "scope": ["a", "b"]}, 60.0
        )

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({}, "needs sasl_oauth_token_provider, or sasl_oauthbearer_token_endpoint_url"),
            (
                {"sasl_oauth_token_provider": print, "sasl_oauthbearer_token_endpoint_url": ENDPOINT},
                "are both given; leave one out",
            ),
            (
                {"sasl_oauthbearer_token_endpoint_url": ENDPOINT},
                "needs sasl_oauthbearer_client_credentials_client_id and …_client_secret, or sasl_oauthbearer_assertion",
            ),
            (
                {
                    "sasl_oauthbearer_token_endpoint_url": ENDPOINT,
                    "sasl_oauthbearer_jwt_retriever_class": "JwtBearerJwtRetriever",
                },
                "needs sasl_oauthbearer_assertion_file",
            ),
            (
                {
                    "sasl_oauthbearer_token_endpoint_url": ENDPOINT,
                    "sasl_oauthbearer_jwt_retriever_class": "com.example.Mine",
                },
                "of Java's classes only",
            ),
            (
                {"sasl_jaas_config": "OAuthBearerLoginModule required unsecuredLoginNumberClaim_n=x;"},
                "is not a number",
            ),
            (
                {"sasl_jaas_config": "OAuthBearerLoginModule required unsecuredLoginFoo=x;"},
                "is not known here",
            ),
        ],
    )
    def test_what_is_missing_or_too_much(self, options: dict[str, Any], why: str) -> None:
        assert why in sasl_refusal("OAUTHBEARER", **options)
