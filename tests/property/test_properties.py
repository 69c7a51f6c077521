"""Whatever is written the way Java's `Properties.store` writes it is read back as it was."""

from __future__ import annotations

from hypothesis import given, strategies as st

from aioproducer.config.properties import read_properties
from aioproducer.errors import ConfigError

CHARACTERS = st.one_of(st.sampled_from(" \t\f\r\n\\=:#!u\u00e90"), st.characters(exclude_categories=["Cs"]))
TEXT = st.text(CHARACTERS)


def stored(text: str) -> str:
    units = memoryview(text.encode("utf-16-be")).cast("B")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def escaped(text: str) -> str:
    named = {"\t": r"\t", "\n": r"\n", "\r": r"\r", "\f": r"\f"}
    return "".join(named.get(each, f"\\{each}" if each in r" \=:#!" else each) for each in text)


@given(st.dictionaries(TEXT.filter(bool), TEXT), st.sampled_from([stored, escaped]))
def test_written_properties_are_read_back(properties: dict[str, str], write: object) -> None:
    assert callable(write)
    text = "".join(f"{write(name)}={write(value)}\n" for name, value in properties.items())
    assert read_properties(f"\n{text}") == properties


@given(TEXT)
def test_properties_parser_reads_or_refuses_any_text(text: str) -> None:
    try:
        read_properties(f"{text}\n")
    except ConfigError as refused:
        known = (
            "\\u" in text,
            "surrogate" in str(refused),
            "the file is JSON" in str(refused),
            "is YAML" in str(refused),
        )
        assert any(known)
