from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from aioproducer import Producer, ProducerConfig, _topic_client as client_module
from aioproducer._core.protocol.consumer import (
    FetchableTopicResponse,
    FetchResponse,
    ListOffsetsResponse,
    PartitionData,
)
from aioproducer._core.protocol.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from aioproducer._core.protocol.schema import Message, encode_response
from aioproducer._topic_client import EARLIEST, TIMEOUT_S, Client
from aioproducer.errors import (
    BrokerError,
    ConnectionFailed,
    KafkaStorageError,
    LeaderNotAvailable,
    NotController,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    ProtocolError,
    RebootstrapRequired,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from aioproducer.testing import Cluster, in_virtual_time
from aioproducer.testing.handlers import connect
from tests.cases import for_each

RECORDS = [b"%d" % number for number in range(60)]
EVERYTHING = {partition: RECORDS[partition::3] for partition in range(3)}


def config(servers: str) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers=servers, batch_size=120)  # so a few records each


@asynccontextmanager
async def orders() -> AsyncIterator[tuple[Cluster, Client]]:
    """Two brokers with a topic that has records in many batches, and a client."""
    async with Cluster(2, {"orders": 3}, transport="memory") as cluster:
        async with Producer.from_config(config(cluster.bootstrap_servers)) as producer:
            for partition, values in EVERYTHING.items():
                await producer.send_many("orders", values, partition=partition)
        async with Client(config(cluster.bootstrap_servers)) as client:
            yield cluster, client


async def read(
    client: Client, topic: str = "orders", *, committed: bool = False
) -> dict[int, list[bytes | None]]:
    found: dict[int, list[bytes | None]] = {}
    async for partition, records in client.read(topic, committed=committed):
        found.setdefault(partition, []).extend(record.value for record in records)
    return found


def says(message: Message, version: int) -> Callable[[bytes], bytes]:
    """Put *message* in the place of an answer."""
    return lambda frame: bytes(encode_response(message, version, int.from_bytes(frame[4:8], "big")))


def without_brokers(topic: str) -> Callable[[bytes], bytes]:
    """Answer Metadata as a starting broker does."""
    unknown = MetadataResponseTopic(error_code=UnknownTopicOrPartition.code, name=topic, partitions=[])
    return says(MetadataResponse(brokers=[], cluster_id="c", topics=[unknown]), 13)


async def test_client_logs_connections(caplog: pytest.LogCaptureFixture) -> None:
    async with Cluster(1) as cluster:
        servers = f"127.0.0.1:1,{cluster.bootstrap_servers}"
        with caplog.at_level("INFO", "aioproducer"):
            async with Client(config(servers)):
                pass
    failed, opened = (vars(record) for record in caplog.records if record.name == "aioproducer.topic_client")
    assert (failed["levelname"], failed["event"], failed["address"]) == (
        "INFO",
        "connection.failed",
        "127.0.0.1:1",
    )
    assert (opened["event"], opened["address"]) == ("connection.opened", cluster.bootstrap_servers)


@in_virtual_time
async def test_records_are_read_in_order_of_partition_and_offset() -> None:
    async with orders() as (_, client):
        assert await read(client) == EVERYTHING


