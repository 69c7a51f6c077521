"""The checker: each record once, in the order of the calls, and where it was acknowledged.

Its only input is the outcomes of the calls and the logs. Tests with stronger promises report violations in
the same findings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from aioproducer import ProducerError, RecordMetadata

MOST_SHOWN: Final = 5

Log: TypeAlias = Mapping[int, bytes]
"""The values in a partition, by offset."""
Logs: TypeAlias = Mapping[tuple[str, int], Sequence[Log]]
"""What was ever in each partition of each topic: more than one if the topic was deleted and made anew."""


class Called(NamedTuple):
    """A record that a call sent; its value is unique."""

    value: bytes
    outcome: RecordMetadata | ProducerError | None
    """None: nobody was told."""
    shown: str = ""
    """How it is called in a findings."""

    def __str__(self) -> str:
        return f"{self.shown or self.value[:12]!r} ({self.outcome!r})"


@dataclass(slots=True)
class Findings:
    """Every broken promise, with some of the records that it was broken to."""

    broken: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def report(self, promise: str, example: object) -> None:
        """Note that *promise* was broken."""
        self.broken[promise].append(str(example))

    def check(self) -> None:
        """Fail if a promise was broken."""
        assert not self.broken, str(self)

    def __str__(self) -> str:
        """Return a line per promise."""
        return "\n".join(
            f"{promise}: {len(examples)}, e.g. {'; '.join(examples[:MOST_SHOWN])}"
            for promise, examples in self.broken.items()
        )


def log_of(values: Iterable[bytes | None]) -> Log:
    """Return a log that has *values* from its beginning."""
    return {offset: value or b"" for offset, value in enumerate(values)}


def check_records(
    called: Iterable[Called], logs: Logs, *, idempotent: bool, acknowledged: bool = True
) -> Findings:
    """Compare the outcomes of the calls with *logs*.

    Not *acknowledged*: a producer with acks=0 has told of every record that it was delivered, and knows of none.
    """
    findings = Findings()
    places: dict[bytes, list[tuple[str, int, int]]] = defaultdict(list)
    for (topic, partition), lives in logs.items():
        for log in lives:
            copies: dict[bytes, int] = defaultdict(int)
            for offset, value in log.items():
                places[value].append((topic, partition, offset))
                copies[value] += 1
            for value, count in copies.items() if idempotent else ():
                if count > 1:
                    findings.report("never twice in the log", value[:12])
    sent = set()
    for each in called:
        sent.add(each.value)
        for promise in _broken_to(each, places.get(each.value, ()), acknowledged):
            findings.report(promise, each)
    for value in places.keys() - sent:
        findings.report("nothing is in the log that nobody sent", value[:12])
    return findings


def _broken_to(each: Called, places: Sequence[tuple[str, int, int]], acknowledged: bool) -> Iterator[str]:
    match each.outcome:
        case RecordMetadata(topic=topic, partition=partition, offset=offset) if acknowledged:
            if not any(place[:2] == (topic, partition) for place in places):
                yield "acknowledged is in the log"
            elif offset >= 0 and (topic, partition, offset) not in places:
                yield "at the offset that was told"
        case ProducerError(possibly_persisted=False) if places:
            yield "failed and not possibly_persisted is not in the log"


def check_order(
    order: Iterable[bytes], logs: Logs, findings: Findings, *, excused: Collection[bytes] = ()
) -> None:
    """Report a finding if first copies are not in *order*, which is that of the calls.

    What was in the log of a topic that is gone has been seen: a broker that was frozen may append it to the new one.
    Nor does it count where those *excused* are.
    """
    rank = {value: number for number, value in enumerate(order)}
    for where, lives in logs.items():
        seen = set(excused)
        for log in lives:
            before = b""
            for value in log.values():
                if value in seen or value not in rank:
                    continue
                seen.add(value)
                if before and rank[value] < rank[before]:
                    findings.report("order per partition", f"{value[:12]!r} after {before[:12]!r} in {where}")
                before = value
