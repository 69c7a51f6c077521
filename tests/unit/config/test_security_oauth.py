"""Where the tokens of OAUTHBEARER come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aioproducer._core.backoff import Backoff
from aioproducer._core.security.secret import Secret
from aioproducer._core.security.security_settings import (
    AssertionSettings,
    EndpointSettings,
    UnsecuredSettings,
)
from aioproducer.config import ProducerConfig, security as module
from aioproducer.config.security import variable
from aioproducer.config.security_options import ALLOWED_FILES, ALLOWED_URLS
from aioproducer.errors import ConfigError
from tests.cases import for_each
from tests.unit.config.securing import sasl, sasl_refusal

BACKOFF = Backoff(0.1, 10.0)
JAAS = "org.apache.kafka.common.security"
ENDPOINT = "https://idp.example/token"


@pytest.fixture(autouse=True)
def everything_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: "found")


class TestOAuth:
    def test_token_provider_is_accepted(self) -> None:
        assert sasl("OAUTHBEARER", sasl_oauth_token_provider=print).tokens is print

    def test_token_file_is_accepted(self) -> None:
        assert sasl("OAUTHBEARER", sasl_oauthbearer_token_endpoint_url="file:///t").tokens == "file:///t"

    def test_client_credentials_are_accepted(self) -> None:
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
    def test_assertion_is_accepted(self, jwt_bearer: bool) -> None:
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

    def test_unsecured_tokens_are_accepted(self) -> None:
        jaas = (
            'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice" unsecuredLoginNumberClaim_n="1.5"'
            ' unsecuredLoginListClaim_scope="|a|b" unsecuredLoginLifetimeSeconds="60";'
        )
        assert sasl("OAUTHBEARER", sasl_jaas_config=jaas).tokens == UnsecuredSettings(
            {"sub": "alice", "n": 1.5, "scope": ["a", "b"]}, 60.0
        )

    @for_each(
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
                "unsupported class; use one of",
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
    def test_missing_or_superfluous_options_are_refused(self, options: dict[str, Any], why: str) -> None:
        assert why in sasl_refusal("OAUTHBEARER", **options)


URL = "https://idp.example/token"
ASSERTIONS = ("file", "private_key_file", "template_file")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: "found")
    for option in ALLOWED_FILES, ALLOWED_URLS:
        monkeypatch.delenv(variable(option), raising=False)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("planted")
    return file


def options(**more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": "a:1",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_client_credentials_client_id": "me",
        "sasl_oauthbearer_client_credentials_client_secret": "hunter2",
        **more,
    }


def refusal(given: dict[str, Any], **allowed: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.from_mapping(given, **allowed)
    return str(raised.value)


def spellings(file: Path) -> list[str]:
    percent = "".join(f"%{byte:02x}" for byte in str(file).encode())
    return [
        file.as_uri(),
        f"FILE://{file}",
        f"fIlE:{file}",
        f"file://localhost{file}",
        f"file://elsewhere{file}",
        f"file:///{percent[3:]}",
        f"file://{file.parent}/x/../{file.name}",
        f"file://{file.parent}/%2e/{file.name}",
        f"file:////{file}",
        f" {file.as_uri()}?query#fragment",
    ]


def test_endpoint_file_is_refused_in_every_spelling(token: Path) -> None:
    for url in spellings(token):
        assert "refused" in refusal(options(sasl_oauthbearer_token_endpoint_url=url)), url


def test_endpoint_file_is_accepted_in_every_spelling_when_listed(token: Path) -> None:
    for url in spellings(token):
        config = ProducerConfig.from_mapping(
            options(sasl_oauthbearer_token_endpoint_url=url), sasl_oauthbearer_allowed_files=[token]
        )
        assert config.security_settings().sasl.tokens is config.sasl_oauthbearer_token_endpoint_url  # type: ignore[union-attr]


def test_refusal_names_option_as_written_and_each_remedy() -> None:
    text = refusal(
        {"sasl.oauthbearer.assertion.file": "/etc/passwd", **options(sasl_oauthbearer_token_endpoint_url=URL)}
    )
    assert text.startswith("sasl.oauthbearer.assertion.file = '/etc/passwd': refused, because ")
    for remedy in ALLOWED_FILES, "--sasl-oauthbearer-allowed-files", variable(ALLOWED_FILES):
        assert remedy in text


@pytest.mark.parametrize("kind", ASSERTIONS)
@pytest.mark.parametrize("as_path", [False, True])
def test_assertion_file_needs_the_list(kind: str, as_path: bool, token: Path) -> None:
    name = f"sasl_oauthbearer_assertion_{kind}"
    given = options(sasl_oauthbearer_token_endpoint_url=URL) | {name: token if as_path else str(token)}
    assert name in refusal(given)
    assert name in refusal(given, sasl_oauthbearer_allowed_files=[token.parent])
    config = ProducerConfig.from_mapping(given, sasl_oauthbearer_allowed_files=str(token))
    assert getattr(config, name) == str(token)


def test_environment_lists_files(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable(ALLOWED_FILES), f"/elsewhere, {token},")
    given = options(sasl_oauthbearer_token_endpoint_url=token.as_uri())
    assert ProducerConfig.from_mapping(given).sasl_oauthbearer_token_endpoint_url == token.as_uri()
    assert "refused" in refusal(given, sasl_oauthbearer_allowed_files=[])
    other = options(sasl_oauthbearer_token_endpoint_url=token.with_name("other").as_uri())
    assert "refused" in refusal(other)


def test_listed_path_is_read_when_a_symlink_names_it(token: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(token)
    given = options(sasl_oauthbearer_token_endpoint_url=link.as_uri(), sasl_oauthbearer_assertion_file=link)
    config = ProducerConfig.from_mapping(given, sasl_oauthbearer_allowed_files=[token])
    link.unlink()
    link.symlink_to("/etc/passwd")
    assert config.sasl_oauthbearer_token_endpoint_url == token.as_uri()
    assert config.sasl_oauthbearer_assertion_file == str(token)


def test_listed_symlink_stays_a_symlink(token: Path, tmp_path: Path) -> None:
    link = tmp_path / "projected"
    link.symlink_to(token)  # as Kubernetes does, which replaces the target
    given = options(sasl_oauthbearer_token_endpoint_url=link.as_uri())
    config = ProducerConfig.from_mapping(given, sasl_oauthbearer_allowed_files=[link])
    assert config.sasl_oauthbearer_token_endpoint_url == link.as_uri()


@for_each("name", [ALLOWED_FILES, ALLOWED_URLS, "sasl.oauthbearer.allowed.files"])
@for_each("value", ["/etc/passwd", "", None])
def test_mapping_cannot_have_the_lists(name: str, value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable(ALLOWED_FILES), "/etc/passwd")
    text = refusal({"bootstrap.servers": "a:1", name: value})
    assert text.startswith(f"{name}: ")
    assert "keyword argument" in text


def test_properties_cannot_name_a_file(token: Path) -> None:
    text = f"bootstrap.servers=a:1\nsasl.oauthbearer.token.endpoint.url={token.as_uri()}"
    with pytest.raises(ConfigError, match="refused"):
        ProducerConfig.from_properties(text)
    ProducerConfig.from_properties(text, sasl_oauthbearer_allowed_files=[token])


def test_urls_are_free_unless_a_list_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    given = options(sasl_oauthbearer_token_endpoint_url=URL)
    ProducerConfig.from_mapping(given)
    assert ALLOWED_URLS in refusal(given, sasl_oauthbearer_allowed_urls=f"{URL}/other")
    monkeypatch.setenv(variable(ALLOWED_URLS), "")
    assert ALLOWED_URLS in refusal(given)
    monkeypatch.setenv(variable(ALLOWED_URLS), f"https://other.example,{URL}")
    ProducerConfig.from_mapping(given)


@for_each("end", ["?key=hunter2", "#hunter2", "#a?hunter2", "?a#hunter2"])
def test_refused_url_hides_its_query_and_fragment(end: str) -> None:
    given = options(sasl_oauthbearer_token_endpoint_url=f"{URL}{end}")
    assert "hunter2" not in repr(ProducerConfig(**given))
    assert "hunter2" not in refusal(given, sasl_oauthbearer_allowed_urls=[URL])
    assert "hunter2" not in refusal(given, sasl_oauthbearer_allowed_urls=[URL])


def test_keyword_arguments_need_no_list(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable(ALLOWED_FILES), "/elsewhere")
    monkeypatch.setenv(variable(ALLOWED_URLS), "https://elsewhere")
    ProducerConfig(**options(sasl_oauthbearer_token_endpoint_url=token.as_uri()))
    ProducerConfig(
        **options(sasl_oauthbearer_token_endpoint_url=URL, sasl_oauthbearer_assertion_file=str(token))
    )


def test_keyword_arguments_keep_to_a_list_given_with_them(token: Path) -> None:
    given = options(sasl_oauthbearer_token_endpoint_url=token.as_uri())
    with pytest.raises(ConfigError, match="refused"):
        ProducerConfig(**given, sasl_oauthbearer_allowed_files=["/elsewhere"])
    ProducerConfig(**given, sasl_oauthbearer_allowed_files=[token])


def test_url_in_capitals_is_a_file_for_keyword_arguments(token: Path) -> None:
    config = ProducerConfig(**options(sasl_oauthbearer_token_endpoint_url=f"FILE://{token}"))
    sasl = config.security_settings().sasl
    assert sasl is not None
    assert sasl.tokens == f"FILE://{token}"


def test_path_with_a_nul_is_refused() -> None:
    assert "refused" in refusal(options(sasl_oauthbearer_token_endpoint_url="file:///etc%00/passwd"))
