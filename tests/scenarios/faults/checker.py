"""The checker: invariants after every fault, derived from the calls, the logs and the traffic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import nextafter
from typing import Final

from aioproducer import BrokerError, DeliveryTimeout, ProducerError
from tests import checker as everywhere
from tests.checker import Called, Findings, Logs
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Input of the checker."""

    load: Load
    wire: Wire
    logs: Logs
    idempotent: bool
    acks: str | int
    delivery_timeout_s: float
    ordered: bool
    """Whether order can be kept at all."""
    may_fail: tuple[type[ProducerError], ...]
    """The errors that records may fail with in spite of a correct producer."""
    unsent_may_fail: bool
    """Whether such an error may also strike what was not part of a refused request."""


def check_records(case: Case) -> Findings:
    """Return which promises about records were broken."""
    called = [Called(each.value, each.outcome, str(each)) for each in case.load]
    findings = everywhere.check_records(
        called, case.logs, idempotent=case.idempotent, acknowledged=case.acks != 0
    )
    for sent in case.load:
        for promise in _broken_to(sent, case):
            findings.report(promise, f"{sent} ({sent.outcome!r})")
    if case.ordered:
        excused = () if case.idempotent else _in_doubt(case.load)
        everywhere.check_order([each.value for each in called], case.logs, findings, excused=excused)
    return findings


def _broken_to(sent: Sent, case: Case) -> Iterator[str]:
    if sent.outcome is None:
        yield "every Future is resolved"
        return
    if sent.resolved_at > sent.called_at + case.delivery_timeout_s + TICK_S:
        yield "resolved by the deadline plus one tick"
    # A batch without the records that its answer has named is sent again at once (KIP-467).
    attempts = sum(not each.refused_values for each in case.wire.attempts(sent.value))
    if attempts > MOST_ATTEMPTS_AT_ONCE + MOST_ATTEMPTS_PER_S * (sent.resolved_at - sent.called_at):
        yield "retries are paced"
    if sent.error is not None:
        yield from _broken_by_failure(sent, sent.error, case)


def _broken_by_failure(sent: Sent, error: ProducerError, case: Case) -> Iterator[str]:
    attempts = case.wire.attempts(sent.value)
    codes = [each.answer_by(sent.resolved_at) for each in attempts]
    # An answer that comes in the very moment of a deadline may come behind it.
    known_by = nextafter(sent.resolved_at, 0) if isinstance(error, DeliveryTimeout) else sent.resolved_at
    known = [each.answer_by(known_by) for each in attempts]
    if error.possibly_persisted and not attempts:
        yield "never flagged if it was never written"
    elif error.possibly_persisted and REFUSED_BEFORE_APPEND.issuperset(known):
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


def _in_doubt(sent: Iterable[Sent]) -> set[bytes]:
    """Return the records that were given up while a broker might still append them.

    A frozen broker continues with the requests of connections that are long closed. Without idempotence it
    cannot know that other records have overtaken them.
    """
    return {each.value for each in sent if each.error is not None and each.error.possibly_persisted}
