from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator

import confluent_kafka
import pytest

from aioproducer.errors import NotEnoughReplicas
from aioproducer.testing import Cluster, Refused, ThreadedCluster
from tests.unit.testing.batches import batch
from tests.unit.testing.client import Client


@pytest.fixture
def cluster() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(2, {"orders": 3}, message_max_bytes=1000) as cluster:
        yield cluster


def test_synchronous_test_produces_and_looks(cluster: ThreadedCluster) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("orders", b"value", partition=0)
    assert producer.flush(10) == 0
    [record] = cluster.wait_for_records("orders", 0, 1)
    assert record.value == b"value"
    assert cluster.records("orders", 0) == [record]
    assert len(cluster.batches("orders", 0)) == 1
    assert cluster.produce_requests("orders", 0) == [1]
    assert cluster.request_count("produce", node=2) == 0


async def test_threaded_cluster_serves_another_loop(cluster: ThreadedCluster) -> None:
    async with await Client.to(cluster) as client:
        assert (await client.produce(batch())).base_offset == 0
    assert len(cluster.records("orders", 0)) == 1


async def test_script_works_across_threads(cluster: ThreadedCluster) -> None:
    rule = cluster.on("produce", topic="orders", partition=0, node=1, times=1, after=1).answer(
        NotEnoughReplicas
    )
    async with await Client.to(cluster) as client:
        assert [(await client.produce()).error_code for _ in range(3)] == [0, NotEnoughReplicas.code, 0]
    assert rule.hits == 1


async def test_rule_is_awaited_on_any_event_loop(cluster: ThreadedCluster) -> None:
    rule = cluster.on("produce", times=2).delay(0)

    def elsewhere() -> None:
        asyncio.run(rule.happened(2))

    waiting = [asyncio.create_task(rule.happened(2)), asyncio.create_task(asyncio.to_thread(elsewhere))]
    async with await Client.to(cluster) as client:
        await client.produce()
        assert not waiting[0].done()
        await client.produce()
    async with asyncio.timeout(10):
        await asyncio.gather(*waiting)
        await rule.happened()
    assert rule._waiting == set()


async def test_closed_loop_of_waiting_task_is_ignored(cluster: ThreadedCluster) -> None:
    rule = cluster.on("produce").delay(0)
    gone = asyncio.new_event_loop()
    rule._waiting.add((gone, asyncio.Event()))
    gone.close()
    async with await Client.to(cluster) as client:
        assert (await client.produce()).error_code == 0


async def test_topics_and_nodes_are_managed_across_threads(cluster: ThreadedCluster) -> None:
    cluster.create_topic("new", 1, log_append_time=True, compacted=True, message_max_bytes=5)
    cluster.add_partitions("new", 2)
    cluster.delete_topic("new")
    with pytest.raises(Refused):
        cluster.records("new", 0)
    cluster.move_leader("orders", 0, to_broker=2)
    assert cluster.lose_end("orders", 0, 1, to_broker=1) == []
    cluster.stop_broker(1, failover=True)
    with pytest.raises(OSError, match=r"refused|failed|nothing listens"):
        await Client.to(cluster, 1)
    cluster.start_broker(1)
    cluster.freeze_broker(1)
    cluster.thaw_broker(1)
    async with await Client.to(cluster, 1) as client:
        await client.produce()
        cluster.disconnect(1)
        assert await client.is_closed()


def test_waiting_for_records_ends(cluster: ThreadedCluster) -> None:
    with pytest.raises(TimeoutError):
        cluster.wait_for_records("orders", 0, 1, timeout_s=0.01)


def test_threaded_cluster_ends_its_thread() -> None:
    before = threading.active_count()
    with ThreadedCluster():
        assert threading.active_count() > before
    assert threading.active_count() == before


def test_startup_error_is_raised_in_caller() -> None:
    before = threading.active_count()
    with ThreadedCluster() as cluster:
        port = int(cluster.bootstrap_servers.split(":")[1])
        with pytest.raises(OSError, match=str(port)), ThreadedCluster(port=port):
            pass
    assert threading.active_count() == before


def public(cls: type) -> dict[str, list[str]]:
    return {
        name: list(inspect.signature(member).parameters)
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


def test_threaded_cluster_has_methods_of_cluster() -> None:
    threaded = public(ThreadedCluster)
    threaded["wait_for_records"].remove("timeout_s")
    assert threaded == public(Cluster)
