"""Table of the APIs: handler, name and targets of each."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from aioproducer._core.protocol.apis import REQUESTS
from aioproducer._core.protocol.schema import Message
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
)
from aioproducer.testing.handlers.describe import (
    create_topics,
    describe_configs,
    metadata,
    metadata_targets,
)
from aioproducer.testing.handlers.offsets import (
    offset_fetch,
    txn_offset_commit,
)
from aioproducer.testing.handlers.produce import produce, produce_targets
from aioproducer.testing.handlers.transact import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_partitions_to_txn_targets,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from aioproducer.testing.state import Call, ClusterState

Handler = Callable[[Call, Any], Awaitable[Message | None]]
Targets = Callable[[Any, ClusterState], Iterable[Target]]


class Api(NamedTuple):
    """One API; no answer is sent where *handle* returns None."""

    name: str
    """Kind of request in `Cluster.on` and in the counters: the handler's name."""
    handle: Handler
    targets: Targets


def _partitions(request: Any, _state: ClusterState) -> Iterable[Target]:
    return [Target(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]


_HANDLERS: tuple[Handler, ...] = (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    create_topics,
    describe_configs,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    init_producer_id,
    list_offsets,
    list_transactions,
    metadata,
    offset_fetch,
    produce,
    push_telemetry,
    sasl_authenticate,
    sasl_handshake,
    txn_offset_commit,
)
_TARGETS: dict[str, Targets] = {
    "add_partitions_to_txn": add_partitions_to_txn_targets,
    "create_topics": lambda request, _: [Target(topic.name) for topic in request.topics],
    "describe_configs": lambda request, _: [Target(each.resource_name) for each in request.resources],
    "describe_producers": lambda request, _: [
        Target(topic.name, index) for topic in request.topics for index in topic.partition_indexes
    ],
    "fetch": fetch_targets,
    "list_offsets": _partitions,
    "metadata": metadata_targets,
    "produce": produce_targets,
    "txn_offset_commit": _partitions,
}
"""Partitions and topics that a request names; other requests concern the node."""


def _name(request: type) -> str:
    """Return the name of a request's handler: "end_txn" for EndTxnRequest."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", request.__name__.removesuffix("Request")).lower()


_BY_NAME = {handler.__name__: handler for handler in _HANDLERS}
APIS: dict[int, Api] = {
    key: Api(name, _BY_NAME[name], _TARGETS.get(name, lambda *_: ()))
    for key, name in ((key, _name(request)) for key, request in REQUESTS.items())
}
