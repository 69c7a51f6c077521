"""Every fault with one record in flight at a time, checked like the table."""

from __future__ import annotations

import pytest

from aioproducer.testing import virtual_time
from tests.scenarios.faults.quiet import Quiet, cases
from tests.scenarios.faults.world import play


def by_fault() -> dict[str, list[Quiet]]:
    """Return all cases, by the name of their fault."""
    grouped: dict[str, list[Quiet]] = {}
    for case in cases():
        grouped.setdefault(case.scenario.name, []).append(case)
    return grouped


CASES = by_fault()


@pytest.mark.parametrize("fault", CASES)
def test_producer_keeps_every_promise_to_a_single_record(fault: str) -> None:
    # Without asyncio's debug mode, as the table.
    for case in CASES[fault]:
        verdict = virtual_time.run(play(case.scenario, case.mode, course=case.course), debug=False)
        assert not verdict.broken, f"{case}\n{verdict}"
