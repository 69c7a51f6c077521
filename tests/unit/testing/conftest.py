from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aioproducer.testing import Cluster
from tests.unit.testing.client import Client


@pytest.fixture(autouse=True)
async def nothing_left_behind() -> AsyncIterator[None]:
    """Fail the test if a task of a broker survives it; a socket that does is a warning, and so an error."""
    yield
    left = [each.get_name() for each in asyncio.all_tasks() if each.get_name().startswith("aioproducer")]
    assert left == []


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Two nodes in memory; node 1 leads partitions 0 and 2 of "orders", node 2 leads partition 1."""
    async with Cluster(brokers=2, topics={"orders": 3}, transport="memory") as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    """A connection to node 1."""
    async with await Client.to(cluster) as client:
        yield client
