"""Checks for anomalies in a history. Each check is a pure function that yields one line per anomaly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from tests.jepsen.history import COMMITTED, History, Read, Transaction

Check = Callable[[History], Iterator[str]]


def lost_writes(history: History) -> Iterator[str]:
    """Yield each committed record that no read_committed consumer returned."""
    seen = _committed(history)
    for transaction in history.transactions.values():
        if transaction.is_committed:
            for append in transaction.appends:
                if append.value not in seen:
                    yield f"{append.value}: acknowledged by a commit, but not in partition {append.partition}"


def duplicates(history: History) -> Iterator[str]:
    """Yield each record that is stored at more than one offset, committed or aborted."""
    places: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for read in history.reads:
        places[read.value].add((read.partition, read.offset))
    for value, found in places.items():
        if len(found) > 1:
            yield f"{value}: at {_listed(found)}"


def aborted_reads(history: History) -> Iterator[str]:
    """Yield each record that was read as committed although its commit failed, or was never called."""
    for value, read in _committed(history).items():
        transaction = _transaction_of(history, value)
        if transaction is None:
            yield f"{value}: read by {read.reader}, but no producer has sent it"
        elif not transaction.may_be_committed:
            reason = "commit failed" if transaction.committing is not None else "commit was never called"
            yield f"{value}: read by {read.reader}, although {reason}"


def early_reads(history: History) -> Iterator[str]:
    """Yield each record that was read as committed before its commit was called."""
    for value, read in _committed(history).items():
        transaction = _transaction_of(history, value)
        if (
            transaction is not None
            and transaction.committing is not None
            and read.at < transaction.committing
        ):
            yield f"{value}: read by {read.reader} {transaction.committing - read.at:.3f} s before the commit"


def torn_transactions(history: History) -> Iterator[str]:
    """Yield each transaction that is visible in part."""
    seen = _committed(history)
    for transaction in history.transactions.values():
        visible = sum(append.value in seen for append in transaction.appends)
        if 0 < visible < len(transaction.appends):
            yield f"{transaction.name}: {visible} of {len(transaction.appends)} records are visible"


def non_monotonic_reads(history: History) -> Iterator[str]:
    """Yield each read with a decreasing offset, each skipped committed record, and each offset with two different records."""
    values: dict[tuple[int, int], str] = {}
    by_reader: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for read in history.reads:
        known = values.setdefault((read.partition, read.offset), read.value)
        if known != read.value:
            yield f"{read.partition}@{read.offset}: {known}, then {read.value} for {read.reader}"
        by_reader[read.reader, read.isolation, read.partition].append(read.offset)
    committed = {(read.partition, read.offset) for read in _committed(history).values()}
    for (reader, _, partition), offsets in by_reader.items():
        for before, after in pairwise(offsets):
            if after <= before:
                yield f"{reader}: offset {after} of partition {partition} after offset {before}"
        seen, first, last = {*offsets}, min(offsets), max(offsets)
        for where, offset in committed:
            if where == partition and first < offset < last and offset not in seen:
                yield f"{reader}: offset {offset} of partition {partition} was skipped"


def order_violations(history: History) -> Iterator[str]:
    """Yield each committed record that is stored before an earlier record of its producer in its partition."""
    last: dict[tuple[int, str, int], tuple[tuple[int, int], str]] = {}
    for read in sorted(_committed(history).values(), key=lambda read: (read.partition, read.offset)):
        transaction = _transaction_of(history, read.value)
        if transaction is not None:
            key = read.partition, transaction.producer, transaction.instance
            position = transaction.number, int(read.value.rpartition("/")[2])
            previous, value = last.get(key, ((-1, -1), ""))
            if position < previous:
                yield f"{read.value}: behind {value} in partition {read.partition}"
            last[key] = position, read.value


def zombies(history: History) -> Iterator[str]:
    """Yield each commit of an instance after a later instance has started, by time and by offset."""
    seen = _committed(history)
    for transaction in history.transactions.values():
        visible = any(append.value in seen for append in transaction.appends)
        if transaction.committing is not None and (visible or transaction.is_committed):
            for (producer, instance), started in history.started.items():
                is_successor = producer == transaction.producer and instance > transaction.instance
                if is_successor and transaction.committing > started:
                    yield f"{transaction.name}: committed although instance {instance} had started"
                    break
    newest: dict[tuple[int, str], int] = {}
    for read in sorted(seen.values(), key=lambda read: (read.partition, read.offset)):
        author = _transaction_of(history, read.value)
        if author is not None:
            key = read.partition, author.producer
            newest[key] = max(author.instance, newest.get(key, 0))
            if author.instance < newest[key]:
                yield f"{read.value}: behind records of instance {newest[key]} in partition {read.partition}"


def hanging_transactions(history: History) -> Iterator[str]:
    """Yield each partition that read_committed consumers cannot read to its end after all timeouts."""
    for partition, (high_watermark, last_stable_offset) in history.ends.items():
        if last_stable_offset < high_watermark:
            yield f"partition {partition}: open from {last_stable_offset}, high watermark {high_watermark}"


CHECKS: Final[dict[str, Check]] = {
    "lost writes": lost_writes,
    "duplicates": duplicates,
    "aborted reads": aborted_reads,
    "early reads": early_reads,
    "torn transactions": torn_transactions,
    "non-monotonic reads": non_monotonic_reads,
    "order violations": order_violations,
    "zombies": zombies,
    "hanging transactions": hanging_transactions,
}


def check(history: History) -> dict[str, list[str]]:
    """Return the anomalies of each kind."""
    return {kind: [*find(history)] for kind, find in CHECKS.items()}


def longest_unavailability(history: History) -> float:
    """Return the longest time between two successful commits, in seconds."""
    commits = sorted(each.ended for each in history.transactions.values() if each.is_committed and each.ended)
    return max((after - before for before, after in pairwise(commits)), default=0.0)


def _committed(history: History) -> dict[str, Read]:
    """Return the first read_committed read of each value."""
    first: dict[str, Read] = {}
    for read in history.reads:
        if read.isolation == COMMITTED and read.at < first.get(read.value, _NEVER).at:
            first[read.value] = read
    return first


def _transaction_of(history: History, value: str) -> Transaction | None:
    return history.transactions.get(value.rpartition("/")[0])


def _listed(places: set[tuple[int, int]]) -> str:
    return ", ".join(f"{partition}@{offset}" for partition, offset in sorted(places))


_NEVER: Final = Read(float("inf"), "", COMMITTED, 0, 0, "")
