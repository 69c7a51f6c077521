"""Configuration files: Java's `.properties`, and references to config providers such as `${env:KAFKA_PASSWORD}` (KIP-297)."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeGuard

from aioproducer._core.logfmt import escaped
from aioproducer._core.security.stores import open_regular
from aioproducer.errors import ConfigError

_BLANK = " \t\f"
_LINE = re.compile(r"\r\n|\r|\n")
_SIMPLE_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.?)", re.DOTALL)
_SECTION = re.compile(r"\[[^\[\]=:]+\][ \t\f]*")
_NO_SECTION = "\0"
_OTHER_FORMS: Final = {
    "JSON": re.compile(r"\A\s*\{"),
    "YAML": re.compile(r"^[\w-]+:[ \t]*\r?\n(?:[ \t]*(?:#.*)?\r?\n)*[ \t]+[\w.-]+:\s", re.MULTILINE),
}
# A key ends at the first separator without a backslash before it.
_ENTRY = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*\\?)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)


def read_properties(source: str | os.PathLike[str]) -> dict[str, str]:
    """Read the properties in *source*: the path of a file, or the text of a file.

    A `str` with a line break or a `=` is text, any other `str` is a path. A file is decoded as UTF-8, or else as
    ISO-8859-1, as Java has done since 9 (JEP 226). If a name occurs twice, the last value wins, as in Java. In a
    file with sections, as INI files have, each name is prefixed with its section, as in `[default]acks`.

    Raises:
        ConfigError: an escape is malformed, a line in a section has no name, or the text is JSON or YAML.
        OSError: the file cannot be read.
    """
    if is_text(source):
        text = source
    else:
        with open(source, "rb") as file:  # noqa: PTH123 - avoids the import of pathlib
            content = file.read()
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ConfigError("the file is UTF-16; save it as UTF-8")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("iso-8859-1")
    for form, beginning in _OTHER_FORMS.items():
        if beginning.search(text):
            raise ConfigError(
                f"the file is {form}; load it, and give its options to ProducerConfig.from_mapping"
            )
    lines = list(_logical_lines(text))
    return _in_sections(text) if any(_SECTION.fullmatch(line) for line in lines) else dict(map(_entry, lines))


def is_text(source: str | os.PathLike[str]) -> TypeGuard[str]:
    """Return True if *source* is the text of a file, not a path."""
    return isinstance(source, str) and ("=" in source or _LINE.search(source) is not None)


def name_file(error: ConfigError, path: str | os.PathLike[str]) -> None:
    """Begin each line of the error's message with *path*."""
    shown = escaped(os.fspath(path))
    error.args = ("\n".join(f"{shown}: {line}" for line in str(error).split("\n")),)


def _in_sections(text: str) -> dict[str, str]:
    import configparser  # noqa: PLC0415 - needed for sections only

    parser = configparser.RawConfigParser(
        strict=False, allow_no_value=True, default_section=_NO_SECTION, interpolation=None
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign] # the documented way to keep upper case
    try:
        parser.read_string(f"[{_NO_SECTION}]\n{text}")
    except configparser.Error as error:
        lines = ", ".join(str(number - 1) for number, _ in getattr(error, "errors", ()))
        raise ConfigError(f"the file has sections, and no name=value in line {lines}") from None
    entries = {name: value or "" for name, value in parser.defaults().items()}
    for section in parser.sections():
        own = parser._sections[section]  # type: ignore[attr-defined] # noqa: SLF001 - items() adds the defaults
        entries |= {f"[{section}]{name}": value or "" for name, value in own.items()}
    return entries


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments and blank lines; a backslash at the end of a line joins the next line."""
    parts: list[str] = []  # the parts are joined once: a file may continue one line a hundred thousand times
    for natural_line in _LINE.split(text):
        part = natural_line.lstrip(_BLANK)
        if not parts and (not part or part[0] in "#!"):
            continue
        backslashes = len(part) - len(part.rstrip("\\"))
        if backslashes % 2 == 0:
            yield "".join([*parts, part])
            parts.clear()
        elif len(part) > 1:
            parts.append(part[:-1])
    if parts:
        yield "".join(parts)


def _entry(line: str) -> tuple[str, str]:
    entry = _ENTRY.fullmatch(line)
    assert entry is not None, "every part of the pattern may be empty"
    name = _unescape(entry["key"], "in a name")
    return name, _unescape(entry["value"], f"in the value of {name!r}")


def _unescape(text: str, where: str) -> str:
    """Return *text* without escapes. *text* may be secret, so errors contain only *where*, the place of *text*."""
    if "\\" not in text:
        return text
    try:
        # Java's characters are UTF-16: two escapes may form one surrogate pair.
        return _ESCAPE.sub(_unescaped, text).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigError(f"half of a surrogate pair {where}") from None
    except _Malformed:
        raise ConfigError(rf"\u needs four hexadecimal digits {where}") from None


class _Malformed(Exception):
    """Raised for an escape that Java's Properties refuses."""


