"""Python code by its name, `package.module:function`: where options are text, and where a name travels and code does not."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import Any


def named_code(text: str) -> Callable[..., Any] | None:
    """Import the callable that *text* names; no text is none.

    Raises: ValueError: it is no name, or nothing callable has it.
    """
    if not text:
        return None
    module, colon, path = text.partition(":")
    if not (colon and all(part.isidentifier() for part in (*module.split("."), *path.split(".")))):
        # it may be what its function would return: not shown
        raise ValueError("expected the name of a function, such as package.module:function")
    try:
        found = reduce(getattr, path.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{text!r} cannot be imported: {error}") from error
    if not callable(found):
        raise ValueError(f"{text!r} is of type {type(found).__name__}, which cannot be called")
    return found
