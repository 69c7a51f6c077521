"""Scores: a comparison of the sent records, the reported outcomes and the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.faults.load import Sent

Log = Sequence[bytes]
"""Values in a partition, in order of offset, without their padding."""


@dataclass(frozen=True, slots=True)
class Score:
    """Score of a client in a scenario. Smaller values are better, except in the last three fields."""

    acknowledged_not_in_log: int
    duplicates: int
    out_of_order: int
    """Number of records whose offset is above the offset of a later record of the partition."""
    failed: int
    failed_but_in_log: int
    """Number of failed records in the log whose error lacks `possibly_persisted`."""
    unresolved: int
    """Number of records without an outcome after delivery timeout and grace period, measured from the return of the
    call."""
    recovery_s: float | None
    """Time from the end of the fault until every partition had an acknowledged record, in seconds; None if a partition
    had none."""
    records: int
    partitions_alive: int
    """Number of partitions that delivered a probe, which is sent after all other outcomes."""
    errors: Mapping[str, int]
    """Number of failed records by error name."""


def score(sent: Sequence[Sent], logs: Sequence[Log], *, healed_at: float, timeout_s: float) -> Score:
    """Return the score of a run whose fault ended at *healed_at* (monotonic clock)."""
    found = [Counter(log) for log in logs]
    load = [each for each in sent if not each.probe]
    failed = [each for each in load if each.error]
    return Score(
        acknowledged_not_in_log=sum(_is_missing(each, logs[each.partition]) for each in _delivered(sent)),
        duplicates=sum(times - 1 for in_partition in found for times in in_partition.values()),
        out_of_order=sum(map(_out_of_order, logs)),
        failed=len(failed),
        failed_but_in_log=sum(
            each.value in found[each.partition] and not each.possibly_persisted for each in failed
        ),
        unresolved=sum(_is_unresolved(each, timeout_s) for each in load),
        recovery_s=_recovery_s(load, len(logs), healed_at),
        records=len(load),
        partitions_alive=len({each.partition for each in _delivered(sent) if each.probe}),
        errors=dict(Counter(each.error.partition(":")[0] for each in failed)),
    )


def _delivered(sent: Iterable[Sent]) -> list[Sent]:
    return [each for each in sent if each.offset is not None]


def _is_missing(sent: Sent, log: Log) -> bool:
    """Return True if the log lacks the record at its reported offset; offset -1 stands for any offset."""
    if sent.offset is None or sent.offset < 0:
        return sent.value not in log
    return not (sent.offset < len(log) and log[sent.offset] == sent.value)


def _out_of_order(log: Log) -> int:
    behind, last = 0, -1
    for value in dict.fromkeys(log):
        number = int(value.split(b"/")[1])
        behind += number < last
        last = max(last, number)
    return behind


def _is_unresolved(sent: Sent, timeout_s: float) -> bool:
    if sent.resolved_at is None:
        return True
    since = sent.called_at if sent.taken_at is None else sent.taken_at
    return sent.resolved_at > since + timeout_s


def _recovery_s(load: Sequence[Sent], partitions: int, healed_at: float) -> float | None:
    firsts: dict[int, float] = {}
    for each in _delivered(load):
        if each.resolved_at is not None and each.resolved_at >= healed_at:
            firsts[each.partition] = min(each.resolved_at, firsts.get(each.partition, each.resolved_at))
    return max(firsts.values()) - healed_at if len(firsts) == partitions else None
