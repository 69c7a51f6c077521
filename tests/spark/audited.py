"""The delivery audit of a topic, read back with another client."""

from __future__ import annotations

from aioproducer.audit import Audit, AuditReport, belongs_to, sequence_of
from tests.kafka.readback import Record


def audited(records: list[Record], run: str, expect: int) -> AuditReport:
    """Return what an audit says of *records*, in order of partition and offset."""
    audit = Audit(run, expect=expect)
    for each in records:
        if belongs_to(run, each.headers):
            audit.add(each.partition, each.offset, sequence_of(each.headers))
    return audit.report()
