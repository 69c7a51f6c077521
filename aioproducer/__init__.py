"""An asyncio-native Kafka producer.

    async with Producer("localhost:9092") as producer:
        sent = await producer.send("orders", b"value", key=b"customer-7")

Exported names are imported at their first use (PEP 562): pytest imports this package at every start, for the plugin in
`aioproducer.testing`, and need not import a producer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioproducer._core.acceleration import accelerated as accelerated
    from aioproducer._core.partitioning import (
        Murmur2Partitioner as Murmur2Partitioner,
        Murmur3Partitioner as Murmur3Partitioner,
        Partitioner as Partitioner,
        RoundRobinPartitioner as RoundRobinPartitioner,
    )
    from aioproducer._core.transactions.administration import (
        TransactionDescription as TransactionDescription,
        TransactionListing as TransactionListing,
    )
    from aioproducer._core.transactions.transaction_types import (
        GroupMetadata as GroupMetadata,
        PreparedTransaction as PreparedTransaction,
    )
    from aioproducer._lifecycle import State as State
    from aioproducer._transactional import Transaction as Transaction
    from aioproducer.config import ProducerConfig as ProducerConfig, ProducerOptions as ProducerOptions
    from aioproducer.errors import *  # noqa: F403 - every error
    from aioproducer.interceptors import Interceptor as Interceptor
    from aioproducer.producer import Producer as Producer
    from aioproducer.results import SendManyResult as SendManyResult
    from aioproducer.transaction_admin import TransactionAdmin as TransactionAdmin
    from aioproducer.types import (
        ClusterDescription as ClusterDescription,
        ProducerRecord as ProducerRecord,
        RecordMetadata as RecordMetadata,
        TopicPartition as TopicPartition,
    )
    from aioproducer.version import __version__ as __version__

_HOMES = {
    name: f"aioproducer.{module}"
    for module, names in {
        "_core.acceleration": "accelerated",
        "version": "__version__",
        "_core.partitioning": "Murmur2Partitioner Murmur3Partitioner Partitioner RoundRobinPartitioner",
        "config": "ProducerConfig ProducerOptions",
        "interceptors": "Interceptor",
        "producer": "Producer",
        "_lifecycle": "State",
        "results": "SendManyResult",
        "_core.transactions.transaction_types": "GroupMetadata PreparedTransaction",
        "_transactional": "Transaction",
        "transaction_admin": "TransactionAdmin",
        "_core.transactions.administration": "TransactionDescription TransactionListing",
        "types": "ClusterDescription ProducerRecord RecordMetadata TopicPartition",
        "errors": "TimeoutReason",
    }.items()
    for name in names.split()
}
"""Modules of the exported names, except errors."""


def __getattr__(name: str) -> Any:
    """Import the exported *name*; `__all__` is the list of exported names, with every error."""
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        errors = import_module("aioproducer.errors")
        if name == "errors":  # otherwise only the second access would find the module
            return errors
        exported = [*_HOMES, *errors.__all__]
        if name not in {*exported, "__all__"}:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = exported if name == "__all__" else getattr(errors, name)
    globals()[name] = value  # later accesses find the name here
    return value


def __dir__() -> list[str]:
    """Return the exported names and the other names of the module."""
    return sorted({*globals(), *__getattr__("__all__")})
