from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """A command may change them for good: its process ends."""
    logger = logging.getLogger("aioproducer.config")
    before = logger.level
    yield
    logger.setLevel(before)
