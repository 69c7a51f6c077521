"""An in-process Kafka cluster for tests, with faults on demand and virtual time.

    async with Cluster(brokers=2, topics={"orders": 3}) as cluster: ...

`Cluster` runs on the running event loop, `ThreadedCluster` on a separate thread. The pytest plugin has the fixture
`kafka_cluster`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioproducer._core.records.decode import DecodedBatch as DecodedBatch, DecodedRecord as DecodedRecord
    from aioproducer.testing.cluster import Cluster as Cluster
    from aioproducer.testing.faults import Refused as Refused, Rule as Rule
    from aioproducer.testing.state import CommittedOffset as CommittedOffset
    from aioproducer.testing.telemetry_receiver import (
        MetricsPushed as MetricsPushed,
        PushedMetric as PushedMetric,
    )
    from aioproducer.testing.threaded import ThreadedCluster as ThreadedCluster
    from aioproducer.testing.virtual_time import (
        Deadlock as Deadlock,
        in_virtual_time as in_virtual_time,
    )

_MODULES = {
    "Cluster": "aioproducer.testing.cluster",
    "CommittedOffset": "aioproducer.testing.state",
    "Deadlock": "aioproducer.testing.virtual_time",
    "DecodedBatch": "aioproducer._core.records.decode",
    "DecodedRecord": "aioproducer._core.records.decode",
    "MetricsPushed": "aioproducer.testing.telemetry_receiver",
    "PushedMetric": "aioproducer.testing.telemetry_receiver",
    "Refused": "aioproducer.testing.faults",
    "Rule": "aioproducer.testing.faults",
    "ThreadedCluster": "aioproducer.testing.threaded",
    "in_virtual_time": "aioproducer.testing.virtual_time",
}


def __getattr__(name: str) -> Any:
    """Import public names on first use (PEP 562), because pytest imports this package at every start."""
    if name == "__all__":
        return list(_MODULES)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
