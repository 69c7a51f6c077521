"""Runs targets of the Makefile in parallel, and prints the output of each target when the target ends.

One target more than cores runs at a time, because targets with a real broker wait for a third of their time. Tests of
these targets have real time limits, so the other targets run with a lower priority (`nice`).

`make -j` cannot replace this module: the make of macOS mixes the output of parallel targets.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

IN_REAL_TIME = frozenset({"kafka", "spark"})
NICENESS = 5
"""A third of the CPU share of a target with a broker: such a target still progresses beside busy neighbours."""


def run(target: str, variables: list[str]) -> tuple[int, str]:
    """Return the exit code and the output of `make target`."""
    first = [] if target in IN_REAL_TIME else ["nice", "-n", str(NICENESS)]
    done = subprocess.run(
        [*first, "make", "--no-print-directory", target, *variables],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return done.returncode, done.stdout


def main(arguments: list[str]) -> int:
    """Return 1 if a target fails. Pending targets are then cancelled, and running ones print their output."""
    variables = [each for each in arguments if "=" in each]
    targets = [each for each in arguments if "=" not in each]
    failed = False
    with ThreadPoolExecutor(min((os.cpu_count() or 1) + 1, len(targets))) as pool:
        waiting = {pool.submit(run, target, variables) for target in targets}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for code, said in (each.result() for each in done):
                sys.stdout.write(said)
                sys.stdout.flush()
                if code:
                    failed = True
                    waiting = {each for each in waiting if not each.cancel()}
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
