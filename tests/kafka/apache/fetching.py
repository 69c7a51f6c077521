"""Jars are fetched before the first test: a download has no place in a test's timeout, nor its silence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kafka.apache.jars import JarsUnavailable


def fetch_for(
    session: pytest.Session, marker: str, *fetch: Callable[[Callable[[str], None]], object]
) -> None:
    """Call each of *fetch* with a way to say what it does, if *session* is to run a test with *marker*.

    Raises: UsageError with what to do, if jars cannot be had.
    """
    wanted = any(item.get_closest_marker(marker) for item in session.items)
    if not wanted or session.config.option.collectonly:
        return
    say = session.config.get_terminal_writer().line
    try:
        for each in fetch:
            each(say)
    except JarsUnavailable as error:
        raise pytest.UsageError(str(error)) from error
