"""The grid of a sweep: the sets of options per client (`grid.toml`). `best.json` has the winners."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.clients import OURS
from benchmarks.settings import Work

GRID: Final = Path(__file__).with_name("grid.toml")
HEADINGS: Final = {
    "aioproducer-nowait": OURS,
    "confluent-produce": "confluent-kafka",
    "confluent-batch": "confluent-kafka",
    "confluent-callback": "confluent-kafka",
    "confluent-aio": "AIOProducer",
}
"""Table of a client's options in the grid, if different from the client's name."""
TUNED_AS: Final = {"confluent-callback": "confluent-produce"}
"""Clients that take another client's winners: the same calls with a callback."""
AWAITED: Final = frozenset({Work.CLOSED, Work.LONE})

Options = dict[str, Any]


def points(client: str, work: Work) -> list[Options]:
    """Return the sets of options that a sweep tries for *client* in the workload *work*."""
    kind = "awaited" if work in AWAITED else "windows"
    found: list[Options] = _grid()[HEADINGS.get(client, client)][kind]
    return found


@cache
def _grid() -> dict[str, dict[str, list[Options]]]:
    return tomllib.loads(GRID.read_text(encoding="utf-8"))
