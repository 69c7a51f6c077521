from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from aioproducer.config.properties import KINDS, References, read_properties
from aioproducer.errors import ConfigError
from tests.cases import for_each


@for_each(
    ("line", "entry"),
    [
        ("acks=all", ("acks", "all")),
        ("acks:all", ("acks", "all")),
        ("acks all", ("acks", "all")),
        (" \t\facks\t = \t all", ("acks", "all")),
        ("acks = all  ", ("acks", "all  ")),
        ("acks : = all", ("acks", "= all")),
        ("acks", ("acks", "")),
        ("acks=", ("acks", "")),
        ("=all", ("", "all")),
        (r"a\ b\:c\=d = e", ("a b:c=d", "e")),
        (r"path=C\:\\data\q", ("path", r"C:\dataq")),
        (r"a=\t\n\r\f.", ("a", "\t\n\r\f.")),
        (r"name=gr\u00fcn", ("name", "grün")),
        (r"name=\ud83d\ude00", ("name", "😀")),
        ("name=grün 😀", ("name", "grün 😀")),
        ("a=b # not a comment", ("a", "b # not a comment")),
    ],
)
def test_line_is_a_name_and_a_value(line: str, entry: tuple[str, str]) -> None:
    assert read_properties(f"{line}\n") == dict([entry])


def test_comments_and_blank_lines_are_ignored() -> None:
    text = "# a comment that is not continued \\\n\n  ! another one\n \t\f\nacks=1\n   # indented\n"
    assert read_properties(text) == {"acks": "1"}


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_backslash_at_the_end_continues_the_line(end: str) -> None:
    text = end.join(["bootstrap.servers = a:9092,\\", "\t  b:9092,\\", "#c:9092", "acks=1", ""])
    assert read_properties(text) == {"bootstrap.servers": "a:9092,b:9092,#c:9092", "acks": "1"}


def test_escaped_backslash_at_the_end_continues_nothing() -> None:
    assert read_properties("dir=C:\\\\\nacks=1") == {"dir": "C:\\", "acks": "1"}


def test_line_of_a_single_backslash_is_blank() -> None:
    assert read_properties("\\\n# a comment\nacks=1\n\\") == {"acks": "1"}


def test_backslash_at_the_end_of_the_file_is_dropped() -> None:
    assert read_properties("acks=1\\") == {"acks": "1"}


def test_last_of_two_values_wins() -> None:
    assert read_properties("acks=1\nacks=all\n") == {"acks": "all"}


@for_each("escape", [r"\u12", r"\u", r"\uzzzz", r"\u00g0"])
def test_escape_needs_four_hexadecimal_digits(escape: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_properties(f"sasl.password=hunter2{escape}")
    assert str(raised.value) == r"\u needs four hexadecimal digits in the value of 'sasl.password'"
    with pytest.raises(ConfigError, match=r"needs four hexadecimal digits in a name$"):
        read_properties(f"{escape}=hunter2")


def test_half_a_character_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^half of a surrogate pair in the value of 'name'$"):
        read_properties(r"name=hunter2\ud83d.")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "iso-8859-1"])
def test_file_is_utf8_or_else_latin1(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "producer.properties"
    path.write_bytes("client.id=grün\n".encode(encoding))
    assert read_properties(path) == read_properties(str(path)) == {"client.id": "grün"}


def test_text_without_line_break_or_equals_is_a_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_properties(str(tmp_path / "missing.properties"))


def test_line_with_many_continuations_takes_linear_time() -> None:
    began = time.process_time()
    (value,) = read_properties("name=" + "a long part of a value \\\n" * 50_000).values()
    assert time.process_time() - began < 5
    assert value == "a long part of a value " * 50_000


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
