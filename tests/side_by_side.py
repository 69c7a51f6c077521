"""Runs targets of the Makefile next to each other, each on a core, and shows the output of each when it has ended.

`make -j` would do if its output could be told apart everywhere; the make of macOS cannot.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait


def run(target: str, variables: list[str]) -> tuple[int, str]:
    """Return the exit code of `make target`, and what it has said."""
    done = subprocess.run(
        ["make", "--no-print-directory", target, *variables],
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
    with ThreadPoolExecutor(min(os.cpu_count() or 1, len(targets))) as pool:
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
