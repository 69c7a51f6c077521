"""Every fault with every mode of producer that it concerns; the checker reads log and traffic."""

from __future__ import annotations

import pytest

from aioproducer.testing import virtual_time
from tests.scenarios.faults.table import SCENARIOS
from tests.scenarios.faults.world import Scenario, play


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_producer_keeps_every_promise(scenario: Scenario) -> None:
    # Without asyncio's debug mode, which all other tests have: a record takes ten times as long with it.
    for mode in scenario.modes:
        verdict = virtual_time.run(play(scenario, mode), debug=False)
        assert not verdict.broken, f"{mode}\n{verdict}"
