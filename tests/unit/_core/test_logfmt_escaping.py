from __future__ import annotations

import json

from hypothesis import given, strategies as st

from aioproducer._core.logfmt import escaped
from tests.cases import for_each

C0 = [chr(code) for code in range(0x20)]
C1 = [chr(code) for code in range(0x7F, 0xA0)]
BIDI = [*map(chr, [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])]


@for_each(
    ("text", "shown"),
    [
        ("", ""),
        ("grün 東京 🙂", "grün 東京 🙂"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[31m", "\\u001b[31m"),
        ("\x9b2J", "\\u009b2J"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2028", "\\u2028"),
        ("\U000e0001", "\\udb40\\udc01"),
        ("\ud800", "\\ud800"),
    ],
)
def test_unprintable_characters_are_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_long_text_is_cut_with_its_length() -> None:
    assert escaped("a" * 10, 10) == "a" * 10
    assert escaped("a" * 2000, 10) == "a" * 10 + "… (2,000 characters)"
    assert escaped("\n" * 2000, 1) == "\\n… (2,000 characters)"


@for_each("character", [*C0, *C1, *BIDI])
def test_control_and_bidirectional_characters_are_escaped(character: str) -> None:
    assert character not in escaped(f"a{character}b")


@given(st.text())
def test_escaped_text_is_printable_and_stays_valid_in_json(text: str) -> None:
    assert escaped(text).isprintable()
    encoded = json.dumps(text, ensure_ascii=False)
    assert json.loads(escaped(encoded)) == text
