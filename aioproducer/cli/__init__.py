"""The command line: `aioproducer demo`, `send`, `perf`, `audit`, `topics`, `tail`, `spark-recover`, `broker`, `config`, `completion`."""

from __future__ import annotations

import sys
from io import TextIOWrapper

from aioproducer._core.extras import needs

__all__ = ["main"]


def main() -> None:
    """Do what the command line says, and end the process: with 1 if that failed, with 2 if it was misunderstood."""
    try:
        import click  # noqa: F401 - of the extra "cli", like the next: not everybody has them
        import rich  # noqa: F401
    except ModuleNotFoundError as missing:
        if missing.name not in {"click", "rich"}:
            raise
        print(  # noqa: T201 - this is a command line
            f"aioproducer: {needs('the command line', 'cli')}",
            file=sys.stderr,
        )
        sys.exit(2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a character that a terminal lacks is no reason to fail
    from aioproducer.cli.commands import program
    from aioproducer.cli.output import checked

    sys.stdout = checked(sys.stdout)
    program(prog_name="aioproducer")
