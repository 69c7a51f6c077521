"""Invariants of every record after any fault, derived only from the calls, their outcomes and the logs.

It knows nothing of batches, sequences or retries, and nothing of the producer's own books. Brokers are believed: they
were stopped, moved, cut off and slow, but said nothing of a record or a sequence that was not so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final, NamedTuple

from aioproducer import ProducerError, RecordMetadata
from aioproducer.errors import (
    BufferFull,
    BufferTimeout,
    DeliveryTimeout,
    MetadataTimeout,
    MetadataUnavailable,
)
from tests.checker import Findings
from tests.scenarios.faults.checker import TICK_S

ACKNOWLEDGED_IN_S: Final = 1.5
"""How soon a record is acknowledged when all is calm, with Kafka's backoffs of up to 1 s."""

TOO_LATE: Final = (DeliveryTimeout, MetadataTimeout, BufferTimeout, BufferFull, MetadataUnavailable)
"""What a record may fail with because something took too long, or would have."""


class Cancelled(Enum):
    """The outcome of a cancelled call: the fate of its record is unknown."""

    CANCELLED = "cancelled"


Outcome = RecordMetadata | ProducerError | ValueError | Cancelled


@dataclass(slots=True, eq=False)
class Call:
    """One record that was to be sent, and its outcome. Times are those of the loop."""

    number: int
    """Counts the records in the order of their calls."""
    how: str
    """The method that was called."""
    topic: str
    partition: int | None
    """None: the producer chooses."""
    value: bytes
    """What it is recognised by, wherever it turns up."""
    called_at: float
    deadline: float
    """When it has to have an outcome."""
    first: int
    """The number of the first record of the same call; its own, but in `send_many`."""
    outcome: Outcome | None = None
    resolved_at: float = inf

    def __str__(self) -> str:
        where = f"{self.topic}-{'any' if self.partition is None else self.partition}"
        return f"#{self.number} {self.how} to {where} at {self.called_at:.3f}, at {self.resolved_at:.3f}: {self.outcome!r}"

    def settle(self, outcome: Outcome, when: float) -> None:
        """Note the outcome; there is only one."""
        assert self.outcome is None, f"resolved twice: {self}, then {outcome!r}"
        self.outcome, self.resolved_at = outcome, when

    @property
    def in_doubt(self) -> bool:
        """True if the record may still be sent after its outcome."""
        if isinstance(self.outcome, ProducerError):
            return self.outcome.possibly_persisted
        return isinstance(self.outcome, Cancelled) or self.outcome is None

    def may_be_behind(self, later: Call) -> bool:
        """True if the record may be stored behind *later*: other calls may append between chunks of a `send_many`."""
        chunked = self.first < self.number and self.first != later.first
        return chunked and later.called_at <= self.resolved_at


class Log(NamedTuple):
    """A partition's log, from one loss of its end to the next."""

    began_at: float
    ended_at: float
    values: Sequence[bytes]
    """By offset; all that was in it before its end was lost, or its topic deleted."""


@dataclass(slots=True)
class Life:
    """A topic, from its creation to its deletion."""

    topic: str
    again: bool
    """Whether there was one of this name before."""
    began_at: float
    ended_at: float = inf
    sizes: list[tuple[float, int]] = field(default_factory=list)
    """How many partitions it had, from when on; never fewer than before."""
    logs: dict[int, list[Log]] = field(default_factory=dict)
    """What was ever in each partition."""

    def partitions_at(self, when: float) -> int:
        """Return the number of partitions; 0 if the topic did not exist."""
        if not self.began_at <= when < self.ended_at:
            return 0
        return max((count for since, count in self.sizes if since <= when), default=0)


class Calm(NamedTuple):
    """A period without faults."""

    began_at: float
    settled_at: float
    """When everything has to go on again that was held up before."""
    ended_at: float


@dataclass(slots=True, kw_only=True)
class History:
    """Input of the model."""

    idempotent: bool
    calls: Sequence[Call]
    lives: Sequence[Life]
    calms: Sequence[Calm] = ()
    may_fail: Collection[type[ProducerError]] = ()
    """The errors that records may fail with because of what brokers have said, beside those of time."""


def check(history: History) -> Findings:
    """Return which promises were broken."""
    findings = Findings()
    by_value = {call.value: call for call in history.calls}
    places = list(_places(history.lives))
    where: dict[bytes, list[_Place]] = {}
    for place in places:
        for value in place.offsets:
            where.setdefault(value, []).append(place)
    for call in history.calls:
        for promise in _broken_to(call, where.get(call.value, ()), history):
            findings.report(promise, call)
    for value in where.keys() - by_value.keys():
        findings.report("nothing is in a log that nobody sent", value)
    for life in history.lives:
        for partition in life.logs:
            for earlier, later in _reordered(life, partition, by_value, history):
                findings.report("order per partition", f"{earlier}, which is behind {later}")
    return findings


class _Place(NamedTuple):
    """A log and the offsets of its records."""

    life: Life
    partition: int
    log: Log
    offsets: Mapping[bytes, Sequence[int]]


def _places(lives: Sequence[Life]) -> Iterator[_Place]:
    for life in lives:
        for partition, logs in life.logs.items():
            for log in logs:
                offsets: dict[bytes, list[int]] = {}
                for offset, value in enumerate(log.values):
                    offsets.setdefault(value, []).append(offset)
                yield _Place(life, partition, log, offsets)


def _broken_to(call: Call, places: Sequence[_Place], history: History) -> Iterator[str]:
    if call.outcome is None:
        yield "every call has an outcome"
        return
    if call.resolved_at > call.deadline + TICK_S:
        yield "resolved by the deadline plus one tick"
    if history.idempotent and any(len(place.offsets[call.value]) > 1 for place in places):
        yield "never twice in one log"
    if any(place.life.topic != call.topic for place in places):
        yield "in the topic that was asked for"
    if call.partition is not None and any(place.partition != call.partition for place in places):
        yield "in the partition that was asked for"
    yield from _broken_by_outcome(call, call.outcome, places, history)
    yield from _broken_in_calm(call, history)


