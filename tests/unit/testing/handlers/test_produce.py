from __future__ import annotations

import pytest

from aioproducer._core.protocol.metadata import MetadataRequest
from aioproducer._core.protocol.produce import BY_NAME, ProduceRequest
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer._core.records.compression import Codec
from aioproducer.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequiredAcks,
    MessageTooLarge,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from aioproducer.testing import Cluster
from tests.unit.testing.batches import batch, with_header
from tests.unit.testing.client import Client, produce_request

VERSIONS = range(ProduceRequest.VERSIONS[0], ProduceRequest.VERSIONS[1] + 1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_appends_and_answers_the_offset(
    cluster: Cluster, client: Client, version: int
) -> None:
    await client.produce()
    answer = await client.produce(batch(b"a", b"b"), version=version)
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 1, -1)
    assert [record.value for record in cluster.records("orders", 0)] == [b"value", b"a", b"b"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_returns_errors(client: Client, version: int) -> None:
    answer = await client.produce(with_header(batch(), crc=1), version=version)
    assert (answer.error_code, answer.base_offset) == (CorruptMessage.code, -1)


async def test_partitions_have_separate_responses(cluster: Cluster, client: Client) -> None:
    response = await client.ask(
        produce_request({0: batch(), 1: batch(), 2: batch(sequence=5, epoch=0, producer_id=1), 3: batch()})
    )
    [topic] = response.responses
    assert [(answer.index, answer.error_code) for answer in topic.partition_responses] == [
        (0, 0),
        (1, NotLeaderOrFollower.code),
        (2, 0),
        (3, UnknownTopicOrPartition.code),
    ]
    assert [len(cluster.records("orders", partition)) for partition in range(3)] == [1, 0, 1]


async def test_wrong_node_returns_leader_hint(cluster: Cluster, client: Client) -> None:
    cluster.move_leader("orders", 0, to_broker=2)
    response = await client.ask(produce_request({0: batch()}), 10)
    [topic] = response.responses
    hint = topic.partition_responses[0].current_leader
    assert (hint.leader_id, hint.leader_epoch) == (2, 1)
    [endpoint] = response.node_endpoints
    assert f"{endpoint.host}:{endpoint.port}" == cluster.bootstrap_servers.split(",")[1]
    assert endpoint.node_id == 2


async def test_produce_response_has_no_leader_hint_before_version_10(
    cluster: Cluster, client: Client
) -> None:
    response = await client.ask(produce_request({1: batch()}), 9)
    [topic] = response.responses
    assert topic.partition_responses[0].error_code == NotLeaderOrFollower.code
    assert response.node_endpoints == []


async def test_rule_may_return_not_leader_for_deleted_topic(cluster: Cluster, client: Client) -> None:
    cluster.delete_topic("orders")
    cluster.on("produce").answer(NotLeaderOrFollower)
    answer = await client.produce()
    assert (answer.error_code, answer.current_leader.leader_id) == (NotLeaderOrFollower.code, -1)


async def test_stopped_leader_has_no_endpoint(cluster: Cluster, client: Client) -> None:
    await cluster.stop_broker(2)
    response = await client.ask(produce_request({1: batch()}))
    assert response.responses[0].partition_responses[0].current_leader.leader_id == 2
    assert response.node_endpoints == []


async def test_unknown_topic_is_not_created_by_producing_to_it(client: Client) -> None:
    response = await client.ask(produce_request({0: batch()}, topic="unheard-of"))
    assert response.responses[0].partition_responses[0].error_code == UnknownTopicOrPartition.code


async def test_recreated_topic_has_another_id(cluster: Cluster, client: Client) -> None:
    old_id = await client.topic_id("orders")
    request = produce_request({0: batch()})
    for topic_id in (NO_TOPIC_ID, old_id):
        cluster.delete_topic("orders")
        cluster.create_topic("orders", 3)
        request.topic_data[0].topic_id = topic_id
        [topic] = (await client.ask(request, BY_NAME + 1)).responses
        [answer] = topic.partition_responses
        assert (topic.topic_id, answer.error_code, answer.base_offset) == (topic_id, UnknownTopicId.code, -1)
    assert cluster.records("orders", 0) == []


async def test_cluster_and_the_topic_limit_the_size(cluster: Cluster, client: Client) -> None:
    cluster.message_max_bytes = 100
    assert cluster.message_max_bytes == 100
    assert (await client.produce(batch(b"x" * 100))).error_code == MessageTooLarge.code
    cluster.create_topic("wide", 1, message_max_bytes=1000)
    response = await client.ask(produce_request({0: batch(b"x" * 100)}, topic="wide"))
    assert response.responses[0].partition_responses[0].error_code == 0


async def test_resent_batch_returns_first_offset(cluster: Cluster, client: Client) -> None:
    await client.produce()
    sent = batch(producer_id=1, epoch=0, sequence=0)
    answers = [await client.produce(sent) for _ in range(2)]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 1), (0, 1)]
    assert len(cluster.records("orders", 0)) == 2


