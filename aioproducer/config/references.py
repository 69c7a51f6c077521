"""References to config providers in values, such as `${env:KAFKA_PASSWORD}` (KIP-297), and unfilled placeholders."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from aioproducer._core.security.regular_files import open_regular
from aioproducer.config.properties import read_properties
from aioproducer.errors import ConfigError

KINDS: Final = ("env", "file", "directory")
"""Config providers of Apache Kafka with a counterpart here."""
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
    """Config providers that a mapping names, and those that the caller allows."""

    def __init__(self, options: Mapping[str, object], allowed: Collection[str]) -> None:
        """Read `config.providers` and `config.providers.NAME.class` of *options*; *allowed* are some of `KINDS`."""
        if isinstance(allowed, str):
            allowed = [each.strip() for each in allowed.split(",") if each.strip()]
        if wrong := [each for each in allowed if each not in KINDS]:
            raise ConfigError(f"config_providers: expected some of {', '.join(KINDS)}, not {wrong[0]!r}")
        self._allowed = frozenset(allowed)
        self._kinds: dict[str, str | None] = dict(_NAMES)
        listed = options.get("config.providers")
        for name in _words(listed.split(",") if isinstance(listed, str) else ()):
            provider = str(options.get(f"config.providers.{name}.class") or "").strip().rpartition(".")[2]
            self._kinds[name] = _CLASSES.get(provider) if provider else _NAMES.get(name)

    def resolved(self, text: str) -> str:
        """Return *text* with the values of its references.

        Raises:
            ValueError: a reference is not allowed, unknown or without a value. The text contains no secret.
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


def _words(words: Iterable[str]) -> list[str]:
    return [word.strip() for word in words if word.strip()]


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
