from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from aioproducer._core.security.jaas import LoginModule, parse_jaas
from tests.cases import for_each


@pytest.mark.parametrize(
    ("text", "module"),
    [
        (
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";',
            LoginModule("PlainLoginModule", {"username": "a", "password": "b"}),
        ),
        ("PlainLoginModule REQUIRED;", LoginModule("PlainLoginModule", {})),
        (
            "  shaded.ScramLoginModule\trequired\n  username='a b'\n  tokenauth=true ; ",
            LoginModule("ScramLoginModule", {"username": "a b", "tokenauth": "true"}),
        ),
        (
            r'M required password="a\"b\\c\n\101\x;=" other=a/b@C.D;',
            LoginModule("M", {"password": 'a"b\\c\nAx;=', "other": "a/b@C.D"}),
        ),
        ('M required a = "" /* b="c" */ d="e"; // the end', LoginModule("M", {"a": "", "d": "e"})),
    ],
)
def test_a_login_module_is_a_class_and_its_options(text: str, module: LoginModule) -> None:
    assert parse_jaas(text) == module


@for_each(
    ("text", "why"),
    [
        ("", "is no login module"),
        ("hunter2", "is no login module"),
        ("= required;", "is no login module"),
        ('M maybe password="hunter2";', "needs one of required, requisite, sufficient, optional"),
        ('M required password="hunter2"', "has to end in a semicolon"),
        ('M required password="hunter2', "a quotation mark that nothing closes"),
        ('M required password "hunter2";', "malformed after 0 options"),
        ('M required a="b" password=;', "malformed after 1 options"),
        ('M required a="hunter2" a="hunter2";', "gives a twice"),
        ('M required; N required password="hunter2";', "more than one login module"),
    ],
)
def test_what_is_none_is_told_without_being_shown(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as raised:
        parse_jaas(text)
    assert "hunter2" not in str(raised.value)


def test_nothing_shows_the_options() -> None:
    assert "hunter2" not in repr(parse_jaas('M required password="hunter2";'))


@given(st.text(st.characters(exclude_characters="\n"), max_size=20))
def test_any_value_can_be_quoted(value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'M required password="{quoted}";').options == {"password": value}


@given(st.text(alphabet="Mrequired =;\"'\\/*\n", max_size=40))
def test_any_text_is_read_or_a_value_error(text: str) -> None:
    try:
        module = parse_jaas(text)
    except ValueError:
        return
    assert module.name
