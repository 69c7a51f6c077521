"""The two headers by which a record is recognised: the run it is of, and its sequence there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

RUN_HEADER: Final = "aioproducer-run"
"""Its value is the run's id, in UTF-8."""
SEQUENCE_HEADER: Final = "aioproducer-seq"
"""Its value is a number from 0 on, in decimal digits."""

MAX_DIGITS: Final = 18
"""So many fit into an int64, whatever they are."""


def stamp(run: str, sequence: int) -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    """Return the headers of a record: a run numbers its records 0, 1, 2, … in the order in which it sends them.

    Raises: TypeError, ValueError: the run's id is empty, or the sequence below 0 or of more than 18 digits.
    """
    if type(run) is not str or type(sequence) is not int:
        raise TypeError(
            f"run must be str and sequence int, not {type(run).__name__}, {type(sequence).__name__}"
        )
    if not run or not 0 <= sequence < 10**MAX_DIGITS:
        raise ValueError(
            f"a run has a name and sequences from 0 up to {MAX_DIGITS} digits, not {run!r}, {sequence}"
        )
    return (RUN_HEADER, run.encode()), (SEQUENCE_HEADER, b"%d" % sequence)


def belongs_to(run: str, headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Return whether a record with *headers* is of *run*."""
    return _first(RUN_HEADER, headers) == run.encode()


def sequence_of(headers: Iterable[tuple[str, bytes | None]]) -> int | None:
    """Return the sequence of a record with *headers*; None if there is none, or it is no number."""
    digits = _first(SEQUENCE_HEADER, headers)
    if digits is None or not digits.isdigit() or len(digits) > MAX_DIGITS:
        return None
    return int(digits)


def _first(name: str, headers: Iterable[tuple[str, bytes | None]]) -> bytes | None:
    return next((value for key, value in headers if key == name), None)
