"""Numbers of tokens and token endpoints: untrusted input."""

from __future__ import annotations

from math import isfinite


def finite(value: object) -> float | None:
    """Return *value* as a float; None if it is no number, not finite, or larger than any float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None
