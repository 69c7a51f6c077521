"""The delivery audit of a topic, read back with another client."""

from __future__ import annotations

import time
from typing import Final

from aioproducer.audit import Audit, AuditReport, belongs_to, sequence_of
from tests.kafka.readback import Record, read_with_librdkafka

MARKERS_S: Final = 10
"""Brokers answer a commit, and then write its markers: readers may see it some moments later. No transaction in these
tests runs out of time so soon, so a reader does not wait for one that somebody has left open."""


def audited(records: list[Record], run: str, expect: int) -> AuditReport:
    """Return what an audit says of *records*, in order of partition and offset."""
    audit = Audit(run, expect=expect)
    for each in records:
        if belongs_to(run, each.headers):
            audit.add(each.partition, each.offset, sequence_of(each.headers))
    return audit.report()


def audited_when_committed(bootstrap_servers: str, topic: str, run: str, expect: int) -> AuditReport:
    """Return what an audit says of what readers of committed records see, as soon as nothing is lost."""
    deadline = time.monotonic() + MARKERS_S
    while True:
        records = read_with_librdkafka(bootstrap_servers, topic, isolation_level="read_committed")
        report = audited(records, run, expect=expect)
        if not report.lost or time.monotonic() > deadline:
            return report
