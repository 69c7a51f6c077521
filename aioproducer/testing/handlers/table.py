"""Table of the APIs: handler, name and targets of each."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from aioproducer._core.protocol.apis import REQUESTS
from aioproducer._core.protocol.schema import Message
from aioproducer.testing.faults import Target
from aioproducer.testing.handlers import connect, consume, describe, offsets, produce, transact
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


_TARGETS: dict[str, Targets] = {
    "add_partitions_to_txn": transact.add_partitions_to_txn_targets,
    "create_topics": lambda request, _: [Target(topic.name) for topic in request.topics],
    "describe_configs": lambda request, _: [Target(each.resource_name) for each in request.resources],
    "describe_producers": lambda request, _: [
        Target(topic.name, index) for topic in request.topics for index in topic.partition_indexes
    ],
    "fetch": consume.fetch_targets,
    "list_offsets": _partitions,
    "metadata": describe.metadata_targets,
    "produce": produce.produce_targets,
    "txn_offset_commit": _partitions,
}
"""Partitions and topics that a request names; other requests concern the node."""
_HANDLERS: dict[str, Handler] = {
    name: value
    for module in (connect, consume, describe, offsets, produce, transact)
    for name, value in vars(module).items()
    if iscoroutinefunction(value)
}


def _api(request: type) -> Api:
    """Return the API of a request; its handler has the request's name: `end_txn` for EndTxnRequest."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", request.__name__.removesuffix("Request")).lower()
    return Api(name, _HANDLERS[name], _TARGETS.get(name, lambda *_: ()))


APIS: dict[int, Api] = {key: _api(request) for key, request in REQUESTS.items()}
