"""The checker of a load on a real broker: general invariants and the promises of the default settings."""

from __future__ import annotations

from typing import Final

from aioproducer import OutOfOrderSequenceNumber
from tests import checker as everywhere
from tests.checker import Called, Logs
from tests.kafka.load import Load, Sent
from tests.kafka.readback import Record

GRACE_S: Final = 1.0
"""Past the delivery timeout."""


def logs_of(topic: str, log: list[Record]) -> Logs:
    """Return the records that another client reads from *topic*, for the checker."""
    found: dict[tuple[str, int], dict[int, bytes]] = {}
    for each in log:
        found.setdefault((topic, each.partition), {})[each.offset] = each.value or b""
    return {where: [values] for where, values in found.items()}


def check_records(load: Load, log: list[Record]) -> None:
    """Compare the outcomes of the records of *load* with the *log* that another client reads.

    A record before `load.fresh_from` may have been acknowledged and be gone, with a topic that was deleted;
    all else holds for it, too.
    """
    config = load.producer.config
    logs = logs_of(load.topic, log)
    fresh = load.sent[load.fresh_from :]
    called = [*(_may_be_gone(each) for each in load.sent[: load.fresh_from]), *map(_called, fresh)]
    findings = everywhere.check_records(called, logs, idempotent=config.idempotent)
    # of a plain producer's copies the first counts: a batch may be there twice, but not out of its turn
    everywhere.check_order([each.value for each in load.sent], logs, findings)
    latest_s = config.delivery_timeout_ms / 1_000 + GRACE_S
    in_log = {each.value for each in log}
    for sent in load.sent:
        if sent.resolved_at > sent.called_at + latest_s:
            findings.report("resolved in time", sent)
        # a broker with a lowered limit may not recognise a stored batch
        unrecognised = isinstance(sent.error, OutOfOrderSequenceNumber) and sent.value in in_log
        if sent.error and not sent.asked_for and not unrecognised:
            findings.report("nothing fails unasked", sent)
    for sent in fresh:
        if sent.place is not None and sent.place[1] < 0:
            findings.report("the offset is told", sent)
    findings.check()


def _called(sent: Sent) -> Called:
    return Called(sent.value, sent.outcome, str(sent.number))


def _may_be_gone(sent: Sent) -> Called:
    return _called(sent)._replace(outcome=sent.error)
