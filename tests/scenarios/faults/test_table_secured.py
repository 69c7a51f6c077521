"""The table of faults over TLS and logged in by SCRAM: nothing is promised less.

A few rows; all of them, some five minutes, with OVER_TLS=all (`make faults-over-tls`).
"""

from __future__ import annotations

import os

import pytest

from aioproducer.testing import virtual_time
from tests.scenarios.faults.table import SCENARIOS
from tests.scenarios.faults.world import IDEMPOTENT, SECURED, UNACKNOWLEDGED, Mode, Scenario, play

REPRESENTATIVE = {
    "nothing",
    "code-6-before-append-x8",
    "code-7-after-append-x8",
    "answer-cut-x8",
    "half-open",
    "broker-away-3-s",
    "broker-frozen-3-s",
    "rolling-restart",
    "reset-storm",
    "leaders-come-and-go",
}
WHOLE = os.environ.get("OVER_TLS") == "all"
CASES = [
    pytest.param(scenario, mode, id=f"{scenario.name}-{mode}")
    for scenario in SCENARIOS
    for mode in scenario.modes
    if WHOLE or (scenario.name in REPRESENTATIVE and mode in {IDEMPOTENT, UNACKNOWLEDGED})
]


def test_representative_faults_are_in_the_table() -> None:
    assert {each.name for each in SCENARIOS} >= REPRESENTATIVE


@pytest.mark.parametrize(("scenario", "mode"), CASES)
def test_producer_keeps_every_promise_over_tls(scenario: Scenario, mode: Mode) -> None:
    verdict = virtual_time.run(play(scenario, mode, security=SECURED), debug=False)
    assert not verdict.broken, f"\n{verdict}"
