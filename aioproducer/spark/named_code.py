"""Python code by its name, `package.module:function`: options are text, and a name travels where code does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from importlib import import_module
from typing import Any, Final

from aioproducer.errors import ConfigError

NAMED: Final = ("sasl.credentials", "sasl.oauth.token.provider", "ssl.context")
"""Options that take a callable; each process imports it, and asks it for what is secret there."""


def with_named_code(options: Mapping[str, str]) -> dict[str, Any]:
    """Return *options* with the callables in place of their names.

    Raises: ConfigError: a name is none, or nothing callable has it.
    """
    return {
        name: _callable(name, value) if name.replace("_", ".") in NAMED else value
        for name, value in options.items()
    }


def _callable(option: str, text: str) -> Callable[..., Any]:
    module, colon, path = text.strip().partition(":")
    if not (colon and all(part.isidentifier() for part in (*module.split("."), *path.split(".")))):
        # it may be what its function would return: not shown
        raise ConfigError(f"{option}: expected the name of a function, such as package.module:function")
    try:
        found = reduce(getattr, path.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{option} = {text!r} cannot be imported: {error}") from error
    if not callable(found):
        raise ConfigError(f"{option} = {text!r} is of type {type(found).__name__}, which cannot be called")
    return found
