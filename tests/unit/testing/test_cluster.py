from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from aioproducer._core.protocol.client import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from aioproducer._core.protocol.metadata import ApiVersionsRequest, MetadataRequest
from aioproducer._core.records.compression import Codec
from aioproducer._core.telemetry_session import Kind, Point, encode
from aioproducer.errors import InvalidPartitions, TopicAlreadyExists, UnknownTopicOrPartition
from aioproducer.testing import Cluster, MetricsPushed, Refused, ThreadedCluster, in_virtual_time
from tests.cases import for_each
from tests.unit.testing.batches import batch
from tests.unit.testing.client import Client, metadata_request


async def leaders(client: Client, topic: str = "orders") -> list[int]:
    [described] = (await client.ask(metadata_request(topic))).topics
    return [partition.leader_id for partition in described.partitions]


async def test_leaders_are_spread_over_the_nodes() -> None:
    async with Cluster(3, {"orders": 5}, transport="memory") as cluster, await Client.to(cluster) as client:
        assert await leaders(client) == [1, 2, 3, 1, 2]


@for_each(
    ("arguments", "error", "told"),
    [
        ({"brokers": 0}, ValueError, "at least one broker, not 0"),
        ({"brokers": "3"}, TypeError, "brokers must be an int, not '3'"),
        ({"topics": ["orders"]}, TypeError, r"a number of partitions, such as .*, not \['orders'\]"),
        ({"topics": {"orders": "3"}}, TypeError, "partitions of 'orders' must be an int, not '3'"),
    ],
)
def test_illegal_cluster_arguments_are_refused(arguments: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        Cluster(**arguments)


async def test_nodes_have_distinct_loopback_sockets() -> None:
    async with Cluster(2) as cluster:
        addresses = cluster.bootstrap_servers.split(",")
        assert len(set(addresses)) == 2
        assert all(address.startswith("127.0.0.1:") for address in addresses)
        for node_id in (1, 2):
            async with await Client.to(cluster, node_id) as client:
                await client.ask(MetadataRequest(topics=[]))


async def test_port_can_be_chosen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    async with Cluster(port=port) as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{port}"


def taken_behind_a_free_one() -> socket.socket:
    """Return a socket with a port of its own; the port before that is free."""
    while True:
        sock = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", sock.getsockname()[1] - 1)).close()
        except OSError:
            sock.close()
        else:
            return sock


async def test_port_that_is_taken_leaves_nothing_open() -> None:
    with taken_behind_a_free_one() as sock:
        port = sock.getsockname()[1]
        with pytest.raises(OSError, match=str(port)):
            async with Cluster(2, port=port - 1):
                pass


async def test_memory_clusters_are_separate() -> None:
    async with (
        Cluster(topics={"orders": 1}, transport="memory") as one,
        Cluster(topics={"orders": 1}, transport="memory") as two,
        await Client.to(one) as client,
    ):
        await client.produce()
        assert one.bootstrap_servers != two.bootstrap_servers
        assert (len(one.records("orders", 0)), len(two.records("orders", 0))) == (1, 0)


async def test_records_returns_the_log(cluster: Cluster, client: Client) -> None:
    await client.produce(batch(b"a", b"b", keys=[b"k", None], timestamps=[5, 6]))
    first, second = cluster.records("orders", 0)
    assert first == (0, 5, b"k", b"a", ())
    assert (second.offset, second.key, second.value) == (1, None, b"b")
    assert cluster.records("orders", 1) == []


async def test_batches_returns_headers(cluster: Cluster, client: Client) -> None:
    await client.produce(batch(codec=Codec.LZ4, producer_id=4, epoch=0, sequence=7))
    [stored] = cluster.batches("orders", 0)
    assert (stored.codec, stored.producer_id, stored.base_sequence) == (Codec.LZ4, 4, 7)


@pytest.mark.parametrize(("topic", "partition"), [("unheard-of", 0), ("orders", 3), ("orders", -1)])
async def test_records_of_missing_partition_are_an_error(
    cluster: Cluster, topic: str, partition: int
) -> None:
    with pytest.raises(Refused) as refused:
        cluster.records(topic, partition)
    assert refused.value.code == UnknownTopicOrPartition.code


async def test_wait_for_records_returns_records(cluster: Cluster, client: Client) -> None:
    waiting = asyncio.create_task(cluster.wait_for_records("orders", 0, 3))
    await client.produce(batch(b"a", b"b"))
    assert not waiting.done()
    await client.produce()
    assert len(await waiting) == 3
    assert len(await cluster.wait_for_records("orders", 0, 1)) == 3


async def test_produce_requests_returns_nodes(cluster: Cluster, client: Client) -> None:
    await client.produce()
    cluster.move_leader("orders", 0, to_broker=2)
    await client.produce()
    async with await Client.to(cluster, 2) as other:
        await other.produce()
    assert cluster.produce_requests("orders", 0) == [1, 1, 2]
    assert cluster.produce_requests("orders", 1) == []


async def test_requests_are_counted_by_kind_and_node(cluster: Cluster, client: Client) -> None:
    await client.produce()
    for _ in range(2):
        await client.ask(MetadataRequest(topics=[]))
    async with await Client.to(cluster, 2) as other:
        await other.ask(MetadataRequest(topics=[]))
    assert cluster.request_count("metadata") == 3
    assert cluster.request_count("metadata", node=2) == 1
    assert cluster.request_count("produce") == 1
    assert cluster.request_count("fetch") == 0


async def test_unknown_kind_of_request_is_an_error(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="'prodcue' is not a kind of request"):
        cluster.on("prodcue")
    with pytest.raises(ValueError, match="list_offsets"):
        cluster.request_count("offsets")


async def test_topics_are_created_extended_and_deleted(cluster: Cluster, client: Client) -> None:
    cluster.create_topic("new", 2)
    assert await leaders(client, "new") == [1, 2]
    cluster.add_partitions("new", 4)
    assert await leaders(client, "new") == [1, 2, 1, 2]
    cluster.delete_topic("new")
    [gone] = (await client.ask(metadata_request("new"))).topics
    assert gone.error_code == UnknownTopicOrPartition.code


async def test_topics_are_created_as_brokers_allow_it(cluster: Cluster) -> None:
    with pytest.raises(Refused, match="exists already") as refused:
        cluster.create_topic("orders")
    assert refused.value.code == TopicAlreadyExists.code
    with pytest.raises(Refused, match="3 partitions already") as refused:
        cluster.add_partitions("orders", 3)
    assert refused.value.code == InvalidPartitions.code
    with pytest.raises(Refused, match="no topic"):
        cluster.delete_topic("unheard-of")


@pytest.mark.parametrize("method", ["freeze_broker", "thaw_broker", "disconnect"])
async def test_unknown_node_is_an_error(cluster: Cluster, method: str) -> None:
    with pytest.raises(ValueError, match="no broker 3"):
        getattr(cluster, method)(3)
    with pytest.raises(ValueError, match="no broker 3"):
        cluster.move_leader("orders", 0, to_broker=3)
    with pytest.raises(ValueError, match="no broker 3"):
        cluster.lose_end("orders", 0, 1, to_broker=3)


async def test_partition_has_no_leader_without_failover(cluster: Cluster, client: Client) -> None:
    await cluster.stop_broker(2)
    assert await leaders(client) == [1, -1, 1]
    await cluster.start_broker(2)
    assert await leaders(client) == [1, 2, 1]


async def test_failover_moves_the_leader() -> None:
    async with Cluster(3, {"orders": 6}, transport="memory") as cluster, await Client.to(cluster) as client:
        await cluster.stop_broker(2, failover=True)
        assert await leaders(client) == [1, 1, 3, 1, 3, 3]
        await cluster.start_broker(2)
        assert await leaders(client) == [1, 1, 3, 1, 3, 3]


async def test_failover_of_last_node_has_no_successor() -> None:
    async with Cluster(topics={"orders": 1}, transport="memory") as cluster:
        await cluster.stop_broker(1, failover=True)
        await cluster.start_broker(1)
        async with await Client.to(cluster) as client:
            assert await leaders(client) == [1]


async def test_lose_end_increments_leader_epoch(cluster: Cluster, client: Client) -> None:
    for value in (b"a", b"b", b"c"):
        await client.produce(batch(value))
    lost = cluster.lose_end("orders", 0, 2)
    assert [(record.offset, record.value) for record in lost] == [(1, b"b"), (2, b"c")]
    assert [record.value for record in cluster.records("orders", 0)] == [b"a"]
    [described] = (await client.ask(metadata_request("orders"))).topics
    assert [(each.leader_id, each.leader_epoch) for each in described.partitions] == [(1, 1), (2, 0), (1, 0)]
    assert (await client.produce()).base_offset == 1


async def test_lose_end_may_move_the_leader(cluster: Cluster, client: Client) -> None:
    await client.produce()
    cluster.lose_end("orders", 0, 1, to_broker=2)
    assert await leaders(client) == [2, 2, 1]


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (("orders", 0, 0), ValueError, "one record or more, not 0"),
        (("orders", 0, "1"), TypeError, "records must be an int, not '1'"),
        (("orders", 3, 1), Refused, "no partition 3"),
    ],
)
async def test_illegal_lose_end_is_an_error(
    cluster: Cluster, arguments: Any, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        cluster.lose_end(*arguments)


async def test_leaving_closes_everything_even_after_an_error() -> None:
    cluster = Cluster(2)
    with pytest.raises(LookupError):
        await use_and_fail(cluster)
    with pytest.raises(OSError, match=r"refused|failed|nothing listens"):
        await Client.to(cluster)


async def use_and_fail(cluster: Cluster) -> None:
    async with cluster, await Client.to(cluster) as client:
        await client.ask(MetadataRequest(topics=[]))
        raise LookupError


async def test_port_of_stopped_broker_stays_reserved() -> None:
    async with Cluster(1) as cluster:
        host, _, port = cluster.bootstrap_servers.partition(":")
        await cluster.stop_broker(1)
        with pytest.raises(OSError, match="in use"):
            socket.create_server((host, int(port)))
    socket.create_server((host, int(port))).close()


async def test_stopped_node_may_still_be_stopped_by_leaving() -> None:
    async with Cluster(2) as cluster:
        await cluster.stop_broker(1)
        await cluster.stop_broker(1)


def test_latency_needs_memory_transport() -> None:
    with pytest.raises(ValueError, match=r"latency_s=0.1: only the memory transport"):
        Cluster(latency_s=0.1)


@in_virtual_time
async def test_round_trip_takes_twice_the_latency() -> None:
    async with Cluster(transport="memory", latency_s=0.05) as cluster, await Client.to(cluster) as client:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        await client.ask(metadata_request())
        assert loop.time() - began_at == pytest.approx(0.1)


TELEMETRY = {71, 72}


async def offered(client: Client) -> set[int]:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return {each.api_key for each in (await client.ask(request)).api_keys}


async def test_telemetry_is_offered_after_subscription(cluster: Cluster, client: Client) -> None:
    assert not await offered(client) & TELEMETRY
    assert (await client.ask(GetTelemetrySubscriptionsRequest())).error_code == 35
    cluster.subscribe_metrics()
    assert await offered(client) >= TELEMETRY


async def test_pushed_metrics_returns_pushes(cluster: Cluster, client: Client) -> None:
    cluster.subscribe_metrics("a", push_interval_s=1.5, delta_temporality=False, max_bytes=1_000)
    told = await client.ask(GetTelemetrySubscriptionsRequest())
    assert (told.push_interval_ms, told.delta_temporality, told.telemetry_max_bytes) == (1_500, False, 1_000)
    assert tuple(told.accepted_compression_types) == (4, 3, 1, 2)
    push = PushTelemetryRequest(
        client_instance_id=told.client_instance_id,
        subscription_id=told.subscription_id,
        terminating=False,
        compression_type=0,
        metrics=encode([Point("a", Kind.GAUGE, 1.0, {})], {"x": "y"}, now_ns=1),
    )
    assert (await client.ask(push)).error_code == 0
    [pushed] = cluster.pushed_metrics()
    assert isinstance(pushed, MetricsPushed)
    assert (pushed.metrics[0].name, pushed.resource) == ("a", {"x": "y"})
    cluster.on("push_telemetry").answer(118)
    assert (await client.ask(push)).error_code == 118


def test_unknown_codec_is_refused() -> None:
    with pytest.raises(ValueError, match="compression types are"):
        Cluster().subscribe_metrics("*", compression_types=["no-such-codec"])


def test_subscription_and_pushes_work_across_threads() -> None:
    with ThreadedCluster() as cluster:
        cluster.subscribe_metrics("*", compression_types=["gzip"])
        assert cluster.pushed_metrics() == []
