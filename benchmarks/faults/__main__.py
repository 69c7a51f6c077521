"""Compare aioproducer and other clients under faults.

Run: python -m benchmarks.faults [--json FILE], or make bench-faults.

Each client runs in a separate process and sends an equal load to in-process brokers (`aioproducer.testing`, on real
sockets) during an equal fault. The records in the brokers' logs are compared with the outcomes that the client
reported. A full run takes about five minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.faults.clients import CLIENTS, versions
from benchmarks.faults.report import row, table
from benchmarks.faults.run import run_scenario
from benchmarks.faults.scenarios import SCENARIOS
from benchmarks.faults.score import Score


async def main() -> None:
    """Print the progress on stderr, and one table on stdout at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--scenarios", nargs="+", choices=names, default=names)
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)  # brokers log every connection that they reset
    played: dict[str, dict[str, Score]] = {}
    for scenario in SCENARIOS:
        if scenario.name not in options.scenarios:
            continue
        of_clients = played[scenario.title] = {}
        for client in options.clients:
            print(f"{scenario.name}: {client} …", file=sys.stderr)
            of_clients[client] = await run_scenario(scenario, client)
    print(table((title, [row(*each) for each in scores.items()]) for title, scores in played.items()))
    print("\n" + ", ".join(f"{name} {number}" for name, number in versions().items()))
    if options.json is not None:
        figures = {
            title: {client: asdict(each) for client, each in scores.items()}
            for title, scores in played.items()
        }
        options.json.write_text(json.dumps({"versions": versions(), "figures": figures}, indent=2))


if __name__ == "__main__":
    asyncio.run(main())
