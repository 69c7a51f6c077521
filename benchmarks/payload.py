"""Records to send: distinct values, with optional keys and headers, equal in every process."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from benchmarks.settings import Settings

KEY_BYTES: Final = 16
Header = tuple[str, bytes]

ACTIONS: Final = ("view", "search", "add_to_cart", "remove_from_cart", "checkout", "pay")
AGENTS: Final = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15",
    "ShopApp/8.21 (Android 15)",
)


@dataclass(frozen=True, slots=True)
class Window:
    """Records that are sent together, as columns."""

    values: Sequence[bytes]
    keys: Sequence[bytes] | None = None
    headers: Sequence[list[Header]] | None = None

    def __len__(self) -> int:
        return len(self.values)


def window_of(settings: Settings) -> Window:
    """Return the window that a run sends repeatedly."""
    chance = random.Random(1)
    make = json_value if settings.json_like else random_value
    numbers = range(settings.window)
    return Window(
        [make(chance, number, settings.value_bytes) for number in numbers],
        [chance.randbytes(KEY_BYTES) for _ in numbers] if settings.keys else None,
        [_headers(chance) for _ in numbers] if settings.headers else None,
    )


def random_value(chance: random.Random, number: int, size: int) -> bytes:
    """Return *size* random bytes that begin with *number*."""
    start = b"%d:" % number
    return (start + chance.randbytes(max(0, size - len(start))))[:size]


def json_value(chance: random.Random, number: int, size: int) -> bytes:
    """Return a JSON list of events, padded with blanks to *size* bytes. A first event above *size* is cut."""
    events: list[bytes] = []
    room = size - len(b"[]")
    for serial in count():
        event = json.dumps(
            {
                "number": f"{number}-{serial}",
                "customer": f"customer-{chance.randrange(50_000)}",
                "action": chance.choice(ACTIONS),
                "article": chance.randrange(10**8),
                "price": chance.randrange(100_000) / 100,
                "agent": chance.choice(AGENTS),
            },
            separators=(",", ":"),
        ).encode()
        room -= len(event) + len(b",")
        if events and room < 0:
            break
        events.append(event)
        if room < 0:
            break
    return (b"[" + b",".join(events) + b"]")[:size].ljust(size)


def _headers(chance: random.Random) -> list[Header]:
    return [("trace", chance.randbytes(8).hex().encode()), ("content-type", b"application/json")]
