"""Every kind of fault again, with one record under way at a time, before the same judge."""

from __future__ import annotations

import pytest

from aioproducer.testing import virtual_time
from tests.scenarios.faults.quiet import Quiet, cases
from tests.scenarios.faults.world import play


@pytest.mark.parametrize("case", [pytest.param(case, id=str(case)) for case in cases()])
def test_every_promise_is_kept_to_a_record_that_is_alone(case: Quiet) -> None:
    # Without asyncio's debug mode, as the table.
    verdict = virtual_time.run(play(case.scenario, case.mode, course=case.course), debug=False)
    assert not verdict.broken, f"\n{verdict}"
