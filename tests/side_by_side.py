"""Runs targets of the Makefile next to each other, each on a core, and shows the output of each when it has ended.

`make -j` would do if its output could be told apart everywhere; the make of macOS cannot.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed


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
    """Return 1 if a target fails; the others are not waited for then, but those that run."""
    variables = [each for each in arguments if "=" in each]
    targets = [each for each in arguments if "=" not in each]
    with ThreadPoolExecutor(min(os.cpu_count() or 1, len(targets))) as pool:
        running = [pool.submit(run, target, variables) for target in targets]
        for each in as_completed(running):
            code, said = each.result()
            sys.stdout.write(said)
            sys.stdout.flush()
            if code:
                pool.shutdown(wait=True, cancel_futures=True)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
