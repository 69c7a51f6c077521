"""References to config providers (KIP-297)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aioproducer.config.references import KINDS, References
from aioproducer.errors import ConfigError


def resolved(text: str, options: dict[str, object] | None = None, allowed: object = KINDS) -> str:
    return References(options or {}, allowed).resolved(text)  # type: ignore[arg-type]


def test_environment_variable_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    assert resolved('user="a" password="${env:KAFKA_PASSWORD}";') == 'user="a" password="hunter2";'
    assert resolved("${env:KAFKA_PASSWORD}${env:KAFKA_PASSWORD}") == "hunter2hunter2"


def test_value_is_not_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTER", "${env:INNER}")
    assert resolved("${env:OUTER}") == "${env:INNER}"


def test_property_of_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "secrets.properties"
    file.write_text("other=x\npassword=hun\\\n  ter2\n")
    assert resolved(f"${{file:{file}:password}}") == "hunter2"
    with pytest.raises(ValueError, match=f"without a value: {file} has no property user"):
        resolved(f"${{file:{file}:user}}")


@pytest.mark.parametrize("name", ["directory", "dir"])
def test_file_of_a_directory_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    assert resolved(f"${{{name}:{tmp_path}:password}}") == "hunter2"
    for key in ("../password", "", ".", ".."):
        with pytest.raises(ValueError, match="the key is not the name of a file"):
            resolved(f"${{{name}:{tmp_path}:{key}}}")


def test_names_of_providers_come_from_the_mapping(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2")
    options: dict[str, object] = {
        "config.providers": "mine, theirs",
        "config.providers.mine.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "config.providers.theirs.class": "com.example.Theirs",
    }
    assert resolved(f"${{mine:{tmp_path}:password}}", options) == "hunter2"
    with pytest.raises(ValueError, match="that is a Java class"):
        resolved("${theirs:x:y}", options)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("${env:MISSING_VARIABLE}", "the environment variable MISSING_VARIABLE is not set"),
        ("${file:/missing/file:key}", "No such file or directory"),
        ("${directory:/missing:key}", "No such file or directory"),
    ],
)
def test_missing_value_is_named(reference: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        resolved(reference)


def test_fifo_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key")
    with pytest.raises(ValueError, match="without a value"):
        resolved(f"${{directory:{tmp_path}:key}}")


def test_binary_and_huge_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "huge").write_bytes(b"x" * (1024 * 1024 + 1))
    for key in ("binary", "huge"):
        with pytest.raises(ValueError, match="without a value"):
            resolved(f"${{directory:{tmp_path}:{key}}}")


def test_malformed_file_is_named_without_its_content(tmp_path: Path) -> None:
    file = tmp_path / "secrets.properties"
    file.write_text("password=hunter2\\u12\n")
    with pytest.raises(ValueError, match="without a value") as raised:
        resolved(f"${{file:{file}:password}}")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("allowed", ["env,file", ["env", "file"], ("file", "env")])
def test_providers_are_allowed_by_name(allowed: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "b")
    assert resolved("${env:A}", allowed=allowed) == "b"
    with pytest.raises(ValueError, match="which the caller has not allowed"):
        resolved("${directory:/x:y}", allowed=allowed)


def test_unknown_provider_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^config_providers: expected some of env, file, directory, not 'vault'$"
    ):
        References({}, ["vault"])