@pytest.mark.parametrize("fetch_bytes", [1, 1_000_000])
@in_virtual_time
async def test_committed_records_can_be_read_alone(fetch_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FETCH_BYTES", fetch_bytes)
    async with Cluster(topics={"orders": 1}, transport="memory") as cluster:
        one, other = (
            Producer(cluster.bootstrap_servers, transactional_id=each, linger_ms=0) for each in "ab"
        )
        async with one, other, Client(config(cluster.bootstrap_servers)) as client:
            for number, commits in enumerate((True, False, False, True)):
                await one.begin_transaction()
                async with other.transaction():
                    await one.send("orders", b"one %d" % number)
                    await other.send("orders", b"other %d" % number)
                    await one.send("orders", b"one %d again" % number)
                await (one.commit_transaction() if commits else one.abort_transaction())
            others = [b"other %d" % number for number in range(4)]
            ones = [b"one 0", b"one 0 again", b"one 3", b"one 3 again"]
            assert sorted((await read(client, committed=True))[0], key=str) == sorted(
                [*ones, *others], key=str
            )
            assert len((await read(client))[0]) == 12
            await one.begin_transaction()
            await one.send("orders", b"open")
            async with other.transaction():
                await other.send("orders", b"behind")
            assert len((await read(client, committed=True))[0]) == 8
            assert len((await read(client))[0]) == 14
            await one.commit_transaction()
            assert len((await read(client, committed=True))[0]) == 10


@in_virtual_time
async def test_log_is_read_in_several_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FETCH_BYTES", 1)
    async with orders() as (cluster, client):
        assert await read(client) == EVERYTHING
        batches = sum(len(cluster.batches("orders", partition)) for partition in range(3))
        assert cluster.request_count("fetch") == batches > 10


@in_virtual_time
async def test_empty_topic_has_no_records() -> None:
    async with orders() as (cluster, client):
        cluster.create_topic("empty", 2)
        assert await read(client, "empty") == {}


@in_virtual_time
async def test_records_are_limited_to_log_start_and_requested_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def offset(self: Client, topic: str, partition: int, when: int, *, committed: bool = False) -> int:
        return 1 if when == EARLIEST else 18

    monkeypatch.setattr(Client, "_offset", offset)
    async with orders() as (_, client):
        assert await read(client) == {partition: values[1:18] for partition, values in EVERYTHING.items()}


@in_virtual_time
async def test_topic_is_created_with_its_leaders_in_place() -> None:
    async with orders() as (cluster, client):
        await client.create_topic("refunds", 3)
        assert await read(client, "refunds") == {}
        assert [cluster.records("refunds", partition) for partition in range(3)] == [[], [], []]


@in_virtual_time
async def test_final_error_is_raised_at_once_with_the_brokers_reason() -> None:
    async with orders() as (cluster, client):
        began = asyncio.get_running_loop().time()
        with pytest.raises(TopicAlreadyExists, match="topic orders was not created: topic orders exists"):
            await client.create_topic("orders", 1)
        cluster.on("list_offsets").answer(TopicAuthorizationFailed)
        with pytest.raises(TopicAuthorizationFailed, match="orders-0: TopicAuthorizationFailed"):
            await read(client)
        assert asyncio.get_running_loop().time() - began < 1


@for_each(
    ("request_kind", "error"),
    [
        ("metadata", LeaderNotAvailable),
        ("list_offsets", NotLeaderOrFollower),
        ("fetch", KafkaStorageError),
        ("fetch", UnknownTopicOrPartition),
    ],
)
@in_virtual_time
async def test_retriable_error_is_tried_again(request_kind: str, error: type[BrokerError]) -> None:
    async with orders() as (cluster, client):
        rule = cluster.on(request_kind, topic="orders", times=2).answer(error)
        assert await read(client) == EVERYTHING
        assert rule.hits == 2


@in_virtual_time
async def test_create_topic_is_retried_until_a_controller_exists() -> None:
    async with orders() as (cluster, client):
        nobody = MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="a", port=1)], topics=[])
        unknown = cluster.on("metadata").rewrite(says(nobody, 13))
        moved = cluster.on("create_topics").answer(NotController)
        await client.create_topic("refunds", 2)
        assert unknown.hits == moved.hits == 1


@in_virtual_time
async def test_answer_without_brokers_is_no_missing_topic() -> None:
    async with orders() as (cluster, client):
        calls: list[tuple[Callable[[], Awaitable[object]], object]] = [
            (partial(read, client), EVERYTHING),
            (partial(client.topic_id, "orders"), await client.topic_id("orders")),
            (client.cluster_id, cluster.cluster_id),
        ]
        for call, expected in calls:
            starting = cluster.on("metadata", times=10).rewrite(without_brokers("orders"))
            assert await call() == expected
            assert starting.hits == 10
        cluster.on("metadata").rewrite(without_brokers("orders"))
        with pytest.raises(ConnectionFailed, match="the broker lists no brokers"):
            await client.describe(["orders"])


@in_virtual_time
async def test_error_of_a_metadata_answer_is_raised() -> None:
    async with orders() as (cluster, client):
        cluster.on("metadata", topic="orders").answer(RebootstrapRequired)
        with pytest.raises(RebootstrapRequired):
            await client.describe(["orders"])


@in_virtual_time
async def test_settings_of_a_topic_are_returned_by_name() -> None:
    async with orders() as (_, client):
        await client.create_topic("kept", 1, {"cleanup.policy": "compact", "retention.ms": "-1"})
        names = ["cleanup.policy", "retention.ms", "message.timestamp.type", "unheard.of"]
        assert await client.topic_settings("kept", names) == {
            "cleanup.policy": "compact",
            "retention.ms": "-1",
            "message.timestamp.type": "CreateTime",
        }
        assert (await client.topic_settings("orders", ["cleanup.policy"])) == {"cleanup.policy": "delete"}


@pytest.mark.parametrize("error", [TopicAuthorizationFailed, UnknownTopicOrPartition])
@in_virtual_time
async def test_settings_of_a_topic_may_be_refused(error: type[BrokerError]) -> None:
    async with orders() as (cluster, client):
        cluster.on("describe_configs", topic="orders", times=None).answer(error)
        with pytest.raises(error, match="the settings of topic orders"):
            await client.topic_settings("orders", ["retention.ms"])


@in_virtual_time
async def test_lost_connection_is_opened_again() -> None:
    async with orders() as (cluster, client):
        cluster.on("fetch").close()
        pieces = client.read("orders")
        await anext(pieces)
        cluster.disconnect(1)
        cluster.disconnect(2)
        partitions = {partition async for partition, _ in pieces}
        assert partitions == {1, 2}


