from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.protocol.consumer import (
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    PartitionData,
)
from aioproducer._core.records.decode import decode_batches
from aioproducer.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from aioproducer.testing import Cluster, in_virtual_time
from aioproducer.testing.handlers.consume import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    FetchSessionIdNotFound,
    OffsetOutOfRange,
)
from tests.unit.testing.batches import batch
from tests.unit.testing.client import Client, fetch_request, produce_request

FETCH_VERSIONS = range(FetchRequest.VERSIONS[0], FetchRequest.VERSIONS[1] + 1)
LIST_VERSIONS = range(ListOffsetsRequest.VERSIONS[0], ListOffsetsRequest.VERSIONS[1] + 1)


async def fetch(client: Client, request: FetchRequest, version: int | None = None) -> list[PartitionData]:
    response = await client.ask(request, version)
    return [part for topic in response.responses for part in topic.partitions]


def offsets(part: PartitionData) -> list[int]:
    data = part.records or b""
    return [record.offset for each in decode_batches(data, limit=1_000_000) for record in each.records]


async def list_offsets(
    client: Client,
    timestamp_ms: int,
    *,
    partition: int = 0,
    leader_epoch: int = -1,
    version: int | None = None,
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp_ms, current_leader_epoch=leader_epoch
    )
    topics = [ListOffsetsTopic(name="orders", partitions=[asked])]
    response = await client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), version)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_every_version_fetches_what_was_produced(client: Client, version: int) -> None:
    await client.produce(batch(b"a", b"b"))
    await client.produce(batch(b"c"))
    [part] = await fetch(client, fetch_request({0: 2}), version)
    assert offsets(part) == [2]
    assert (part.error_code, part.high_watermark, part.last_stable_offset) == (0, 3, 3)


async def test_end_of_a_log_can_be_fetched_and_no_offset_after_it(client: Client) -> None:
    await client.produce()
    [at_end] = await fetch(client, fetch_request({0: 1}))
    assert (at_end.error_code, at_end.records) == (0, b"")
    [after] = await fetch(client, fetch_request({0: 2}))
    assert after.error_code == OffsetOutOfRange.code


async def test_fetch_waits_for_records(client: Client, cluster: Cluster) -> None:
    request = fetch_request({0: 0, 2: 0}, max_wait_ms=10_000)
    client.send(request)
    async with await Client.to(cluster) as other:
        await other.produce(partition=2)
    answer = await client.answer_to(request)
    assert [len(offsets(part)) for part in answer.responses[0].partitions] == [0, 1]


async def test_fetch_waits_for_min_bytes(client: Client, cluster: Cluster) -> None:
    size = len(batch())
    request = fetch_request({0: 0}, max_wait_ms=10_000, min_bytes=size + 1)
    client.send(request)
    async with await Client.to(cluster) as other:
        await other.produce()
        await other.produce()
    answer = await client.answer_to(request)
    assert offsets(answer.responses[0].partitions[0]) == [0, 1]


@in_virtual_time
async def test_fetch_waits_at_most_max_wait() -> None:
    async with (
        Cluster(topics={"orders": 1}, transport="memory") as cluster,
        await Client.to(cluster) as client,
    ):
        await client.produce()
        [part] = await fetch(client, fetch_request({0: 0}, max_wait_ms=700, min_bytes=10_000))
        assert offsets(part) == [0]
        assert asyncio.get_running_loop().time() == pytest.approx(0.7)


async def test_waiting_fetch_ends_with_new_leader(client: Client, cluster: Cluster) -> None:
    request = fetch_request({0: 0}, max_wait_ms=10_000)
    waiting = cluster.on("fetch")
    client.send(request)
    await waiting.happened()
    cluster.move_leader("orders", 0, to_broker=2)
    answer = await client.answer_to(request)
    assert answer.responses[0].partitions[0].error_code == NotLeaderOrFollower.code


