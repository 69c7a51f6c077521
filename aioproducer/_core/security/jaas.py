"""`sasl.jaas.config`: one line of Java's login configuration, as `.properties` files have it.

org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="…";
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |"(?P<double>(?:\\.|[^"\\\n])*)"
    |'(?P<single>(?:\\.|[^'\\\n])*)'
    |(?P<sign>[=;])
    |(?P<word>[^\s=;"']+)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True)
class LoginModule:
    """Login module with its options, which are hidden in the repr because they may be secrets."""

    name: str
    """Class name without package."""
    options: dict[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """Read the one login module of *text*.

    Raises: ValueError, whose text contains no part of *text*.
    """
    tokens = _tokens(text)
    name, flag = (tokens.pop(0) if tokens else ("", "") for _ in range(2))
    if name[0] != "text" or flag[0] != "text":
        raise ValueError("is no login module; expected: class, the word required, options, and a semicolon")
    if flag[1].lower() not in _FLAGS:
        raise ValueError(f"needs one of {', '.join(_FLAGS)} behind the class")
    options: dict[str, str] = {}
    while tokens and tokens[0] != ("sign", ";"):
        option, equals, value = (tokens.pop(0) if tokens else ("", "") for _ in range(3))
        if option[0] != "text" or equals != ("sign", "=") or value[0] != "text":
            raise ValueError(
                f'is malformed after {len(options)} options; expected name="value", with the value in quotes'
            )
        if option[1] in options:
            raise ValueError(f"gives {option[1]} twice")
        options[option[1]] = value[1]
    if not tokens:
        raise ValueError("has to end in a semicolon")
    if len(tokens) > 1:
        raise ValueError("has more than one login module; expected one")
    return LoginModule(name[1].rpartition(".")[2], options)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    pos = 0
    while pos < len(text):
        match = _TOKEN.match(text, pos)
        if match is None:
            raise ValueError("has a quotation mark that nothing closes")
        pos = match.end()
        kind = match.lastgroup or ""
        if kind in {"double", "single"}:
            tokens.append(("text", _ESCAPE.sub(_unescaped, match[kind])))
        elif kind != "space":
            tokens.append(("sign" if kind == "sign" else "text", match[kind]))
    return tokens


def _unescaped(escape: re.Match[str]) -> str:
    escaped = escape[1]
    if escaped[0].isdigit() and escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _SIMPLE.get(escaped, escaped)
