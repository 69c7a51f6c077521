"""Every kind of fault, with every kind of producer that it concerns, before the same judge."""

from __future__ import annotations

import pytest

from aioproducer.testing import virtual_time
from tests.scenarios.faults.table import SCENARIOS
from tests.scenarios.faults.world import Mode, Scenario, play

CASES = [
    pytest.param(scenario, mode, id=f"{scenario.name}-{mode}")
    for scenario in SCENARIOS
    for mode in scenario.modes
]


@pytest.mark.parametrize(("scenario", "mode"), CASES)
def test_every_promise_is_kept(scenario: Scenario, mode: Mode) -> None:
    # Without asyncio's debug mode, which all other tests have: a record takes ten times as long with it.
    verdict = virtual_time.run(play(scenario, mode), debug=False)
    assert not verdict.broken, f"\n{verdict}"
