"""Random callers and random troubles against a simple model: `make differential MINUTES=5`, or `SEED=1234` again.

Each seed is a world of its own, in virtual time. Unlike in `make soak`, brokers do not lie: they come and go, forget
the end of a log, and are asked for what there is not, but say nothing of a record that is not so. The first broken
promise ends it, and its seed is the last thing printed.

As in `make soak`, at least one bootstrap server keeps a broker.
"""

from __future__ import annotations

import sys

from aioproducer.testing import virtual_time
from tests.scenarios.faults.seeds import Ended, play_seeds
from tests.scenarios.faults.trial import Trial


def played(seed: int) -> Ended:
    """Play *seed*."""
    trial = Trial(seed)
    return Ended(str(trial), virtual_time.run(trial.play(), debug=False).findings)


if __name__ == "__main__":
    sys.exit(play_seeds("differential", __doc__, played))
