"""The garbage collector: objects that it need not visit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from aioproducer._core.acceleration import fastest

F = TypeVar("F", bound=Callable[..., Any])


def python_untracking(create: F) -> F:
    """Return *create*: Python has no function that takes an object from the collector."""
    return create


untracking: Final = fastest("untracking", python_untracking)
"""Return a function that creates as its argument, a class or function, from positional arguments.

The garbage collector does not visit what the function creates. So no reference in such an object may lead back to it, now and
later. A full collection visits all tracked objects, and starts when their number has grown by a quarter: objects that each topic
keeps make the first records of thousands of topics slow.
"""
