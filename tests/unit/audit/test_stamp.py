from __future__ import annotations

from typing import Any

import pytest

from aioproducer.audit import (
    LANE_HEADER,
    RUN_HEADER,
    SEQUENCE_HEADER,
    belongs_to,
    lane_of,
    sequence_of,
    stamp,
)


def test_a_stamp_is_two_headers_in_utf_8() -> None:
    assert stamp("nächtlich", 17) == ((RUN_HEADER, "nächtlich".encode()), (SEQUENCE_HEADER, b"17"))
    assert (RUN_HEADER, SEQUENCE_HEADER) == ("aioproducer-run", "aioproducer-seq")


def test_lane_is_a_third_header() -> None:
    assert stamp("r", 1, "täsk 3") == (*stamp("r", 1), (LANE_HEADER, "täsk 3".encode()))
    assert lane_of(stamp("r", 1, "täsk 3")) == "täsk 3".encode()
    assert lane_of(stamp("r", 1)) is None
    assert LANE_HEADER == "aioproducer-lane"


def test_what_is_stamped_is_read_among_other_headers() -> None:
    headers = (("trace", b"1f"), *stamp("nächtlich", 17), ("trace", None))
    assert belongs_to("nächtlich", headers)
    assert sequence_of(headers) == 17


@pytest.mark.parametrize(
    "headers", [(), stamp("nightly-70", 1), ((RUN_HEADER, None),), (("run", b"nightly-7"),)]
)
def test_a_record_of_another_run_or_none_is_told_apart(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    assert not belongs_to("nightly-7", headers)


@pytest.mark.parametrize(
    ("value", "sequence"),
    [
        (b"0", 0),
        (b"007", 7),
        (b"9" * 18, 10**18 - 1),
        (b"9" * 19, None),
        (b"", None),
        (None, None),
        (b"-1", None),
        (b"+1", None),
        (b"1.0", None),
        (b" 1", None),
        (b"1\n", None),
        (b"1_0", None),
        ("\N{ARABIC-INDIC DIGIT ONE}".encode(), None),
        (b"\xff", None),
    ],
)
def test_a_sequence_is_some_digits_and_nothing_else(value: bytes | None, sequence: int | None) -> None:
    assert sequence_of([(SEQUENCE_HEADER, value)]) == sequence


def test_without_a_header_there_is_no_sequence() -> None:
    assert sequence_of([("seq", b"1")]) is None


def test_of_headers_of_one_name_the_first_counts() -> None:
    headers = [*stamp("a", 1), *stamp("b", 2)]
    assert belongs_to("a", headers)
    assert not belongs_to("b", headers)
    assert sequence_of(headers) == 1


@pytest.mark.parametrize(("run", "sequence"), [("", 0), ("r", -1), ("r", 10**18)])
def test_what_no_audit_could_use_is_refused(run: str, sequence: int) -> None:
    with pytest.raises(ValueError, match="a run has a name and sequences from 0 up to 18 digits"):
        stamp(run, sequence)


@pytest.mark.parametrize(("run", "sequence"), [(1, 1), ("r", "1"), ("r", 1.0), (b"r", 1)])
def test_another_type_is_a_type_error(run: Any, sequence: Any) -> None:
    with pytest.raises(TypeError, match="run must be str and sequence int, not "):
        stamp(run, sequence)
