"""Numbers of tokens and token endpoints: untrusted input."""

from __future__ import annotations

from math import isfinite


def finite(value: object) -> float | None:
    """Return *value* as a finite float; None if *value* is not a number or exceeds the range of floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None
