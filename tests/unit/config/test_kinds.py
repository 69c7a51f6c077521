from __future__ import annotations

from dataclasses import dataclass, fields

import pytest

from aioproducer.config.kinds import Acks, Choice, ClientId, Flag, Integer, Kind, Number, option

LEVEL = Integer(1, 9, besides=-1)
OPTIONAL_FLAG = Flag(optional=True)
CODEC = Choice(("none", "gzip"), absent="none")


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        (LEVEL, 1, 1),
        (LEVEL, 9, 9),
        (LEVEL, -1, -1),
        (Number(0), 0, 0),
        (Number(0), 0.25, 0.25),
        (Number(0), 2**63 - 1, 2**63 - 1),
        (Flag(), True, True),
        (Flag(), False, False),
        (OPTIONAL_FLAG, None, None),
        (CODEC, "GZIP", "gzip"),
        (CODEC, None, "none"),
        (Acks(), "all", "all"),
        (Acks(), "ALL", "all"),
        (Acks(), -1, "all"),
        (Acks(), "-1", "all"),
        (Acks(), "1", 1),
        (Acks(), 0, 0),
        (ClientId(), "", ""),
        (ClientId(), "é" * 16_383, "é" * 16_383),
    ],
)
def test_a_good_value_is_kept_in_its_one_form(kind: Kind, value: object, kept: object) -> None:
    checked = kind.check(value)
    assert checked == kept
    assert type(checked) is type(kept)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((LEVEL, value) for value in (0, 10, -2, True, 5.0, "5", None)),
        *((Number(0), value) for value in (-0.1, float("nan"), float("inf"), 2**63, True, "5", None)),
        *((Flag(), value) for value in (1, 0, "true", None)),
        *((OPTIONAL_FLAG, value) for value in (1, "true")),
        *((CODEC, value) for value in ("brotli", "", 1)),
        (Choice(("none", "rebootstrap")), None),
        *((Acks(), value) for value in (2, -2, True, 1.0, "2", "", "most", None)),
        *((ClientId(), value) for value in ("é" * 16_384, b"bytes", 5)),
    ],
)
def test_a_bad_value_is_answered_with_what_was_expected(kind: Kind, value: object) -> None:
    with pytest.raises(ValueError) as raised:
        kind.check(value)
    assert str(raised.value) == f"expected {kind.expected}"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (LEVEL, "5", 5),
        (LEVEL, "-1", -1),
        (LEVEL, "+7", 7),
        (Number(0), "5", 5),
        (Number(0), "0.25", 0.25),
        (Flag(), "true", True),
        (Flag(), "False", False),
        (CODEC, "gzip", "gzip"),
        (Acks(), "all", "all"),
    ],
)
def test_text_is_read_as_java_reads_it(kind: Kind, text: str, value: object) -> None:
    parsed = kind.parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((LEVEL, text) for text in ("", "five", "1_0", "5.0", "\u0665", "9" * 5_000)),
        *((Number(0), text) for text in ("", "nan", "1e3", "1_0.5", ".5")),
        *((Flag(), text) for text in ("", "yes", "1")),
    ],
)
def test_text_that_cannot_be_read_is_refused_as_it_stands(kind: Kind, text: str) -> None:
    assert kind.parse(text) == text
    with pytest.raises(ValueError):
        kind.check(kind.parse(text))


def test_client_ids_that_are_left_out_are_numbered() -> None:
    first, second = ClientId().check(None), ClientId().check(None)
    prefix, _, number = first.rpartition("-")
    assert prefix == "aioproducer"
    assert second == f"aioproducer-{int(number) + 1}"


def test_what_was_expected_names_the_bounds_and_the_exception_to_them() -> None:
    assert Integer(0).expected == "an integer from 0 to 2^31 - 1"
    assert LEVEL.expected == "an integer from 1 to 9, or -1"
    assert Number(0).expected == "a number from 0 to 2^63 - 1"
    assert (Flag().expected, OPTIONAL_FLAG.expected) == ("True or False", "True, False or None")
    assert CODEC.expected == "one of none, gzip"


FLAG = Flag()


@dataclass
class Few:
    one: bool = option(True, FLAG, "What it is for.")


def test_an_option_knows_its_kind_and_its_meaning() -> None:
    assert Few().one is True
    (one,) = fields(Few)
    assert one.metadata == {"kind": FLAG, "meaning": "What it is for."}


def test_what_is_very_long_is_shown_by_its_beginning() -> None:
    assert FLAG.shown("x" * 198) == repr("x" * 198)
    assert FLAG.shown("x" * 40_000) == "'" + "x" * 79 + "… (40,002 characters)"


def test_value_without_a_repr_is_shown_by_its_type() -> None:
    assert FLAG.shown(10**5_000) == "a value of type int"
