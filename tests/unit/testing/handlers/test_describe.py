from __future__ import annotations

import pytest

from aioproducer._core.protocol.admin import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from aioproducer._core.protocol.metadata import MetadataRequest, MetadataRequestTopic
from aioproducer.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    LeaderNotAvailable,
    RebootstrapRequired,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from aioproducer.testing import Cluster
from tests.unit.testing.batches import batch
from tests.unit.testing.client import Client, metadata_request, produce_request

METADATA_VERSIONS = range(MetadataRequest.VERSIONS[0], MetadataRequest.VERSIONS[1] + 1)
CREATE_VERSIONS = range(CreateTopicsRequest.VERSIONS[0], CreateTopicsRequest.VERSIONS[1] + 1)


@pytest.mark.parametrize("version", METADATA_VERSIONS)
async def test_every_version_describes_nodes_topics_and_leaders(
    cluster: Cluster, client: Client, version: int
) -> None:
    response = await client.ask(metadata_request("orders"), version)
    addresses = [f"{broker.host}:{broker.port}" for broker in response.brokers]
    assert ",".join(addresses) == cluster.bootstrap_servers
    assert response.controller_id == 1
    [topic] = response.topics
    assert (topic.error_code, topic.name) == (0, "orders")
    assert [(part.partition_index, part.leader_id) for part in topic.partitions] == [(0, 1), (1, 2), (2, 1)]


async def test_all_topics_or_none_can_be_asked_for(cluster: Cluster, client: Client) -> None:
    cluster.create_topic("other")
    everything = await client.ask(MetadataRequest(topics=None))
    assert [topic.name for topic in everything.topics] == ["orders", "other"]
    assert (await client.ask(MetadataRequest(topics=[]))).topics == []


async def test_topic_can_be_asked_for_by_its_id(client: Client) -> None:
    [known] = (await client.ask(metadata_request("orders"))).topics
    asked = [MetadataRequestTopic(name=None, topic_id=each) for each in (known.topic_id, b"?" * 16)]
    found, missing = (await client.ask(MetadataRequest(topics=asked))).topics
    assert (found.name, found.error_code) == ("orders", 0)
    assert (missing.name, missing.error_code) == (None, UnknownTopicId.code)


async def test_unknown_topic_is_created_if_client_and_cluster_allow_it(
    cluster: Cluster, client: Client
) -> None:
    [refused] = (await client.ask(metadata_request("new", may_create=False))).topics
    assert refused.error_code == UnknownTopicOrPartition.code
    [created] = (await client.ask(metadata_request("new", may_create=True))).topics
    assert (created.error_code, len(created.partitions)) == (0, 1)
    assert cluster.records("new", 0) == []


async def test_cluster_may_forbid_to_create_topics_by_asking() -> None:
    async with (
        Cluster(auto_create_topics=False, transport="memory") as cluster,
        await Client.to(cluster) as client,
    ):
        [topic] = (await client.ask(metadata_request("new", may_create=True))).topics
    assert topic.error_code == UnknownTopicOrPartition.code


async def test_new_topics_get_the_default_number_of_partitions() -> None:
    async with (
        Cluster(default_partitions=4, transport="memory") as cluster,
        await Client.to(cluster) as client,
    ):
        [topic] = (await client.ask(metadata_request("new", may_create=True))).topics
    assert len(topic.partitions) == 4


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "x" * 250])
async def test_illegal_name_is_not_created(client: Client, name: str) -> None:
    [topic] = (await client.ask(metadata_request(name, may_create=True))).topics
    assert topic.error_code == InvalidTopicException.code


async def test_topic_created_again_has_another_id(cluster: Cluster, client: Client) -> None:
    [before] = (await client.ask(metadata_request("orders"))).topics
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 1)
    [after] = (await client.ask(metadata_request("orders"))).topics
    assert before.topic_id != after.topic_id


async def test_leader_epoch_counts_moves(cluster: Cluster, client: Client) -> None:
    cluster.move_leader("orders", 0, to_broker=2)
    [topic] = (await client.ask(metadata_request("orders"))).topics
    assert [(part.leader_id, part.leader_epoch) for part in topic.partitions] == [(2, 1), (2, 0), (1, 0)]


