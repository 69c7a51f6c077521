from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from aioproducer._core.net.pool import Pool
from tests.unit._core.net.connection_rig import Outcomes
from tests.unit._core.net.pool_rig import Reports, pool_of
from tests.unit._core.net.scripted import ScriptedBroker


@pytest.fixture(autouse=True)
async def nothing_left_behind() -> AsyncIterator[None]:
    """Fail the test if one of its tasks survives it. A surviving socket is a ResourceWarning, hence an error."""
    yield
    left = [each.get_name() for each in asyncio.all_tasks() if each.get_name().startswith("aioproducer")]
    gc.collect()
    assert left == []


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker() as broker:
        yield broker


@pytest.fixture
async def outcomes() -> Outcomes:
    return Outcomes()


@pytest.fixture
async def reports() -> Reports:
    return Reports()


@pytest.fixture
async def pool(reports: Reports) -> AsyncIterator[Pool]:
    async with pool_of(reports) as pool:
        yield pool
