"""Runs random worlds until a promise is broken or the time is up, for `make soak` and similar targets."""

from __future__ import annotations

import argparse
import logging
import random
import time
from collections.abc import Callable
from typing import NamedTuple

from tests.checker import Findings


class Ended(NamedTuple):
    """The world of a seed and its result."""

    world: str
    findings: Findings


def play_seeds(target: str, about: str | None, play: Callable[[int], Ended]) -> int:
    """Play the seeds of the command line, and return 1 if a promise was broken; `make` *target* can repeat it."""
    arguments = argparse.ArgumentParser(description=about)
    arguments.add_argument("--minutes", type=float, default=1.0, help="how long, in real time")
    arguments.add_argument("--first", type=int, help="begin with this seed instead of any")
    arguments.add_argument("--seed", type=int, help="play this one, and show its log")
    given = arguments.parse_args()
    logging.basicConfig(
        level=logging.CRITICAL if given.seed is None else logging.DEBUG,
        format="%(levelname)s %(name)s %(message)s",
    )
    ends_at = time.monotonic() + given.minutes * 60
    chosen = given.first if given.seed is None else given.seed
    first = seed = random.SystemRandom().randrange(1_000_000) if chosen is None else chosen
    while True:
        again = f"again: make {target} SEED={seed}"
        try:
            ended = play(seed)
        except BaseException:
            say(again)
            raise
        if ended.findings.broken:
            say(f"{ended.world}\n{ended.findings}\n{again}")
            return 1
        if given.seed is not None or time.monotonic() > ends_at:
            say(f"every promise was kept with the seeds {first} to {seed}")
            return 0
        seed += 1


def say(what: str) -> None:
    """Print the result."""
    print(what)  # noqa: T201 - for scripts