async def test_stopped_node_is_not_listed_and_leads_nothing(cluster: Cluster, client: Client) -> None:
    await cluster.stop_broker(2)
    response = await client.ask(metadata_request("orders"))
    assert [broker.node_id for broker in response.brokers] == [1]
    away = response.topics[0].partitions[1]
    assert (away.error_code, away.leader_id) == (LeaderNotAvailable.code, -1)
    assert away.offline_replicas == (2,)


async def test_controller_is_a_node_that_is_there(cluster: Cluster) -> None:
    await cluster.stop_broker(1)
    async with await Client.to(cluster, 2) as client:
        assert (await client.ask(MetadataRequest(topics=[]))).controller_id == 2


async def test_rebootstrap_is_an_error_of_the_whole_response(cluster: Cluster, client: Client) -> None:
    cluster.on("metadata", times=3).answer(RebootstrapRequired)
    for request in (MetadataRequest(topics=[]), metadata_request("orders")):
        assert (await client.ask(request, 13)).error_code == RebootstrapRequired.code
    [topic] = (await client.ask(metadata_request("orders"), 12)).topics
    assert topic.error_code == RebootstrapRequired.code


async def test_other_error_leaves_response_without_topics(cluster: Cluster, client: Client) -> None:
    cluster.on("metadata").answer(LeaderNotAvailable)
    assert (await client.ask(MetadataRequest(topics=[]))).error_code == 0


async def create(
    client: Client, topic: CreatableTopic, *, validate_only: bool = False, version: int | None = None
) -> CreatableTopicResult:
    request = CreateTopicsRequest(topics=[topic], validate_only=validate_only)
    return (await client.ask(request, version)).topics[0]


def new(
    name: str = "new", *, partitions: int = 2, replicas: int = 1, **configs: str | None
) -> CreatableTopic:
    """Return a topic to create; in names of *configs*, `_` is a dot."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[
            CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()
        ],
    )


@pytest.mark.parametrize("version", CREATE_VERSIONS)
async def test_every_version_creates_topics(client: Client, version: int) -> None:
    result = await create(client, new(), version=version)
    assert (result.name, result.error_code, result.error_message) == ("new", 0, None)
    [topic] = (await client.ask(metadata_request("new"))).topics
    assert len(topic.partitions) == 2


async def test_create_topics_uses_defaults_for_minus_one(client: Client) -> None:
    result = await create(client, new(partitions=-1, replicas=-1))
    assert (result.num_partitions, result.replication_factor) == (1, 1)


async def test_validating_creates_nothing(client: Client) -> None:
    assert (await create(client, new(), validate_only=True)).error_code == 0
    [topic] = (await client.ask(metadata_request("new"))).topics
    assert topic.error_code == UnknownTopicOrPartition.code


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new("orders"), TopicAlreadyExists.code),
        (new("."), InvalidTopicException.code),
        (new(partitions=0), InvalidPartitions.code),
        (new(replicas=3), InvalidReplicationFactor.code),
        (new(replicas=0), InvalidReplicationFactor.code),
        (new(max_message_bytes="many"), InvalidConfig.code),
    ],
)
async def test_illegal_topic_is_refused(client: Client, topic: CreatableTopic, code: int) -> None:
    result = await create(client, topic)
    assert result.error_code == code
    assert result.error_message


async def test_leaders_are_not_chosen_by_clients(client: Client) -> None:
    topic = new(partitions=-1, replicas=-1)
    topic.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[2])]
    assert (await create(client, topic)).error_code == InvalidRequest.code


async def test_configs_that_matter_here_are_kept(cluster: Cluster, client: Client) -> None:
    topic = new(
        message_timestamp_type="LogAppendTime", max_message_bytes="200", cleanup_policy="compact,delete"
    )
    await create(client, topic)
    sizes = {100: 0, 300: 10}
    for size, code in sizes.items():
        request = produce_request({0: batch(b"x" * size, keys=[b"k"])}, topic="new")
        assert (await client.ask(request)).responses[0].partition_responses[0].error_code == code
    request = produce_request({0: batch(b"no key")}, topic="new")
    assert (await client.ask(request)).responses[0].partition_responses[0].error_code == 87
    [stored] = cluster.batches("new", 0)
    assert stored.timestamp_type_log_append


async def test_config_without_a_value_is_the_default(client: Client) -> None:
    assert (await create(client, new(cleanup_policy=None, max_message_bytes=None))).error_code == 0
