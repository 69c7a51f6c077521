"""The versions of the APIs that the in-process broker offers, and takes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aioproducer.protocol.apis import REQUESTS
from aioproducer.protocol.describe_producers import DescribeProducersRequest
from aioproducer.protocol.describe_transactions import DescribeTransactionsRequest
from aioproducer.protocol.init_producer_id import InitProducerIdRequest
from aioproducer.protocol.list_transactions import ListTransactionsRequest
from aioproducer.protocol.offset_fetch import OffsetFetchRequest
from aioproducer.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)

_NEEDS_TRANSACTIONS = {
    each.API_KEY
    for each in (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        DescribeProducersRequest,
        DescribeTransactionsRequest,
        EndTxnRequest,
        ListTransactionsRequest,
        OffsetFetchRequest,
        TxnOffsetCommitRequest,
    )
}

OFFERED: Final[Mapping[int, tuple[int, int]]] = MappingProxyType(
    {key: cls.VERSIONS for key, cls in sorted(REQUESTS.items()) if key not in _NEEDS_TRANSACTIONS}
    | {InitProducerIdRequest.API_KEY: (0, 5)}  # Kafka has 6 only with `unstable.api.versions.enable`
)
"""By the number of the API, the lowest and the highest version."""
