"""What one client is asked to do in one process: the same words for all of them, passed on as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

PARTITIONS: Final = 6
"""Of every topic that is written to, but for the curves of scale."""
TASKS: Final = 256
"""How many tasks send at once in a closed loop, as in a service with as many requests."""
WINDOW: Final = 10_000
"""Records per window and per bulk call …"""
WINDOW_BYTES: Final = 8 * 1024 * 1024
"""… but not more than this: every client's memory for unsent records holds it several times over."""
GATHERED: Final = 100_000
"""Records whose Futures one call gathers."""
ZONE: Final = "zone-1"
"""Zone of the client; broker *n* is in zone-*n*."""
TRANSACTION: Final = 10
"""Records in a transaction."""


class Work(StrEnum):
    """The kinds of work."""

    CLOSED = "closed"
    """256 tasks, each awaiting one acknowledgement after the other."""
    FIRE = "fire"
    """Windows of records handed over one by one, then each outcome awaited."""
    CALLBACKS = "callbacks"
    """Windows of records handed over one by one, with a callback per record."""
    GATHER = "gather"
    """100,000 records handed over one by one, then their Futures gathered at once."""
    BULK = "bulk"
    """Windows handed over with one call each, several calls in flight."""
    ONE_BY_ONE = "one-by-one"
    """The same by one caller, who waits for each call's records before the next call."""
    LONE = "lone"
    """One task, awaiting one acknowledgement after the other."""
    TRANSACTIONS = "transactions"
    """Transactions of ten records with keys, one after the other, each committed before the next begins."""
    MEMORY = "memory"
    """A million distinct values handed over as fast as the client takes them, their Futures dropped."""
    LAG = "lag"
    """How late the event loop's timers are meanwhile."""
    STEADY = "steady"
    """So many records a second, at even distances, each sent by a task of its own, to in-process brokers."""
    SLOW_BROKER = "slow-broker"
    """The same, to brokers of which one takes its time for every Produce request (KIP-794)."""
    ZONES = "zones"
    """The same, to brokers in three zones, of which one is the client's (KIP-1123)."""
    COLD = "cold"
    """Import, and the first acknowledged record of a new process."""
    SCALE = "scale"
    """CPU per record over numbers of partitions and topics, against the in-process broker."""


class Tuning(StrEnum):
    """The ground on which clients are compared: each is a table of its own, in this order."""

    DEFAULTS = "defaults"
    """Each client as it comes: its own acks, idempotence, linger and batch size."""
    BEST = "best"
    """Idempotent with `acks=all`, and for each client what a sweep found to be its best for the work."""
    EQUAL = "equal"
    """Idempotent with `acks=all`, and the same linger and batch size for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of one run."""

    work: Work
    seconds: float = 1.0
    """How long the work goes on; it then ends with all that was begun acknowledged."""
    warm_up_s: float = 0.0
    """How long it is done before that, uncounted, where a time says it better than a number of calls."""
    records: int = 0
    """So many instead, if not 0."""
    rate: int = 0
    """How many records a second are sent, where there is a rate."""
    slow_ms: int = 0
    """Time that one of three brokers takes for a Produce request, or the only one; 0: no delay."""
    value_bytes: int = 100
    json_like: bool = False
    """Whether values are JSON events, which can be compressed; else they are random bytes."""
    keys: bool = False
    """Whether records have keys, of 16 bytes …"""
    headers: bool = False
    """… and two headers each."""
    compression: str = "none"
    linger_ms: int = 0
    batch_bytes: int = 16_384
    calls_in_flight: int = 4
    uvloop: bool = False
    tls: bool = False
    """Whether the connection is encrypted; *ca_file* has who is to be trusted then."""
    ca_file: str = ""
    tuning: Tuning = Tuning.EQUAL
    options: dict[str, Any] = field(default_factory=dict)
    """What the client is configured with at its best, under its own names."""

    @property
    def window(self) -> int:
        """How many records there are in a window or call."""
        return max(1, min(WINDOW, WINDOW_BYTES // self.value_bytes))

    def dumps(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Self:
        """Read what `dumps` wrote."""
        fields = json.loads(text)
        return cls(**fields | {"work": Work(fields["work"]), "tuning": Tuning(fields["tuning"])})
