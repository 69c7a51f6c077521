"""The grid of a sweep: what is tried for each client (`grid.toml`), and what of it was best (`best.json`)."""

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
"""Where a client's options stand, if not under its own name."""
TUNED_AS: Final = {"confluent-callback": "confluent-produce"}
"""Clients that take another client's winners: the same calls with a callback."""
AWAITED: Final = frozenset({Work.CLOSED, Work.LONE})

Options = dict[str, Any]


def points(client: str, work: Work) -> list[Options]:
    """Return the sets of options that are tried for *client* at such *work*."""
    kind = "awaited" if work in AWAITED else "windows"
    found: list[Options] = _grid()[HEADINGS.get(client, client)][kind]
    return found


@cache
def _grid() -> dict[str, dict[str, list[Options]]]:
    return tomllib.loads(GRID.read_text(encoding="utf-8"))
