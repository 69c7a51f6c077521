"""Files and URLs of OAUTHBEARER in a configuration that comes from outside the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aioproducer.config import ProducerConfig, security as module
from aioproducer.config.allowed import variable
from aioproducer.config.security_options import ALLOWED_FILES, ALLOWED_URLS, ENDPOINT
from aioproducer.errors import ConfigError

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


def test_endpoint_file_is_taken_in_every_spelling_when_listed(token: Path) -> None:
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


@pytest.mark.parametrize("name", [ALLOWED_FILES, ALLOWED_URLS, "sasl.oauthbearer.allowed.files"])
@pytest.mark.parametrize("value", ["/etc/passwd", "", None])
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


@pytest.mark.parametrize("end", ["?key=hunter2", "#hunter2", "#a?hunter2", "?a#hunter2"])
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
    config = ProducerConfig(**options(**{ENDPOINT: f"FILE://{token}"}))
    sasl = config.security_settings().sasl
    assert sasl is not None
    assert sasl.tokens == f"FILE://{token}"


def test_path_with_a_nul_is_refused() -> None:
    assert "refused" in refusal(options(sasl_oauthbearer_token_endpoint_url="file:///etc%00/passwd"))
