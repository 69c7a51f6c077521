"""Fixture for tests against real brokers: a test fails if aioproducer or asyncio logs an error."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_bugs_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail the test if aioproducer or asyncio logged an error; no fault of a broker is an error of the client."""
    yield
    assert not [
        f"{each.name}: {each.getMessage()}"
        for each in caplog.get_records("call")
        if each.levelno >= logging.ERROR and each.name.partition(".")[0] in {"aioproducer", "asyncio"}
    ]
