from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator

import pytest

from aioproducer.contrib.logging import KafkaHandler
from aioproducer.testing import ThreadedCluster
from tests.unit.contrib.threads_rig import TOPIC


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Switch threads so often that they interleave at every step."""
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
    """Return the running threads without the idle threads that all producers share."""
    return {each for each in threading.enumerate() if not each.name.startswith("aioproducer ")}


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("shop")
    logger.setLevel(logging.DEBUG)
    yield logger
    for handler in [*logger.handlers]:
        logger.removeHandler(handler)
        handler.close()


@pytest.fixture
def handler(kafka_cluster: ThreadedCluster, logger: logging.Logger) -> KafkaHandler:
    handler = KafkaHandler("logs", kafka_cluster.bootstrap_servers)
    logger.addHandler(handler)
    return handler
