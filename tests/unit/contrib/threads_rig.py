"""A topic that threads send to."""

from __future__ import annotations

from aioproducer.testing import ThreadedCluster

TOPIC = "orders"


def values(cluster: ThreadedCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records(TOPIC, 0)]
