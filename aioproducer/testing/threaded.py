"""A cluster for code outside of its event loop: synchronous tests, other clients, other loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from aioproducer._core.records.decode import DecodedRecord
from aioproducer.testing.cluster import Attribute, Cluster
from aioproducer.testing.sasl_server import Tokens

P = ParamSpec("P")
T = TypeVar("T")


def _called(
    method: Callable[Concatenate[Cluster, P], T],
) -> Callable[Concatenate[ThreadedCluster, P], T]:
    """Return a method that calls *method* on the cluster's thread."""

    @wraps(method)
    def call(self: ThreadedCluster, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.call(partial(method, self._cluster, *args, **kwargs))

    return call


def _awaited(
    method: Callable[Concatenate[Cluster, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[ThreadedCluster, P], T]:
    """Return a method that awaits the coroutine function *method* on the cluster's thread."""
    call: Any = _called(method)  # the portal awaits a coroutine
    awaited: Callable[Concatenate[ThreadedCluster, P], T] = call
    return awaited


class ThreadedCluster:
    """A `Cluster` on its own thread and event loop, with the same methods in synchronous form.

        with ThreadedCluster(topics={"orders": 3}) as cluster:
            confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})

    A `ThreadedCluster` takes the arguments of `Cluster` except `transport`, because other threads need sockets. A rule
    of `on` is active immediately, so add its faults before a client sends the requests.
    """

    def __init__(self, brokers: int = 1, topics: Mapping[str, int] | None = None, **options: Any) -> None:
        if options.get("transport", "tcp") != "tcp":
            raise ValueError(
                "transport: a ThreadedCluster serves other threads, which need sockets; use 'tcp' or no argument"
            )
        self._cluster = Cluster(brokers, topics, **options)
        self._exit = ExitStack()
        self._portal: BlockingPortal

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._portal = opened.enter_context(start_blocking_portal())
            opened.enter_context(self._portal.wrap_async_context_manager(self._cluster))
            self._exit = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    bootstrap_servers: Attribute[str] = Attribute("_cluster.bootstrap_servers")
    cluster_id: Attribute[str | None] = Attribute("_cluster.cluster_id")
    client_options: Attribute[dict[str, Any]] = Attribute("_cluster.client_options")
    ca_pem: Attribute[str] = Attribute("_cluster.ca_pem")
    users: Attribute[dict[str, str]] = Attribute("_cluster.users")
    tokens: Attribute[Tokens] = Attribute("_cluster.tokens")
    transaction_version: Attribute[int] = Attribute("_cluster.transaction_version")
    marker_delay_s: Attribute[float] = Attribute("_cluster.marker_delay_s")

    def wait_for_records(
        self, topic: str, partition: int, count: int, *, timeout_s: float = 10.0
    ) -> list[DecodedRecord]:
        """Wait until a partition has *count* records, and return its records. Raises: TimeoutError."""

        async def wait() -> list[DecodedRecord]:
            async with asyncio.timeout(timeout_s):
                return await self._cluster.wait_for_records(topic, partition, count)

        return self._portal.call(wait)

    renew_certificates: Final = _called(Cluster.renew_certificates)
    records: Final = _called(Cluster.records)
    batches: Final = _called(Cluster.batches)
    produce_requests: Final = _called(Cluster.produce_requests)
    request_count: Final = _called(Cluster.request_count)
    subscribe_metrics: Final = _called(Cluster.subscribe_metrics)
    pushed_metrics: Final = _called(Cluster.pushed_metrics)
    transaction_state: Final = _called(Cluster.transaction_state)
    committed_offset: Final = _called(Cluster.committed_offset)
    join_group: Final = _called(Cluster.join_group)
    coordinator: Final = _called(Cluster.coordinator)
    move_coordinator: Final = _called(Cluster.move_coordinator)
    create_topic: Final = _called(Cluster.create_topic)
    delete_topic: Final = _called(Cluster.delete_topic)
    add_partitions: Final = _called(Cluster.add_partitions)
    move_leader: Final = _called(Cluster.move_leader)
    lose_end: Final = _called(Cluster.lose_end)
    on: Final = _called(Cluster.on)
    stop_broker: Final = _awaited(Cluster.stop_broker)
    start_broker: Final = _awaited(Cluster.start_broker)
    move_broker: Final = _awaited(Cluster.move_broker)
    exchange_addresses: Final = _awaited(Cluster.exchange_addresses)
    freeze_broker: Final = _called(Cluster.freeze_broker)
    thaw_broker: Final = _called(Cluster.thaw_broker)
    disconnect: Final = _called(Cluster.disconnect)
