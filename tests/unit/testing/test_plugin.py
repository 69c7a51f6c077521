from __future__ import annotations

import subprocess
import sys

import pytest

from aioproducer.testing import ThreadedCluster
from tests.unit.testing.client import Client


def test_a_synchronous_test_gets_a_cluster(kafka_cluster: ThreadedCluster) -> None:
    assert len(kafka_cluster.bootstrap_servers.split(",")) == 1


@pytest.mark.kafka_cluster(2, topics={"orders": 1})
def test_the_marker_takes_the_arguments_of_a_cluster(kafka_cluster: ThreadedCluster) -> None:
    assert len(kafka_cluster.bootstrap_servers.split(",")) == 2
    assert kafka_cluster.records("orders", 0) == []


@pytest.mark.kafka_cluster(topics={"orders": 1})
async def test_an_asynchronous_test_gets_a_cluster_on_another_thread(kafka_cluster: ThreadedCluster) -> None:
    async with await Client.to(kafka_cluster) as client:
        await client.produce()
    assert len(kafka_cluster.records("orders", 0)) == 1


def test_the_plugin_alone_imports_nothing_of_the_cluster() -> None:
    code = (
        "import sys, aioproducer.testing.plugin;"
        "print(*sorted(name for name in sys.modules if name.startswith('aioproducer')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["aioproducer", "aioproducer.testing", "aioproducer.testing.plugin"]
