"""Checks of every test against a broker of another project."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_bugs_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail the test if aioproducer or asyncio logged an error."""
    yield
    assert not [
        f"{each.name}: {each.getMessage()}"
        for each in caplog.get_records("call")
        if each.levelno >= logging.ERROR and each.name.partition(".")[0] in {"aioproducer", "asyncio"}
    ]
