"""A little of `make differential`, always with the same seeds."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from aioproducer.testing import Cluster, in_virtual_time, virtual_time
from tests.scenarios.faults.chronicle import Chronicle
from tests.scenarios.faults.trial import Trial
from tests.scenarios.faults.troubles import Troubles

# The first ones, and some in which a topic is not known for a while, or a log has lost its end, and one record waits.
SEEDS = (*range(6), 43, 90, 154, 164, 190, 1236)


@pytest.mark.parametrize("seed", SEEDS)
def test_producer_agrees_with_the_model(seed: int) -> None:
    trial = Trial(seed)
    played = virtual_time.run(trial.play(), debug=False)
    assert not played.findings.broken, f"{trial}\n{played.findings}"
    assert played.records > 100  # there was something to check


@in_virtual_time
async def test_calm_begins_after_the_last_throttle() -> None:
    async with Cluster(3, transport="memory") as cluster:
        troubles = Troubles(cluster, Chronicle(cluster), Random(1), shrinks=False)
        await troubles.long_throttle()
        throttle_s = troubles.rules[0].throttle_ms / 1_000
        began_at = asyncio.get_running_loop().time()
        await troubles.end_rules()
        assert asyncio.get_running_loop().time() - began_at == pytest.approx(throttle_s)
        assert throttle_s >= 1.5
        assert not troubles.rules
