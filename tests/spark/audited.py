"""The delivery audit of a topic, read back with another client."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from aioproducer.audit import Audit, AuditReport, belongs_to, sequence_of
from tests.kafka.readback import Record, stream_with_librdkafka

MARKERS_S: Final = 10
"""Brokers answer a commit, and then write its markers: readers may see it some moments later. No transaction in these
tests runs out of time so soon, so a reader does not wait for one that somebody has left open."""


def audited(records: Iterable[Record], run: str, expect: int) -> AuditReport:
    """Return the audit's report on *records*, in order of partition and offset."""
    audit = Audit(run, expect=expect)
    for each in records:
        if belongs_to(run, each.headers):
            audit.add(each.partition, each.offset, sequence_of(each.headers))
    return audit.report()


def audited_when_committed(
    bootstrap_servers: str, topic: str, run: str, expect: int, *, timeout_s: float = 30
) -> AuditReport:
    """Return the audit's report on the committed records, as soon as nothing is lost; a reading takes *timeout_s* at most."""
    deadline = time.monotonic() + MARKERS_S
    while True:
        records = stream_with_librdkafka(
            bootstrap_servers, topic, isolation_level="read_committed", timeout_s=timeout_s
        )
        report = audited(records, run, expect=expect)
        if not report.lost or time.monotonic() > deadline:
            return report