def _unescaped(escape: re.Match[str]) -> str:
    escaped = escape[1]
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    if escaped == "u":
        raise _Malformed
    return _SIMPLE_ESCAPES.get(escaped, escaped)


KINDS: Final = ("env", "file", "directory")
"""Config providers of Apache Kafka with a counterpart in this package."""
_NAMES: Final = {"env": "env", "file": "file", "directory": "directory", "dir": "directory"}
_CLASSES: Final = {
    "EnvVarConfigProvider": "env",
    "FileConfigProvider": "file",
    "DirectoryConfigProvider": "directory",
}
_REFERENCE: Final = re.compile(r"\$\{(?P<name>[A-Za-z0-9_.-]{1,249})(?::(?P<rest>[^{}]*))?\}")
_PLACEHOLDER: Final = re.compile(r"\{\{ ?[A-Za-z_][A-Za-z0-9_. -]* ?\}\}")
_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
_LARGEST: Final = 1024 * 1024


class References:
    """Config providers that a mapping names, and config providers that the caller allows."""

    def __init__(self, options: Mapping[str, object], allowed: Collection[str]) -> None:
        """Read `config.providers` and `config.providers.NAME.class` of *options*; *allowed* has names of `KINDS`."""
        if isinstance(allowed, str):
            allowed = [each.strip() for each in allowed.split(",") if each.strip()]
        if wrong := [each for each in allowed if each not in KINDS]:
            raise ConfigError(f"config_providers: expected some of {', '.join(KINDS)}, not {wrong[0]!r}")
        self._allowed = frozenset(allowed)
        self._kinds: dict[str, str | None] = dict(_NAMES)
        listed = options.get("config.providers")
        names = listed.split(",") if isinstance(listed, str) else ()
        for name in filter(None, map(str.strip, names)):
            provider = str(options.get(f"config.providers.{name}.class") or "").strip().rpartition(".")[2]
            self._kinds[name] = _CLASSES.get(provider) if provider else _NAMES.get(name)

    def resolved(self, text: str) -> str:
        """Return *text* with the value in place of each reference.

        Raises:
            ValueError: a reference is not allowed, unknown or without a value. The text of the error contains no secret.
        """
        if _PLACEHOLDER.search(text):
            raise ValueError("contains a placeholder {{ … }} of a template; put in the value")
        return _REFERENCE.sub(self._value, text)

    def _value(self, found: re.Match[str]) -> str:
        name, rest = found["name"], found["rest"]
        if name not in self._kinds or rest is None:
            if _VARIABLE.fullmatch(name):
                raise ValueError(
                    f"contains the placeholder ${{{name}}}; put in the value, or write ${{env:{name}}}"
                )
            return found[0]
        kind = self._kinds[name]
        if kind is None:
            raise ValueError(
                f"contains a reference ${{{name}:…}} to a config provider (KIP-297) that is a Java class; put in the"
                " value"
            )
        if kind not in self._allowed:
            raise ValueError(
                f"contains a reference ${{{name}:…}} to a config provider (KIP-297), which the caller has not allowed;"
                f" put in the value, or give the keyword argument config_providers={[kind]} or the flag --config-providers"
            )
        path, _, key = rest.rpartition(":")
        try:
            return _READERS[kind](path, key)
        except (OSError, ValueError, LookupError) as error:
            reason = getattr(error, "strerror", None) or f"{error.args[0]}"
            raise ValueError(f"contains a reference ${{{name}:…}} without a value: {reason}") from None


def _of_environment(_path: str, key: str) -> str:
    value = os.environ.get(key)
    if value is None:
        raise LookupError(f"the environment variable {key} is not set")
    return value


def _of_file(path: str, key: str) -> str:
    value = read_properties("\n" + _content(path)).get(key)
    if value is None:
        raise LookupError(f"{path} has no property {key}")
    return value


def _of_directory(path: str, key: str) -> str:
    if "/" in key or os.sep in key or key in {"", ".", ".."}:
        raise LookupError("the key is not the name of a file in the directory")
    return _content(f"{path}/{key}").rstrip("\r\n")


def _content(path: str) -> str:
    with open_regular(path) as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(f"{path} has more than {_LARGEST:,} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8") from None


_READERS: Final = {"env": _of_environment, "file": _of_file, "directory": _of_directory}
