"""History of a run: one event per line of a JSON-lines file, and the transactions and reads made of the events."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

OK, FAIL, UNKNOWN = "ok", "fail", "unknown"
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


class Append(NamedTuple):
    """A record: *value* is unique in the run, and appended to the list of *key* in *partition*."""

    partition: int
    key: str
    value: str


class Read(NamedTuple):
    """A record that a consumer returned."""

    at: float
    reader: str
    isolation: str
    partition: int
    offset: int
    value: str


@dataclass
class Transaction:
    """A transaction from its begin to its outcome."""

    producer: str
    """The transactional id."""
    instance: int
    """Number of the producer among those with this transactional id, in order of their start."""
    number: int
    """Number of the transaction in its instance."""
    appends: list[Append]
    begun: float
    committing: float | None = None
    """Time of the call of commit; None if commit was never called."""
    ended: float | None = None
    """Time of the outcome; None if the run ended first."""
    outcome: str = UNKNOWN
    """`ok`: the commit returned. `fail`: the client reported that nothing is committed. `unknown`: all other cases."""

    @property
    def name(self) -> str:
        """The name in the history."""
        return f"{self.producer}/{self.instance}/{self.number}"

    @property
    def is_committed(self) -> bool:
        """True if the client reported the commit."""
        return self.committing is not None and self.outcome == OK

    @property
    def may_be_committed(self) -> bool:
        """True if commit was called and the client did not report its failure."""
        return self.committing is not None and self.outcome != FAIL


@dataclass
class History:
    """A run, for the checker."""

    transactions: dict[str, Transaction] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    started: dict[tuple[str, int], float] = field(default_factory=dict)
    """Time at which the start of an instance returned, by transactional id and instance."""
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    """High watermark and last stable offset of each partition after the run."""
    faults: list[str] = field(default_factory=list)


class Recorder:
    """Writes events as JSON lines. All processes on the machine share the clock (`time.monotonic`)."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def __call__(self, event: str, **facts: Any) -> None:
        """Write an event with the present time."""
        with self._lock:  # text files are not thread-safe
            self._file.write(json.dumps({"at": round(time.monotonic(), 6), "event": event, **facts}) + "\n")


def load(path: Path) -> History:
    """Return the history in a file."""
    with path.open(encoding="utf-8") as lines:
        return build(json.loads(line) for line in lines)


def build(events: Iterable[dict[str, Any]]) -> History:
    """Return the history of *events*, in any order of concurrent events."""
    history = History()
    for event in events:
        _add(history, event)
    return history


def _add(history: History, event: dict[str, Any]) -> None:
    at: float = event["at"]
    match event["event"]:
        case "started":
            history.started[event["producer"], event["instance"]] = at
        case "begin":
            producer, instance, number = event["transaction"].split("/")
            appends = [Append(*each) for each in event["appends"]]
            begun = Transaction(producer, int(instance), int(number), appends, begun=at)
            history.transactions[begun.name] = begun
        case "commit":
            history.transactions[event["transaction"]].committing = at
        case "outcome":
            transaction = history.transactions[event["transaction"]]
            transaction.ended, transaction.outcome = at, event["outcome"]
        case "read":
            where = event["partition"], event["offset"]
            history.reads.append(Read(at, event["reader"], event["isolation"], *where, event["value"]))
        case "end of log":
            history.ends[event["partition"]] = event["high_watermark"], event["last_stable_offset"]
        case "fault":
            history.faults.append(event["fault"])
