"""Which API is served by what, and how the script and the counters call it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from aioproducer._core.protocol.admin import (
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeProducersRequest,
    ListTransactionsRequest,
)
from aioproducer._core.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetFetchRequest
from aioproducer._core.protocol.metadata import ApiVersionsRequest, MetadataRequest
from aioproducer._core.protocol.produce import InitProducerIdRequest, ProduceRequest
from aioproducer._core.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from aioproducer._core.protocol.schema import Message, Request
from aioproducer._core.protocol.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from aioproducer._core.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    TxnOffsetCommitRequest,
)
from aioproducer.testing.faults import Target
from aioproducer.testing.handlers.connect import (
    api_versions,
    find_coordinator,
    get_telemetry_subscriptions,
    push_telemetry,
    sasl_authenticate,
    sasl_handshake,
)
from aioproducer.testing.handlers.consume import (
    fetch,
    fetch_targets,
    list_offsets,
    list_offsets_targets,
)
from aioproducer.testing.handlers.describe import (
    create_topics,
    create_topics_targets,
    describe_configs,
    describe_configs_targets,
    metadata,
    metadata_targets,
)
from aioproducer.testing.handlers.offsets import (
    offset_fetch,
    txn_offset_commit,
    txn_offset_commit_targets,
)
from aioproducer.testing.handlers.produce import produce, produce_targets
from aioproducer.testing.handlers.transact import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_partitions_to_txn_targets,
    describe_producers,
    describe_producers_targets,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from aioproducer.testing.state import Call, ClusterState

Handler = Callable[[Call, Any], Awaitable[Message | None]]
Targets = Callable[[Any, ClusterState], Iterable[Target]]


def _the_node_itself(_request: Request[Any], _state: ClusterState) -> Iterable[Target]:
    return ()


class Api(NamedTuple):
    """One API; no answer is sent where *handle* returns None."""

    name: str
    handle: Handler
    targets: Targets = _the_node_itself


APIS: dict[int, Api] = {
    AddOffsetsToTxnRequest.API_KEY: Api("add_offsets_to_txn", add_offsets_to_txn),
    AddPartitionsToTxnRequest.API_KEY: Api(
        "add_partitions_to_txn", add_partitions_to_txn, add_partitions_to_txn_targets
    ),
    ApiVersionsRequest.API_KEY: Api("api_versions", api_versions),
    CreateTopicsRequest.API_KEY: Api("create_topics", create_topics, create_topics_targets),
    DescribeConfigsRequest.API_KEY: Api("describe_configs", describe_configs, describe_configs_targets),
    DescribeProducersRequest.API_KEY: Api(
        "describe_producers", describe_producers, describe_producers_targets
    ),
    DescribeTransactionsRequest.API_KEY: Api("describe_transactions", describe_transactions),
    EndTxnRequest.API_KEY: Api("end_txn", end_txn),
    FetchRequest.API_KEY: Api("fetch", fetch, fetch_targets),
    FindCoordinatorRequest.API_KEY: Api("find_coordinator", find_coordinator),
    GetTelemetrySubscriptionsRequest.API_KEY: Api("get_telemetry_subscriptions", get_telemetry_subscriptions),
    InitProducerIdRequest.API_KEY: Api("init_producer_id", init_producer_id),
    ListOffsetsRequest.API_KEY: Api("list_offsets", list_offsets, list_offsets_targets),
    ListTransactionsRequest.API_KEY: Api("list_transactions", list_transactions),
    MetadataRequest.API_KEY: Api("metadata", metadata, metadata_targets),
    OffsetFetchRequest.API_KEY: Api("offset_fetch", offset_fetch),
    ProduceRequest.API_KEY: Api("produce", produce, produce_targets),
    PushTelemetryRequest.API_KEY: Api("push_telemetry", push_telemetry),
    SaslAuthenticateRequest.API_KEY: Api("sasl_authenticate", sasl_authenticate),
    SaslHandshakeRequest.API_KEY: Api("sasl_handshake", sasl_handshake),
    TxnOffsetCommitRequest.API_KEY: Api("txn_offset_commit", txn_offset_commit, txn_offset_commit_targets),
}
