"""A little of `make soak`, always with the same seeds."""

from __future__ import annotations

import pytest

from aioproducer.testing import virtual_time
from tests.scenarios.faults.chaos import chaos
from tests.scenarios.faults.world import play


@pytest.mark.parametrize("seed", range(12))
def test_every_promise_is_kept_whatever_comes(seed: int) -> None:
    scenario, mode = chaos(seed, seconds=5.0)
    verdict = virtual_time.run(play(scenario, mode, seed=seed), debug=False)
    assert not verdict.broken, f"{mode}, {dict(scenario.options)}\n{verdict}"