@in_virtual_time
async def test_reader_follows_a_partition_to_its_new_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FETCH_BYTES", 1)
    async with orders() as (cluster, client):
        pieces = client.read("orders")
        _, records = await anext(pieces)
        cluster.move_leader("orders", 0, to_broker=2)
        values = [record.value for record in records]
        async for partition, more in pieces:
            if partition == 0:
                values += [record.value for record in more]
        assert values == EVERYTHING[0]


@in_virtual_time
async def test_reader_gives_up_after_its_patience() -> None:
    async with orders() as (cluster, client):
        began = asyncio.get_running_loop().time()
        cluster.on("fetch", times=None).answer(KafkaStorageError)
        with pytest.raises(KafkaStorageError, match="orders-0 from offset 0"):
            await read(client)
        assert TIMEOUT_S - 2 < asyncio.get_running_loop().time() - began < TIMEOUT_S + 1


@in_virtual_time
async def test_dead_connection_is_reopened_and_the_request_repeated() -> None:
    async with orders() as (cluster, client):
        assert await client.end_offset("orders", 0) == 20
        cluster.on("list_offsets", times=1).drop()  # a middlebox has dropped the connection
        assert await client.end_offset("orders", 0) == 20


@in_virtual_time
async def test_partitions_without_a_leader_are_waited_for() -> None:
    async with orders() as (cluster, client):
        await cluster.stop_broker(2)
        with pytest.raises(LeaderNotAvailable, match="orders has partitions without a leader"):
            await read(client)
        await cluster.start_broker(2)
        assert await read(client) == EVERYTHING


@in_virtual_time
async def test_reader_waits_for_a_leader_that_lacks_the_end_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    async def offset(self: Client, topic: str, partition: int, when: int, *, committed: bool = False) -> int:
        return 0 if when == EARLIEST else 21

    monkeypatch.setattr(Client, "_offset", offset)
    async with orders() as (_, client):
        with pytest.raises(OffsetNotAvailable, match="orders-0 from offset 20: the leader shows nothing"):
            await read(client)


@pytest.mark.parametrize(
    ("request_kind", "answer", "complaint"),
    [
        ("list_offsets", says(ListOffsetsResponse(topics=[]), 7), "0 parts"),
        ("fetch", says(FetchResponse(responses=[]), 12), "0 parts"),
        (
            "fetch",
            says(
                FetchResponse(
                    responses=[
                        FetchableTopicResponse(
                            topic="orders",
                            partitions=[PartitionData(partition_index=0, high_watermark=20, records=b"cut")],
                        )
                    ]
                ),
                12,
            ),
            "no whole batch at offset 0",
        ),
    ],
)
@in_virtual_time
async def test_malformed_answer_raises_protocol_error(
    request_kind: str, answer: Callable[[bytes], bytes], complaint: str
) -> None:
    async with orders() as (cluster, client):
        cluster.on(request_kind, times=None).rewrite(answer)
        with pytest.raises(ProtocolError, match=complaint):
            await read(client)


@in_virtual_time
async def test_deleted_partition_raises_leader_not_available() -> None:
    async with orders() as (cluster, client):
        pieces = client.read("orders")
        await anext(pieces)
        cluster.delete_topic("orders")
        cluster.create_topic("orders", 1)
        cluster.disconnect(1)
        with pytest.raises(LeaderNotAvailable, match="orders-1 is not there any more"):
            await anext(pieces)


async def test_one_reachable_bootstrap_server_suffices() -> None:
    async with orders() as (cluster, _), Client(config(f"127.0.0.1:1,{cluster.bootstrap_servers}")) as client:
        assert await read(client) == EVERYTHING


async def test_unreachable_bootstrap_servers_fail_immediately() -> None:
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:2"):
        async with Client(config("127.0.0.1:1,127.0.0.1:2")):
            pass


@in_virtual_time
async def test_describe_returns_the_requested_topics() -> None:
    async with orders() as (cluster, client):
        cluster.create_topic("refunds", 1)
        every, some, none = [
            {topic.name: len(topic.partitions) for topic in (await client.describe(asked)).topics}
            for asked in (None, ["refunds"], [])
        ]
    assert (every, some, none) == ({"orders": 3, "refunds": 1}, {"refunds": 1}, {})


@in_virtual_time
async def test_old_brokers_are_asked_without_authorized_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    before_2_3 = {**connect.OFFERED, MetadataRequest.API_KEY: (4, 7)}
    monkeypatch.setattr(connect, "OFFERED", before_2_3)
    async with orders() as (_, client):
        [topic] = (await client.describe(["orders"], for_writing=True)).topics
    assert len(topic.partitions) == 3


async def test_unreachable_bootstrap_servers_are_all_named() -> None:
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1 .*; 127\.0\.0\.1:2 "):
        async with Client(config("127.0.0.1:1,127.0.0.1:2")):
            raise AssertionError("there is nobody")


async def test_recreated_topic_has_another_id() -> None:
    async with orders() as (cluster, client):
        assert await client.topic_id("no-such") is None
        before = await client.topic_id("orders")
        cluster.delete_topic("orders")
        cluster.create_topic("orders", 1)
        after = await client.topic_id("orders")
        assert before is not None
        assert after not in {None, before}
