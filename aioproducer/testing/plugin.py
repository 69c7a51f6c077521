"""The pytest plugin: the fixture `kafka_cluster`.

    def test_orders_are_sent(kafka_cluster):
        place_order(servers=kafka_cluster.bootstrap_servers)
        [record] = kafka_cluster.records("orders", 0)

    @pytest.mark.kafka_cluster(brokers=3, topics={"orders": 6})
    async def test_...(kafka_cluster): ...

The cluster runs on a separate thread, so the fixture serves synchronous tests, pytest-asyncio and anyio. pytest imports
this module at every start, so other modules are imported when a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from aioproducer.testing.threaded import ThreadedCluster


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", "kafka_cluster(...): arguments for the cluster of the fixture kafka_cluster"
    )


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[ThreadedCluster]:
    """Provide a Kafka cluster for one test; the marker `kafka_cluster` takes the arguments of `Cluster`."""
    from aioproducer.testing.threaded import ThreadedCluster  # noqa: PLC0415 - imported when a test uses the fixture

    marker = request.node.get_closest_marker("kafka_cluster")
    with ThreadedCluster(*(marker.args if marker else ()), **(marker.kwargs if marker else {})) as cluster:
        yield cluster
