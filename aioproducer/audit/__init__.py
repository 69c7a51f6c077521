"""Audit of a run of records: counts lost, duplicated and out-of-order records in the topic.

    await producer.send("orders", value, headers=stamp("nightly-7", number))  # number: 0, 1, 2, …

    audit = Audit("nightly-7", expect=1_000)
    for record in records:  # by partition and offset
        if belongs_to("nightly-7", record.headers):
            audit.add(partition, record.offset, sequence_of(record.headers))
    print(audit.report())

`aioproducer audit` on the command line reads a topic that way; `aioproducer.spark.audit` does it on Spark.
"""

from __future__ import annotations

from aioproducer.audit.auditing import (
    LANE_HEADER as LANE_HEADER,
    RUN_HEADER as RUN_HEADER,
    SEQUENCE_HEADER as SEQUENCE_HEADER,
    Audit as Audit,
    AuditReport as AuditReport,
    PartitionAudit as PartitionAudit,
    belongs_to as belongs_to,
    lane_of as lane_of,
    sequence_of as sequence_of,
    stamp as stamp,
)

__all__ = [
    "LANE_HEADER",
    "RUN_HEADER",
    "SEQUENCE_HEADER",
    "Audit",
    "AuditReport",
    "PartitionAudit",
    "belongs_to",
    "lane_of",
    "sequence_of",
    "stamp",
]
