"""Escaping of text that came from a peer: brokers, topics and token servers can put control characters into it."""

from __future__ import annotations

from typing import Final

LONGEST_TEXT: Final = 1024
"""Characters of a peer's text that errors and logs show."""
LONGEST_HOST: Final = 255
"""Characters of a host name that errors and logs show; DNS allows 253."""
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(text: str, limit: int | None = None) -> str:
    r"""Return *text* with every character that is not printable as a JSON escape: `\n`, `\u001b`, `\u202e`.

    Line breaks forge log lines, ESC and C1 characters control terminals, bidirectional characters reorder text. *limit*
    is the maximum number of characters taken from *text*. The result is valid inside a JSON string if *text* is.
    """
    shown = text if limit is None else text[:limit]
    if not shown.isprintable():
        shown = "".join(each if each.isprintable() else _SHORT.get(each) or _escape(each) for each in shown)
    return shown if len(text) <= (limit or len(text)) else f"{shown}… ({len(text):,} characters)"


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
