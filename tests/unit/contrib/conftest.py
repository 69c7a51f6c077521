from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Let threads take turns so often that whatever may come between two steps does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
