from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from tests.unit.net.scripted import ScriptedBroker


@pytest.fixture(autouse=True)
async def nothing_left_behind() -> AsyncIterator[None]:
    """Fail the test if a task of ours survives it; a socket that does is a ResourceWarning, hence an error."""
    yield
    left = [each.get_name() for each in asyncio.all_tasks() if each.get_name().startswith("aioproducer")]
    gc.collect()
    assert left == []


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker() as broker:
        yield broker
