"""Log events as logfmt, and escaping of text from peers, which may contain control characters.

`batch.retry partition=orders-3 error="NotLeaderOrFollower: …"`
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple, Self

LONGEST_TEXT: Final = 1024
"""Maximum number of characters of a peer's text in errors and logs."""
LONGEST_HOST: Final = 255
"""Maximum number of characters of a host name in errors and logs; DNS allows 253."""
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(text: str, limit: int | None = None) -> str:
    r"""Return *text* with a JSON escape in place of each unprintable character: `\n`, `\u001b`, `\u202e`.

    Line breaks forge log lines, ESC and C1 characters control terminals, bidirectional characters reorder text. *limit*
    is the maximum number of characters taken from *text*. If *text* is valid inside a JSON string, the result is valid too.
    """
    shown = text if limit is None else text[:limit]
    if not shown.isprintable():
        shown = "".join(each if each.isprintable() else _SHORT.get(each) or _escape(each) for each in shown)
    return shown if len(text) <= (limit or len(text)) else f"{shown}… ({len(text):,} characters)"


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


_WORDS: Final = re.compile(r"(?<!:) (?=[a-z_]+=|%s(?: |$))")
_CONVERSION: Final = re.compile(r"%(?:\.\d+)?[a-z]")
_BARE: Final = re.compile(r'[^\s"=\\]+')
_PLAIN: Final = (bool, int, float, type(None))


class Pairs(str):
    """Pairs of a log event as logfmt text, with the fields of the event."""

    __slots__ = ("fields",)
    fields: Mapping[str, object]

    def __new__(cls, /, **fields: object) -> Self:
        """Return the pairs of *fields*."""
        pairs = super().__new__(cls, " ".join(f"{key}={quoted(value)}" for key, value in fields.items()))
        pairs.fields = {key: _field(value) for key, value in fields.items()}
        return pairs


def quoted(value: object) -> str:
    """Return the text of *value*, as a JSON string unless the text is one printable word without `"`, `=` and backslash."""
    text = str(value)
    if text.isprintable() and _BARE.fullmatch(text):
        return text
    return '"' + escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def formatted(template: str, arguments: Iterable[object]) -> tuple[str, tuple[str, ...], dict[str, object]]:
    """Return *template* with one `%s` per argument, the quoted arguments, and the fields of the event.

    A template is `event key=%d other_key=%s: %s …`. The argument of a word `%s` without a key is a `Pairs`.
    """
    event, message, words = _parsed(template)
    left, texts = iter(arguments), []
    fields: dict[str, object] = {"event": event}
    for key, form, count in words:
        taken = tuple(islice(left, count))
        if key is None:
            pairs = taken[0] if isinstance(taken[0], Pairs) else Pairs(detail=taken[0])
            texts.append(str(pairs))
            fields.update(pairs.fields)
        elif count:
            text, fields[key] = _value(form, taken)
            texts.append(quoted(text))
        else:
            fields[key] = form
    return message, tuple(texts), fields


class _Word(NamedTuple):
    key: str | None
    form: str
    takes: int
    """Number of arguments in *form*."""


@lru_cache(maxsize=256)
def _parsed(template: str) -> tuple[str, str, tuple[_Word, ...]]:
    """Return the event, the template with one `%s` per word, and the words."""
    event, *parts = _WORDS.split(template)
    message, words = [event], []
    for part in parts:
        key, equals, form = part.partition("=")
        word = _Word(key, form, len(_CONVERSION.findall(form))) if equals else _Word(None, part, 1)
        words.append(word)
        message.append(part if not word.takes else f"{key}=%s" if equals else "%s")
    return event, " ".join(message), tuple(words)


def _value(form: str, taken: tuple[object, ...]) -> tuple[str, object]:
    """Return *form* with its arguments, as text and as the value of a field."""
    value = taken[0]
    if form == "%r" and isinstance(value, str):
        form = "%s"  # `quoted` adds the quotes
    text = form % taken
    if not _CONVERSION.fullmatch(form):
        return text, text
    if form[-1] in "fg":
        return text, float(text)
    if form[-1] == "r":
        return text, text
    return text, int(text) if form[-1] == "d" else _field(value)


def _field(value: object) -> object:
    return value if type(value) in _PLAIN else str(value)
