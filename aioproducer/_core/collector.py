"""The garbage collector: objects that it need not visit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from aioproducer._core.acceleration import fastest

F = TypeVar("F", bound=Callable[..., Any])


def python_untracking(create: F) -> F:
    """Return *create*: Python has no function that excludes an object from the collector."""
    return create


untracking: Final = fastest("untracking", python_untracking)
"""`untracking(create)` returns a function that calls *create*, a class or function, with positional arguments.

The garbage collector does not visit the objects that this function returns. No reference of such an object may ever lead back
to the object. A full collection visits all tracked objects, and starts when their number has grown by a quarter: objects that
each topic keeps slow down the first records of thousands of topics.
"""