def _broken_by_outcome(
    call: Call, outcome: Outcome, places: Sequence[_Place], history: History
) -> Iterator[str]:
    if isinstance(outcome, RecordMetadata):
        if not any(_is_told_of(call, outcome, place) for place in places):
            yield "acknowledged is in the log, where it was told"
    elif isinstance(outcome, Cancelled):
        if places and not _was_ever_there(call, history.lives):
            yield "cancelled while there is no such partition, it is in no log"
    else:
        if places and not call.in_doubt:
            yield "failed and not possibly_persisted is in no log"
        if not isinstance(outcome, ProducerError):
            if _was_there_all_the_time(call, history.lives):
                yield "a ValueError is for a partition that does not exist"
        elif not isinstance(outcome, (*TOO_LATE, *history.may_fail)):
            yield f"nothing fails with {type(outcome).__name__}"


def _is_told_of(call: Call, told: RecordMetadata, place: _Place) -> bool:
    """True if the record is at its acknowledged offset in a log that existed between the call and the outcome."""
    if told.topic != place.life.topic or told.partition != place.partition:
        return False
    if place.log.ended_at < call.called_at or place.log.began_at > call.resolved_at:
        return False
    offsets = place.offsets[call.value]
    return told.offset in offsets if told.offset >= 0 else bool(offsets)


def _was_there_all_the_time(call: Call, lives: Sequence[Life]) -> bool:
    """True if the partition existed from the call to its outcome; `send_nowait` may use older metadata."""
    if call.partition is None:
        return True
    since = 0.0 if call.how == "send_nowait" else call.called_at
    return any(
        life.topic == call.topic
        and call.partition < life.partitions_at(since)
        and life.ended_at > call.resolved_at
        for life in lives
    )


def _was_ever_there(call: Call, lives: Sequence[Life]) -> bool:
    """True if the partition existed at any time before the outcome."""
    return any(
        life.topic == call.topic
        and life.began_at <= call.resolved_at
        and (call.partition or 0)
        < max((count for since, count in life.sizes if since <= call.resolved_at), default=0)
        for life in lives
    )


def _is_left_behind(call: Call, lives: Sequence[Life]) -> bool:
    """True if the call may wait without success: the recreated topic has fewer partitions than the metadata."""
    before: dict[str, Life] = {}
    for life in lives:
        former, before[life.topic] = before.get(life.topic), life
        if former is None or life.topic != call.topic or life.began_at > call.resolved_at:
            continue
        left, had = life.sizes[0][1], former.sizes[-1][1]
        if left < had and (call.partition is None or call.partition >= left):
            return True
    return False


def _broken_in_calm(call: Call, history: History) -> Iterator[str]:
    for calm in history.calms:
        due_at = max(calm.settled_at, call.called_at + ACKNOWLEDGED_IN_S)
        if due_at > calm.ended_at or call.resolved_at <= calm.began_at:
            continue
        if call.resolved_at > due_at:
            if not _is_left_behind(call, history.lives):
                yield "goes on when all is calm"
            return
        if call.called_at >= calm.settled_at and call.deadline >= due_at:
            exists = any(
                life.topic == call.topic and (call.partition or 0) < life.partitions_at(call.called_at)
                for life in history.lives
            )
            now_or_never = isinstance(call.outcome, BufferFull | MetadataUnavailable)
            if exists and isinstance(call.outcome, ProducerError | ValueError) and not now_or_never:
                yield "acknowledged when all is calm"
                return


class _Amnesia(NamedTuple):
    """A time in which a leader may know nothing of the producer, and takes whatever sequence it sees first.

    It begins when the log loses its end, or a topic of the same name is created again. It ends when a record that was
    called for since is acknowledged: the producer cannot know of it before. Order may be lost for what was under way
    meanwhile, from the call to the outcome, and for ever if the outcome is not known.
    """

    began_at: float
    ended_at: float

    def excuses(self, call: Call) -> bool:
        """True if *call* was pending during this period."""
        return call.called_at <= self.ended_at and (call.in_doubt or self.began_at <= call.resolved_at)


def _amnesias(life: Life, partition: int, calls: Sequence[Call]) -> Iterator[_Amnesia]:
    moments = [log.ended_at for log in life.logs[partition][:-1]]
    if life.again:
        moments.append(life.began_at)
    for moment in moments:
        acknowledged = (
            call.resolved_at
            for call in calls
            if isinstance(call.outcome, RecordMetadata)
            and (call.outcome.topic, call.outcome.partition) == (life.topic, partition)
            and call.called_at >= moment
        )
        yield _Amnesia(moment, min(acknowledged, default=inf))


def _reordered(
    life: Life, partition: int, by_value: Mapping[bytes, Call], history: History
) -> Iterator[tuple[Call, Call]]:
    """Yield each record that was overtaken, with a record that overtook it, among first occurrences.

    Without idempotence, a stuck broker may also append expired records late.
    """
    amnesias = list(_amnesias(life, partition, history.calls))
    seen: set[bytes] = set()
    before: list[Call] = []
    for log in life.logs[partition]:
        for value in log.values:
            call = by_value.get(value)
            if call is None or value in seen:
                continue
            seen.add(value)
            if any(each.excuses(call) for each in amnesias) or (call.in_doubt and not history.idempotent):
                continue
            overtook = (each for each in before if each.number > call.number and not call.may_be_behind(each))
            if (example := next(overtook, None)) is not None:
                yield call, example
            before.append(call)
