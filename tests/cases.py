"""Loops over cases within one test: a table of hundreds of rows is one line of the report, not hundreds."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

LONGEST_SHOWN = 400
"""Characters of a case that are shown with its failure."""


def for_each(
    names: str | tuple[str, ...], cases: Iterable[Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Call the decorated test once per case; the first failure ends the test and names its case.

    Takes the arguments of `pytest.mark.parametrize`, which creates a test per case instead. All cases share the
    fixtures of the test.
    """
    keys = [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)
    single = isinstance(names, str) and len(keys) == 1
    rows = [dict(zip(keys, [case] if single else case, strict=True)) for case in cases]
    assert rows, f"no cases of {names}"

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> None:
            for number, row in enumerate(rows):
                with _named(number, row):
                    function(*args, **kwargs, **row)

        async def call_async(*args: Any, **kwargs: Any) -> None:
            for number, row in enumerate(rows):
                with _named(number, row):
                    await function(*args, **kwargs, **row)

        looped = call_async if inspect.iscoroutinefunction(function) else call
        functools.update_wrapper(looped, function)
        signature = inspect.signature(function)
        kept = [each for each in signature.parameters.values() if each.name not in keys]
        vars(looped)["__signature__"] = signature.replace(parameters=kept)
        return looped

    return decorate


@contextmanager
def _named(number: int, row: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except BaseException as error:  # pytest's Failed is no Exception
        shown = ", ".join(f"{name}={value!r}" for name, value in row.items())
        error.add_note(f"case {number}: {shown[:LONGEST_SHOWN]}")
        raise
