"""A transaction that is prepared here and ended elsewhere: what has to be known of it, as text."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

FORMAT: Final = 1
"""The version of the text; one that is not known is refused."""
_NUMBERS: Final = {
    "producer_id": range(2**63),
    "epoch": range(2**15),
    "transaction_version": range(1, 2**15),
    "began_at_ms": range(253_000_000_000_000),  # with the timeout, a date before the year 10,000
    "timeout_ms": range(-1, 2**31),
}
"""What each may be, as Kafka's protocol has them."""


class PreparedTransaction(NamedTuple):
    """What it takes to end a transaction: nothing of it is secret, and all of it is in its text, one line.

    It belongs to its transactional id, producer id and epoch, not to a connection or a process. Whoever initialises a
    producer with the same transactional id aborts it.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: int
    """The cluster's `transaction.version` that it began with, and that it is to be ended in."""
    began_at_ms: int
    """When it began, which is before its first record, by the clock of the producer; milliseconds since the epoch."""
    timeout_ms: int
    """After so long the coordinator aborts it; -1: never (KIP-939)."""

    @property
    def deadline(self) -> datetime | None:
        """When the coordinator aborts it, give or take how often it looks (10 s); None: never."""
        if self.timeout_ms < 0:
            return None
        return datetime.fromtimestamp((self.began_at_ms + self.timeout_ms) / 1000, UTC)

    def __str__(self) -> str:
        """Return the text that `parse` reads: one line, also to those who take U+2028 for the end of one."""
        return json.dumps({"v": FORMAT, **dict(zip(("id", *_NUMBERS), self, strict=True))})

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the transaction that *text* stands for.

        Raises: ValueError, which says what is wrong with it.
        """
        try:
            read: Any = json.loads(text)
        except ValueError:
            raise ValueError(f"not a prepared transaction: {text[:80]!r} is not JSON") from None
        if not isinstance(read, dict) or read.get("v") != FORMAT:
            version = read.get("v") if isinstance(read, dict) else None
            raise ValueError(
                f"not a prepared transaction that this version can read: its format is {version!r}, expected {FORMAT}"
            )
        wrong = [
            f"{name!r} is {read.get(name)!r}"
            for name, allowed in _NUMBERS.items()
            if type(read.get(name)) is not int or read[name] not in allowed
        ]
        if not isinstance(read.get("id"), str) or not read["id"]:
            wrong.insert(0, f"'id' is {read.get('id')!r}")
        if wrong:
            raise ValueError(f"not a prepared transaction: {', '.join(wrong)}")
        return cls(read["id"], *(read[name] for name in _NUMBERS))
