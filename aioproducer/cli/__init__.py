"""The command line: `aioproducer demo`, `send`, `perf`, `audit`, `topics`, `tail`, `spark-recover`, `broker`, `config`, `completion`."""

from __future__ import annotations

import sys
from io import TextIOWrapper

from aioproducer._core.extras import needs

__all__ = ["main"]


def main() -> None:
    """Run the command and exit: with 1 if the command failed, with 2 for a wrong command line."""
    try:
        import click  # noqa: F401 - click and rich are packages of the extra "cli"
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
            stream.reconfigure(errors="replace")  # for characters outside of the terminal's encoding
    from aioproducer.cli.commands import program
    from aioproducer.cli.output import checked

    sys.stdout = checked(sys.stdout)
    program(prog_name="aioproducer")
