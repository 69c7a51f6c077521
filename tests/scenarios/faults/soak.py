"""Random faults for as long as you like: `make soak MINUTES=5`, or one seed again: `make soak SEED=1234`.

Each seed is a world of its own: 15 s of faults in virtual time, more than a hundred worlds in a minute or two. The
first broken promise ends it, and its seed is the last thing printed.

Brokers move to new addresses and exchange their addresses. At least one bootstrap server keeps a broker, because
operators keep one: without any, no producer finds its cluster again.
"""

from __future__ import annotations

import sys

from aioproducer.testing import virtual_time
from tests.scenarios.faults.chaos import chaos
from tests.scenarios.faults.seeds import Ended, play_seeds
from tests.scenarios.faults.world import play


def played(seed: int) -> Ended:
    """Play *seed*."""
    scenario, mode = chaos(seed)
    verdict = virtual_time.run(play(scenario, mode, seed=seed))
    return Ended(f"{mode}, {dict(scenario.options)}", verdict)


if __name__ == "__main__":
    sys.exit(play_seeds("soak", __doc__, played))
