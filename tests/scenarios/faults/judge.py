"""The judge: what has to be true after every fault, from what was called, what is in the log, and what was on the wire."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from aioproducer import BrokerError, ProducerError
from aioproducer.records.decode import DecodedRecord
from tests.scenarios.faults.load import Load, Sent
from tests.scenarios.faults.wire import Wire

TICK_S: Final = 0.1
"""Deadlines are kept to this grain."""

REFUSED_BEFORE_APPEND: Final = frozenset({2, 10, 17, 18, 19, 29, 31, 32, 35, 43, 45, 47, 76, 87})
"""Error codes by which a broker says that the batch is surely not in the log."""

MOST_ATTEMPTS_PER_S: Final = 25
"""With backoffs of 50 ms and more, less a fifth for jitter …"""
MOST_ATTEMPTS_AT_ONCE: Final = 10
"""… of which there are none where a batch is taken apart."""

MOST_SHOWN: Final = 5

Log = Sequence[DecodedRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the judge is to know."""

    load: Load
    wire: Wire
    logs: Mapping[int, Sequence[Log]]
    """What was ever in the log of each partition: more than one if the topic was deleted and made anew."""
    idempotent: bool
    acks: str | int
    delivery_timeout_s: float
    ordered: bool
    """Whether order can be kept at all."""
    may_fail: tuple[type[ProducerError], ...]
    """The errors that records may fail with in spite of a correct producer."""
    unsent_may_fail: bool
    """Whether such an error may also strike what was not part of a refused request."""


@dataclass(slots=True)
class Verdict:
    """Every broken promise, with some of the records that it was broken to."""

    broken: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def hold_against(self, promise: str, witness: object) -> None:
        """Note that *promise* was broken."""
        self.broken[promise].append(str(witness))

    def __str__(self) -> str:
        """Return a line per promise."""
        return "\n".join(
            f"{promise}: {len(witnesses)}, e.g. {'; '.join(witnesses[:MOST_SHOWN])}"
            for promise, witnesses in self.broken.items()
        )


def judge(case: Case) -> Verdict:
    """Return which promises about records were broken."""
    verdict = Verdict()
    places = {partition: [_places(log) for log in logs] for partition, logs in case.logs.items()}
    for sent in case.load:
        offsets = [log[sent.value] for log in places[sent.partition] if sent.value in log]
        for promise in _broken_to(sent, offsets, case):
            verdict.hold_against(promise, f"{sent} ({sent.outcome!r})")
    for partition, logs in case.logs.items() if case.ordered else ():
        seen = set() if case.idempotent else _in_doubt(case.load.sent[partition])
        for log in logs:
            for earlier, later in _reordered(log, seen):
                verdict.hold_against("order per partition", f"{later} after {earlier} in {partition}")
    return verdict


def _broken_to(sent: Sent, offsets: Sequence[Sequence[int]], case: Case) -> Iterator[str]:
    if sent.outcome is None:
        yield "every Future is resolved"
        return
    if sent.resolved_at > sent.called_at + case.delivery_timeout_s + TICK_S:
        yield "resolved by the deadline plus one tick"
    attempts = len(case.wire.attempts(sent.value))
    if attempts > MOST_ATTEMPTS_AT_ONCE + MOST_ATTEMPTS_PER_S * (sent.resolved_at - sent.called_at):
        yield "retries are paced"
    if case.idempotent and max(map(len, offsets), default=0) > 1:
        yield "never twice in the log"
    if sent.delivered is not None:
        if case.acks == 0:
            return
        if not offsets:
            yield "acknowledged is in the log"
        elif sent.delivered.offset >= 0 and not any(sent.delivered.offset in each for each in offsets):
            yield "at the offset that was told"
    if sent.error is not None:
        yield from _broken_by_failure(sent, sent.error, bool(offsets), case)


def _broken_by_failure(sent: Sent, error: ProducerError, in_log: bool, case: Case) -> Iterator[str]:
    attempts = case.wire.attempts(sent.value)
    codes = [each.answer_by(sent.resolved_at) for each in attempts]
    if in_log and not error.possibly_persisted:
        yield "failed and not possibly_persisted is not in the log"
    if error.possibly_persisted and not attempts:
        yield "never flagged if it was never written"
    elif error.possibly_persisted and REFUSED_BEFORE_APPEND.issuperset(codes):
        yield "never flagged if always definitely refused"
    if not isinstance(error, case.may_fail):
        yield f"nothing fails here with {type(error).__name__}"
    elif isinstance(error, BrokerError) and not case.unsent_may_fail and error.code not in codes:
        yield "no collateral: only what was refused fails"
    refusals = [each for each in attempts if isinstance(error, BrokerError) and each.code == error.code]
    if error.possibly_persisted or not all(each.refused_values for each in refusals):
        return  # such a batch is never taken apart, or there was nothing to tell which record was to blame
    if refusals and not any(sent.value in each.refused_values for each in refusals):
        yield "no collateral: only the records named fail"


def _places(log: Log) -> dict[bytes, list[int]]:
    places: dict[bytes, list[int]] = defaultdict(list)
    for record in log:
        places[record.value or b""].append(record.offset)
    return places


def _in_doubt(sent: Sequence[Sent]) -> set[bytes]:
    """Return the records that were given up while a broker might still append them.

    A broker that was frozen goes on with the requests of connections that are long closed. Without idempotence it
    cannot know that other records have overtaken them.
    """
    return {each.value for each in sent if each.error is not None and each.error.possibly_persisted}


def _reordered(log: Log, seen: set[bytes]) -> Iterator[tuple[int, int]]:
    """Yield neighbours in the wrong order, of those records that are *seen* for the first time.

    What was in the log of a topic that is gone has been seen: a broker that was frozen may append it to the new one.
    """
    last = -1
    for record in log:
        value = record.value or b""
        if value in seen:
            continue
        seen.add(value)
        number = int(value.split(b"/")[1])
        if number < last:
            yield last, number
        last = number
