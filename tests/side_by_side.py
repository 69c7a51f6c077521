"""Runs targets of the Makefile next to each other, and shows the output of each when it has ended.

There is one more at a time than there are cores, for those with a real broker wait for much of their time. Their limits
are of real time, too, so they go first: the others are `nice`, and take what of the cores they leave.

`make -j` would do if its output could be told apart everywhere; the make of macOS cannot.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

IN_REAL_TIME = frozenset({"kafka", "spark"})
NICENESS = 5
"""Some three times less of a core than its neighbour: enough to go on, whatever the neighbours do."""


def run(target: str, variables: list[str]) -> tuple[int, str]:
    """Return the exit code of `make target`, and what it has said."""
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
    """Return 1 if a target fails. Those that have not begun then do not begin; what the others say is shown, too."""
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
