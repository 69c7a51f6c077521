"""A little of `make differential`, always with the same seeds."""

from __future__ import annotations

import pytest

from aioproducer.testing import virtual_time
from tests.scenarios.faults.trial import Trial

# The first ones, and some in which a topic is not known for a while, or a log has lost its end, and one record waits.
SEEDS = (*range(6), 43, 90, 154, 164, 190, 1236)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_model_agrees(seed: int) -> None:
    trial = Trial(seed)
    played = virtual_time.run(trial.play(), debug=False)
    assert not played.verdict.broken, f"{trial}\n{played.verdict}"
    assert played.records > 100  # there was something to check
