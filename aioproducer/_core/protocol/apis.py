"""Request classes by API key, for servers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

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
from aioproducer._core.protocol.schema import Request
from aioproducer._core.protocol.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from aioproducer._core.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
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