async def test_new_leader_has_state_of_producers(cluster: Cluster, client: Client) -> None:
    await client.produce(batch(producer_id=1, epoch=0, sequence=0))
    cluster.move_leader("orders", 0, to_broker=2)
    async with await Client.to(cluster, 2) as other:
        answer = await other.produce(batch(producer_id=1, epoch=0, sequence=5))
    assert answer.error_code == OutOfOrderSequenceNumber.code
    assert answer.error_message is not None
    assert "sequence 5" in answer.error_message


async def test_refused_records_are_named_from_version_8_on(cluster: Cluster, client: Client) -> None:
    cluster.create_topic("compacted", 1, compacted=True)
    request = produce_request({0: batch(b"a", b"b", keys=[b"k", None])}, topic="compacted")
    new = (await client.ask(request, 8)).responses[0].partition_responses[0]
    assert new.error_code == InvalidRecord.code
    assert [error.batch_index for error in new.record_errors] == [1]
    old = (await client.ask(request, 7)).responses[0].partition_responses[0]
    assert (old.error_code, old.record_errors) == (InvalidRecord.code, [])


async def test_zstd_needs_version_7(client: Client) -> None:
    sent = batch(codec=Codec.ZSTD)
    assert (await client.produce(sent, version=6)).error_code == UnsupportedCompressionType.code
    assert (await client.produce(sent, version=7)).error_code == 0


async def test_log_append_time_is_returned(cluster: Cluster, client: Client) -> None:
    cluster.create_topic("timed", 1, log_append_time=True)
    response = await client.ask(produce_request({0: batch(timestamps=[1])}, topic="timed"))
    [record] = cluster.records("timed", 0)
    assert response.responses[0].partition_responses[0].log_append_time_ms == record.timestamp_ms > 1


async def test_produce_without_records_is_refused(client: Client) -> None:
    request = produce_request({0: b""})
    request.topic_data[0].partition_data[0].records = None
    response = await client.ask(request)
    assert response.responses[0].partition_responses[0].error_code == InvalidRecord.code


async def test_acks_are_minus_one_zero_or_one(cluster: Cluster, client: Client) -> None:
    for acks, code in ((1, 0), (2, InvalidRequiredAcks.code)):
        response = await client.ask(produce_request({0: batch()}, acks=acks))
        assert response.responses[0].partition_responses[0].error_code == code
    assert len(cluster.records("orders", 0)) == 1


async def test_acks_0_has_no_answer(cluster: Cluster, client: Client) -> None:
    client.send(produce_request({0: batch()}, acks=0))
    metadata = MetadataRequest(topics=[])
    client.send(metadata)
    assert (await client.frame())[:4] == (2).to_bytes(4, "big")
    assert len(cluster.records("orders", 0)) == 1


async def test_error_at_acks_0_closes_the_connection(client: Client) -> None:
    client.send(produce_request({1: batch()}, acks=0))
    assert await client.is_closed()
