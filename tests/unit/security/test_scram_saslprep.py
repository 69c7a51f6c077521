from __future__ import annotations

import pytest

from aioproducer.security.mechanism import Refused
from aioproducer.security.scram import saslprep


@pytest.mark.parametrize(
    ("text", "prepared"),
    [  # RFC 4013, section 3, and what it leaves out
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u06271\u0628", "\u06271\u0628"),
        ("", ""),
        ("\u00ad", ""),
    ],
)
def test_what_looks_the_same_becomes_the_same(text: str, prepared: str) -> None:
    assert saslprep(text, "it") == prepared


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\u0007", "forbids"),
        ("a\x7f", "forbids"),
        ("\ue000", "forbids"),
        ("\ud800", "forbids"),
        ("\u06271", "directions"),
        ("a\u0628", "directions"),
        ("\u0627a\u0628", "directions"),
        ("\U0001f600", "newer than Unicode 3.2"),
    ],
)
def test_what_is_forbidden_is_named_but_not_shown(text: str, why: str) -> None:
    with pytest.raises(Refused, match=why) as raised:
        saslprep(text, "the password")
    assert str(raised.value).startswith("the password ")
    assert text not in str(raised.value)
