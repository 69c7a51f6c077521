"""Settings of one run of one client, passed to its process as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

PARTITIONS: Final = 6
"""Partitions of each topic, except in the curves of scale."""
TASKS: Final = 256
"""Concurrent tasks in a closed loop, as in a service with 256 concurrent requests."""
WINDOW: Final = 10_000
"""Maximum number of records per window and per bulk call."""
WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of a window. Each client's memory for unsent records holds several windows of this size."""
GATHERED: Final = 100_000
"""Number of Futures in one call of `asyncio.gather`."""
ZONE: Final = "zone-1"
"""Zone of the client; broker *n* is in zone-*n*."""
TRANSACTION: Final = 10
"""Records in a transaction."""


class Work(StrEnum):
    """Workloads."""

    CLOSED = "closed"
    """256 tasks, each awaiting one acknowledgement after the other."""
    FIRE = "fire"
    """Windows of records appended one by one; each outcome is then awaited."""
    CALLBACKS = "callbacks"
    """Windows of records appended one by one, with a callback per record."""
    GATHER = "gather"
    """100,000 records appended one by one; one call then gathers their Futures."""
    BULK = "bulk"
    """Windows appended with one call each, several calls in flight."""
    ONE_BY_ONE = "one-by-one"
    """Windows appended by one task with one call each. The task awaits the records of a call before the next call."""
    LONE = "lone"
    """One task, awaiting one acknowledgement after the other."""
    TRANSACTIONS = "transactions"
    """Transactions of ten records with keys, one after the other, each committed before the next begins."""
    MEMORY = "memory"
    """A million distinct values appended at the maximum rate of the client. The Futures of the records are dropped."""
    LAG = "lag"
    """Delay of the event loop's timers while 256 tasks send."""
    STEADY = "steady"
    """Records at a constant rate to in-process brokers, each sent by a separate task."""
    SLOW_BROKER = "slow-broker"
    """Records at a constant rate to three brokers, one of which delays every Produce request (KIP-794)."""
    ZONES = "zones"
    """Records at a constant rate to three brokers in three zones, one of them the client's zone (KIP-1123)."""
    COLD = "cold"
    """Import, and the first acknowledged record of a new process."""
    SCALE = "scale"
    """CPU per record over numbers of partitions and topics, against the in-process broker."""


class Tuning(StrEnum):
    """Configuration of the clients. Each configuration has a table, in this order."""

    DEFAULTS = "defaults"
    """Each client with its default acks, idempotence, linger and batch size."""
    BEST = "best"
    """Idempotent with `acks=all`, and each client with its best options for the workload, as found by a sweep."""
    EQUAL = "equal"
    """Idempotent with `acks=all`, and one linger and batch size for all clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one run."""

    work: Work
    seconds: float = 1.0
    """Duration of the workload. The run ends once every record that was sent is acknowledged."""
    warm_up_s: float = 0.0
    """Duration of the warm-up, in seconds, for workloads with a timed warm-up."""
    records: int = 0
    """Number of records to send; 0: send for `seconds`."""
    rate: int = 0
    """Records per second of a workload with a constant rate; else 0."""
    slow_ms: int = 0
    """Delay of each Produce request at the slow broker, in milliseconds; 0: no delay."""
    value_bytes: int = 100
    json_like: bool = False
    """True if values are compressible JSON events; else random bytes."""
    keys: bool = False
    """True if records have keys of 16 bytes."""
    headers: bool = False
    """True if records have two headers each."""
    compression: str = "none"
    linger_ms: int = 0
    batch_bytes: int = 16_384
    calls_in_flight: int = 4
    uvloop: bool = False
    tls: bool = False
    """True if connections use TLS. *ca_file* then has the trusted CA certificates."""
    ca_file: str = ""
    tuning: Tuning = Tuning.EQUAL
    options: dict[str, Any] = field(default_factory=dict)
    """Client options of the table *best*, by the client's option names."""

    @property
    def window(self) -> int:
        """Records per window or bulk call."""
        return max(1, min(WINDOW, WINDOW_BYTES // self.value_bytes))

    def dumps(self) -> str:
        """Return the settings as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Self:
        """Read the JSON of `dumps`."""
        fields = json.loads(text)
        return cls(**fields | {"work": Work(fields["work"]), "tuning": Tuning(fields["tuning"])})