async def test_waiting_fetch_ends_with_deleted_topic(client: Client, cluster: Cluster) -> None:
    request = fetch_request({0: 0}, max_wait_ms=10_000)
    waiting = cluster.on("fetch")
    client.send(request)
    await waiting.happened()
    cluster.delete_topic("orders")
    answer = await client.answer_to(request)
    assert answer.responses[0].partitions[0].error_code == UnknownTopicOrPartition.code


async def test_fetch_response_keeps_both_size_limits(client: Client) -> None:
    size = len(batch())
    await client.ask(produce_request({0: batch(), 2: batch()}))
    await client.ask(produce_request({0: batch(), 2: batch()}))
    first, second = await fetch(client, fetch_request({0: 0, 2: 0}, max_bytes=3 * size))
    assert (offsets(first), offsets(second)) == ([0, 1], [0])
    first, second = await fetch(client, fetch_request({0: 0, 2: 0}, partition_max_bytes=size))
    assert (offsets(first), offsets(second)) == ([0], [0])


async def test_first_batch_of_fetch_may_exceed_limit(client: Client) -> None:
    await client.ask(produce_request({0: batch(), 2: batch()}))
    first, second = await fetch(client, fetch_request({0: 0, 2: 0}, max_bytes=1))
    assert (offsets(first), offsets(second)) == ([0], [])


@pytest.mark.parametrize(
    ("topic", "partition", "code"),
    [
        ("orders", 1, NotLeaderOrFollower.code),
        ("orders", 3, UnknownTopicOrPartition.code),
        ("orders", -1, UnknownTopicOrPartition.code),
        ("unheard-of", 0, UnknownTopicOrPartition.code),
    ],
)
async def test_fetch_is_refused_by_other_node(client: Client, topic: str, partition: int, code: int) -> None:
    [part] = await fetch(client, fetch_request({partition: 0}, topic=topic, max_wait_ms=10_000))
    assert (part.error_code, part.records) == (code, b"")


async def test_leader_epochs_are_compared(client: Client, cluster: Cluster) -> None:
    cluster.move_leader("orders", 0, to_broker=2)
    cluster.move_leader("orders", 0, to_broker=1)
    expected = {-1: 0, 1: FencedLeaderEpoch.code, 2: 0, 3: UnknownLeaderEpoch.code}
    for epoch, code in expected.items():
        [part] = await fetch(client, fetch_request({0: 0}, leader_epoch=epoch))
        assert part.error_code == code
        assert (await list_offsets(client, LATEST, leader_epoch=epoch)).error_code == code


async def test_fetch_refuses_sessions(client: Client) -> None:
    request = fetch_request({0: 0})
    request.session_id = 5
    response = await client.ask(request)
    assert response.error_code == FetchSessionIdNotFound.code


@pytest.mark.parametrize("version", LIST_VERSIONS)
async def test_every_version_finds_the_ends_and_times_between(client: Client, version: int) -> None:
    await client.produce(batch(b"a", b"b", timestamps=[100, 200]))
    found = {
        asked: (answer.offset, answer.timestamp)
        for asked in (EARLIEST, LATEST, 100, 101, 201)
        for answer in [await list_offsets(client, asked, version=version)]
    }
    assert found == {EARLIEST: (0, -1), LATEST: (2, -1), 100: (0, 100), 101: (1, 200), 201: (-1, -1)}


async def test_latest_time_can_be_asked_for_from_version_7_on(client: Client) -> None:
    await client.produce(batch(b"a", b"b", timestamps=[200, 100]))
    answer = await list_offsets(client, MAX_TIMESTAMP)
    assert (answer.offset, answer.timestamp, answer.leader_epoch) == (0, 200, 0)
    assert (await list_offsets(client, MAX_TIMESTAMP, version=6)).error_code == InvalidRequest.code
    assert (await list_offsets(client, -9)).error_code == InvalidRequest.code


async def test_empty_log_has_no_latest_time(client: Client) -> None:
    assert (await list_offsets(client, MAX_TIMESTAMP)).offset == -1


async def test_offsets_are_listed_by_the_leader_only(client: Client) -> None:
    assert (await list_offsets(client, LATEST, partition=1)).error_code == NotLeaderOrFollower.code
