from __future__ import annotations

import time
from pathlib import Path

import pytest

from aioproducer.config.properties import read_properties
from aioproducer.errors import ConfigError


@pytest.mark.parametrize(
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
def test_a_line_is_a_name_and_a_value(line: str, entry: tuple[str, str]) -> None:
    assert read_properties(f"{line}\n") == dict([entry])


def test_comments_and_blank_lines_say_nothing() -> None:
    text = "# a comment that is not continued \\\n\n  ! another one\n \t\f\nacks=1\n   # indented\n"
    assert read_properties(text) == {"acks": "1"}


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_backslash_at_the_end_continues_the_line(end: str) -> None:
    text = end.join(["bootstrap.servers = a:9092,\\", "\t  b:9092,\\", "#c:9092", "acks=1", ""])
    assert read_properties(text) == {"bootstrap.servers": "a:9092,b:9092,#c:9092", "acks": "1"}


def test_an_escaped_backslash_at_the_end_continues_nothing() -> None:
    assert read_properties("dir=C:\\\\\nacks=1") == {"dir": "C:\\", "acks": "1"}


def test_a_line_of_nothing_but_a_backslash_is_blank() -> None:
    assert read_properties("\\\n# a comment\nacks=1\n\\") == {"acks": "1"}


def test_a_backslash_at_the_very_end_is_dropped() -> None:
    assert read_properties("acks=1\\") == {"acks": "1"}


def test_the_last_of_two_values_counts() -> None:
    assert read_properties("acks=1\nacks=all\n") == {"acks": "all"}


@pytest.mark.parametrize("escape", [r"\u12", r"\u", r"\uzzzz", r"\u00g0"])
def test_an_escape_needs_four_hexadecimal_digits(escape: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_properties(f"sasl.password=hunter2{escape}")
    assert str(raised.value) == r"\u needs four hexadecimal digits in the value of 'sasl.password'"
    with pytest.raises(ConfigError, match=r"needs four hexadecimal digits in a name$"):
        read_properties(f"{escape}=hunter2")


def test_half_a_character_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^half of a surrogate pair in the value of 'name'$"):
        read_properties(r"name=hunter2\ud83d.")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "iso-8859-1"])
def test_a_file_is_utf8_or_else_latin1(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "producer.properties"
    path.write_bytes("client.id=grün\n".encode(encoding))
    assert read_properties(path) == read_properties(str(path)) == {"client.id": "grün"}


def test_a_string_without_a_line_break_or_an_equals_sign_is_a_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_properties(str(tmp_path / "missing.properties"))


def test_line_with_many_continuations_takes_linear_time() -> None:
    began = time.process_time()
    (value,) = read_properties("name=" + "a long part of a value \\\n" * 50_000).values()
    assert time.process_time() - began < 5
    assert value == "a long part of a value " * 50_000
