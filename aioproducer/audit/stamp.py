"""The headers of an audited record: its run, its sequence in the run, and optionally its lane."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

RUN_HEADER: Final = "aioproducer-run"
"""Its value is the run's id, in UTF-8."""
SEQUENCE_HEADER: Final = "aioproducer-seq"
"""Its value is a number from 0 on, in decimal digits."""
LANE_HEADER: Final = "aioproducer-lane"
"""Name, in UTF-8, of the producer or task that keeps an order; optional."""

MAX_DIGITS: Final = 18
"""So many fit into an int64, whatever they are."""


def stamp(run: str, sequence: int, lane: str | None = None) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of a record: a run numbers its records 0, 1, 2, … in the order in which it sends them.

    If several producers or tasks send for one run, *lane* names the sender of this record: the audit checks the order
    within a lane. None: records without a lane form one lane.

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
    headers = (RUN_HEADER, run.encode()), (SEQUENCE_HEADER, b"%d" % sequence)
    return headers if lane is None else (*headers, (LANE_HEADER, lane.encode()))


def belongs_to(run: str, headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Return whether a record with *headers* is of *run*."""
    return _first(RUN_HEADER, headers) == run.encode()


def sequence_of(headers: Iterable[tuple[str, bytes | None]]) -> int | None:
    """Return the sequence of a record with *headers*; None if there is none, or it is no number."""
    digits = _first(SEQUENCE_HEADER, headers)
    if digits is None or not digits.isdigit() or len(digits) > MAX_DIGITS:
        return None
    return int(digits)


def lane_of(headers: Iterable[tuple[str, bytes | None]]) -> bytes | None:
    """Return the lane of a record with *headers*; None if the record has no lane."""
    return _first(LANE_HEADER, headers)


def _first(name: str, headers: Iterable[tuple[str, bytes | None]]) -> bytes | None:
    return next((value for key, value in headers if key == name), None)
