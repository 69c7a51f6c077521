"""Handlers about topics: Metadata, CreateTopics and DescribeConfigs."""

from __future__ import annotations

from collections.abc import Iterator

from aioproducer import errors
from aioproducer._core.protocol import admin, metadata as protocol
from aioproducer._core.protocol.metadata import MetadataRequest, MetadataResponse
from aioproducer.testing.faults import Refused, Target
from aioproducer.testing.state import Call, ClusterState, Partition, Topic, TopicConfig

CONFIG_DEFAULTS = {
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "retention.bytes": "-1",
    "retention.ms": "604800000",
}
"""Topic settings in DescribeConfigs, with Kafka's defaults."""


async def metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    """Describe the running nodes and the requested topics."""
    requested = request.topics
    if requested is None:
        requested = [protocol.MetadataRequestTopic(name=name) for name in call.state.topics]
    alive = call.state.alive_nodes()
    response = MetadataResponse(
        brokers=[
            protocol.MetadataResponseBroker(
                node_id=node.node_id, host=node.address.host, port=node.address.port
            )
            for node in alive
        ],
        cluster_id=call.state.cluster_id,
        controller_id=min(node.node_id for node in alive),
        topics=[_describe(call, each, may_create=request.allow_auto_topic_creation) for each in requested],
    )
    # From version 13 on, one error code applies to the whole response (KIP-1102).
    if call.version >= 13 and _must_rebootstrap(call, response):
        return MetadataResponse(brokers=[], topics=[], error_code=errors.RebootstrapRequired.code)
    return response


def metadata_targets(request: MetadataRequest, state: ClusterState) -> Iterator[Target]:
    """Yield the requested topics."""
    if request.topics is None:
        yield from map(Target, state.topics)
    else:
        for topic in request.topics:
            yield Target(_name(topic, state))


def _name(requested: protocol.MetadataRequestTopic, state: ClusterState) -> str | None:
    return state.names.get(requested.topic_id) if requested.name is None else requested.name


def _must_rebootstrap(call: Call, response: MetadataResponse) -> bool:
    """Return True if a rule has this error, which belongs to the whole response."""
    try:
        with call.faults.around():
            pass
    except Refused as refused:
        return refused.code == errors.RebootstrapRequired.code
    return any(topic.error_code == errors.RebootstrapRequired.code for topic in response.topics)


def _describe(
    call: Call, requested: protocol.MetadataRequestTopic, *, may_create: bool
) -> protocol.MetadataResponseTopic:
    state = call.state
    name = _name(requested, state)
    try:
        with call.faults.around(name):
            topic = _find_or_create(state, name, may_create=may_create)
    except Refused as refused:
        return protocol.MetadataResponseTopic(
            error_code=refused.code, name=name, topic_id=requested.topic_id, partitions=[]
        )
    return protocol.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_describe_partition(state, *each) for each in enumerate(topic.partitions)],
    )


def _find_or_create(state: ClusterState, name: str | None, *, may_create: bool) -> Topic:
    if name is None:
        raise Refused(errors.UnknownTopicId, "there is no topic with this id")
    if name not in state.topics and may_create and state.auto_create_topics:
        state.add_topic(state.new_topic(name))
    return state.topic(name)


def _describe_partition(
    state: ClusterState, index: int, partition: Partition
) -> protocol.MetadataResponsePartition:
    """Describe a partition whose leader has the only replica."""
    leader = state.leader(partition)
    replicas = (partition.leader,)
    return protocol.MetadataResponsePartition(
        error_code=errors.LeaderNotAvailable.code if leader is None else 0,
        partition_index=index,
        leader_id=-1 if leader is None else leader.node_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
        offline_replicas=replicas if leader is None else (),
    )


async def create_topics(call: Call, request: admin.CreateTopicsRequest) -> admin.CreateTopicsResponse:
    """Create topics. Every node serves the request, as KRaft brokers forward the request to the controller."""
    return admin.CreateTopicsResponse(
        topics=[_create(call, topic, validate_only=request.validate_only) for topic in request.topics]
    )


def _create(
    call: Call, requested: admin.CreatableTopic, *, validate_only: bool
) -> admin.CreatableTopicResult:
    try:
        with call.faults.around(requested.name):
            topic = _new_topic(call.state, requested)
            if not validate_only:
                call.state.add_topic(topic)
    except Refused as refused:
        return admin.CreatableTopicResult(
            name=requested.name, error_code=refused.code, error_message=refused.message
        )
    return admin.CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=1,
    )


def _new_topic(state: ClusterState, requested: admin.CreatableTopic) -> Topic:
    if requested.assignments:
        raise Refused(errors.InvalidRequest, "this broker chooses the leaders itself")
    if requested.replication_factor != -1 and not 1 <= requested.replication_factor <= len(state.nodes):
        raise Refused(errors.InvalidReplicationFactor, f"there are {len(state.nodes)} brokers")
    configs = {config.name: config.value for config in requested.configs}
    message_max_bytes = configs.get("max.message.bytes")
    if message_max_bytes is not None and not message_max_bytes.isdecimal():
        raise Refused(errors.InvalidConfig, f"max.message.bytes cannot be {message_max_bytes!r}")
    config = TopicConfig(
        log_append_time=configs.get("message.timestamp.type") == "LogAppendTime",
        compacted="compact" in (configs.get("cleanup.policy") or ""),
        message_max_bytes=None if message_max_bytes is None else int(message_max_bytes),
        given={name: value for name, value in configs.items() if value is not None},
    )
    return state.new_topic(
        requested.name, None if requested.num_partitions == -1 else requested.num_partitions, config
    )


async def describe_configs(
    call: Call, request: admin.DescribeConfigsRequest
) -> admin.DescribeConfigsResponse:
    """Return the settings of topics. Every node serves the request."""
    return admin.DescribeConfigsResponse(results=[_settings(call, each) for each in request.resources])


def _settings(call: Call, requested: admin.DescribeConfigsResource) -> admin.DescribeConfigsResult:
    name = requested.resource_name
    try:
        with call.faults.around(name):
            config = call.state.topic(name).config
    except Refused as refused:
        return admin.DescribeConfigsResult(
            error_code=refused.code,
            error_message=refused.message,
            resource_type=admin.TOPIC_RESOURCE,
            resource_name=name,
        )
    settings = {
        **CONFIG_DEFAULTS,
        "cleanup.policy": "compact" if config.compacted else "delete",
        "message.timestamp.type": "LogAppendTime" if config.log_append_time else "CreateTime",
        "max.message.bytes": str(call.state.max_bytes(name)),
        **config.given,
    }
    keys = settings if requested.configuration_keys is None else requested.configuration_keys
    return admin.DescribeConfigsResult(
        error_message=None,
        resource_type=admin.TOPIC_RESOURCE,
        resource_name=name,
        configs=[
            admin.DescribeConfigsResourceResult(name=key, value=settings[key])
            for key in keys
            if key in settings
        ],
    )
