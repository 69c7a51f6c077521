"""Every request there is here, by the number of its API: what a server needs to read what it gets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from aioproducer.protocol.api_versions import ApiVersionsRequest
from aioproducer.protocol.create_topics import CreateTopicsRequest
from aioproducer.protocol.describe_configs import DescribeConfigsRequest
from aioproducer.protocol.describe_producers import DescribeProducersRequest
from aioproducer.protocol.describe_transactions import DescribeTransactionsRequest
from aioproducer.protocol.fetch import FetchRequest
from aioproducer.protocol.find_coordinator import FindCoordinatorRequest
from aioproducer.protocol.init_producer_id import InitProducerIdRequest
from aioproducer.protocol.list_offsets import ListOffsetsRequest
from aioproducer.protocol.list_transactions import ListTransactionsRequest
from aioproducer.protocol.metadata import MetadataRequest
from aioproducer.protocol.offset_fetch import OffsetFetchRequest
from aioproducer.protocol.produce import ProduceRequest
from aioproducer.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from aioproducer.protocol.schema import Request
from aioproducer.protocol.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from aioproducer.protocol.transactions import (
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
