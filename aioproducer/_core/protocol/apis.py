"""Every request there is here, by the number of its API: what a server needs to read what it gets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from aioproducer._core.protocol.api_versions import ApiVersionsRequest
from aioproducer._core.protocol.create_topics import CreateTopicsRequest
from aioproducer._core.protocol.describe_configs import DescribeConfigsRequest
from aioproducer._core.protocol.describe_producers import DescribeProducersRequest
from aioproducer._core.protocol.describe_transactions import DescribeTransactionsRequest
from aioproducer._core.protocol.fetch import FetchRequest
from aioproducer._core.protocol.find_coordinator import FindCoordinatorRequest
from aioproducer._core.protocol.init_producer_id import InitProducerIdRequest
from aioproducer._core.protocol.list_offsets import ListOffsetsRequest
from aioproducer._core.protocol.list_transactions import ListTransactionsRequest
from aioproducer._core.protocol.metadata import MetadataRequest
from aioproducer._core.protocol.offset_fetch import OffsetFetchRequest
from aioproducer._core.protocol.produce import ProduceRequest
from aioproducer._core.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from aioproducer._core.protocol.schema import Request
from aioproducer._core.protocol.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from aioproducer._core.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)

REQUESTS: Final[Mapping[int, type[Request[Any]]]] = MappingProxyType(
    {
        each.API_KEY: each
        for each in (
            AddOffsetsToTxnRequest,
            AddPartitionsToTxnRequest,
            ApiVersionsRequest,
            CreateTopicsRequest,
            DescribeConfigsRequest,
            DescribeProducersRequest,
            DescribeTransactionsRequest,
            EndTxnRequest,
            FetchRequest,
            FindCoordinatorRequest,
            GetTelemetrySubscriptionsRequest,
            InitProducerIdRequest,
            ListOffsetsRequest,
            ListTransactionsRequest,
            MetadataRequest,
            OffsetFetchRequest,
            ProduceRequest,
            PushTelemetryRequest,
            SaslAuthenticateRequest,
            SaslHandshakeRequest,
            TxnOffsetCommitRequest,
        )
    }
)
