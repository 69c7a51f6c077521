"""The figures: from what a client was asked, what it said, and what is in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.faults.load import Sent

Log = Sequence[bytes]
"""The values in a partition, in order of offset, without what fills them up."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a client made of a fault. All figures but the last three are better the smaller they are."""

    acknowledged_not_in_log: int
    duplicates: int
    out_of_order: int
    """Records behind a later one of their partition, each counted once."""
    failed: int
    failed_but_in_log: int
    """Those of them that are in the log, and the error does not say that they may be."""
    unresolved: int
    """Records without an outcome some time after the delivery timeout, counted from when the client took them."""
    recovery_s: float | None
    """How soon after the fault every partition had a record acknowledged; None: one never had."""
    records: int
    partitions_alive: int
    """In how many of them a record was delivered that was sent after everything else was settled."""
    errors: Mapping[str, int]
    """What records failed with."""


def score(sent: Sequence[Sent], logs: Sequence[Log], *, healed_at: float, patience_s: float) -> Score:
    """Return the figures of a run in which the fault was over at *healed_at*."""
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
        unresolved=sum(_is_unresolved(each, patience_s) for each in load),
        recovery_s=_recovery_s(load, len(logs), healed_at),
        records=len(load),
        partitions_alive=len({each.partition for each in _delivered(sent) if each.probe}),
        errors=dict(Counter(each.error.partition(":")[0] for each in failed)),
    )


def _delivered(sent: Iterable[Sent]) -> list[Sent]:
    return [each for each in sent if each.offset is not None]


def _is_missing(sent: Sent, log: Log) -> bool:
    """Whether it is not where the client says; -1 is anywhere."""
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


def _is_unresolved(sent: Sent, patience_s: float) -> bool:
    if sent.resolved_at is None:
        return True
    since = sent.called_at if sent.taken_at is None else sent.taken_at
    return sent.resolved_at > since + patience_s


def _recovery_s(load: Sequence[Sent], partitions: int, healed_at: float) -> float | None:
    firsts: dict[int, float] = {}
    for each in _delivered(load):
        if each.resolved_at is not None and each.resolved_at >= healed_at:
            firsts[each.partition] = min(each.resolved_at, firsts.get(each.partition, each.resolved_at))
    return max(firsts.values()) - healed_at if len(firsts) == partitions else None
