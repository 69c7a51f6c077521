from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from aioproducer.testing import ThreadedCluster
from tests.unit.contrib.threads_rig import TOPIC


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Let threads take turns so often that whatever may come between two steps does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def cluster() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(topics={TOPIC: 1}) as cluster:
        yield cluster


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    before = alive()
    yield
    assert alive() == before


def alive() -> set[threading.Thread]:
    """Return the threads that run, without those that all producers share and that end when they are idle."""
    return {each for each in threading.enumerate() if not each.name.startswith("aioproducer ")}
