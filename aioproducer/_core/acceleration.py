"""The choice between functions in Python and their twins in C: `_accelerator.c`, if it was built for this Python.

Set `AIOPRODUCER_PURE=1` before the first import, and nothing of it is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def _accelerator() -> ModuleType | None:
    if os.environ.get("AIOPRODUCER_PURE", "0") not in {"", "0"}:
        return None
    try:
        return import_module("aioproducer._core._accelerator")
    except ImportError:  # not built, or for another Python
        return None


_ACCELERATOR: Final = _accelerator()

accelerated: Final[bool] = _ACCELERATOR is not None
"""Whether loops over records, what the tasks of single sends await, and what writes their requests are in C."""


def fastest(name: str, python: F) -> F:
    """Return the function in C that is called *name*, or *python*, which does the same."""
    return getattr(_ACCELERATOR, name, python)  # none, or built before there was its twin: Python's


# From Python 3.14 on a tuple stores its hash, which only `tuple.__new__` leaves unset.
new_tuple: Final[Callable[..., Any]] = (
    fastest("new_tuple", tuple.__new__) if sys.version_info < (3, 14) else tuple.__new__
)
"""Returns a tuple of a class, a NamedTuple, with the items of a plain tuple, without the frame of the class's `__new__`."""
