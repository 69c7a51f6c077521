"""Random callers and random troubles against a simple model: `make differential MINUTES=5`, or `SEED=1234` again.

Each seed is a world of its own, in virtual time. Unlike in `make soak`, brokers do not lie: they come and go, forget
the end of a log, and are asked for what there is not, but say nothing of a record that is not so. The first broken
promise ends it, and its seed is the last thing printed.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time

from aioproducer.testing import virtual_time
from tests.scenarios.faults.trial import Trial


def main() -> int:
    """Return 1 if a promise was broken."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=1.0, help="how long, in real time")
    arguments.add_argument("--first", type=int, help="begin with this seed instead of any")
    arguments.add_argument("--seed", type=int, help="play this one, and show its log")
    given = arguments.parse_args()
    logging.basicConfig(
        level=logging.CRITICAL if given.seed is None else logging.DEBUG,
        format="%(levelname)s %(name)s %(message)s",
    )
    began_at = time.monotonic()
    chosen = given.first if given.seed is None else given.seed
    first = seed = random.SystemRandom().randrange(1_000_000) if chosen is None else chosen
    records = 0
    while True:
        trial = Trial(seed)
        try:
            played = virtual_time.run(trial.play(), debug=False)
        except BaseException:
            say(f"{trial}\nagain: make differential SEED={seed}")
            raise
        records += played.records
        if played.verdict.broken:
            say(f"{trial}\n{played.verdict}\nagain: make differential SEED={seed}")
            return 1
        seed += 1
        if given.seed is not None or time.monotonic() - began_at > given.minutes * 60:
            say(
                f"every promise was kept with the seeds {first} to {seed - 1}: {seed - first} seeds, {records} records"
            )
            return 0


def say(what: str) -> None:
    """Tell whoever ran it."""
    print(what)  # noqa: T201 - a script


if __name__ == "__main__":
    sys.exit(main())
