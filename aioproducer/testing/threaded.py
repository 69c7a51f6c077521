"""A cluster for code outside of its event loop: synchronous tests, other clients, other loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from aioproducer._core.records.decode import DecodedRecord
from aioproducer.testing.cluster import Cluster
from aioproducer.testing.sasl_logins import Tokens

P = ParamSpec("P")
T = TypeVar("T")


def _called(
    method: Callable[Concatenate[Cluster, P], T],
) -> Callable[[object], Callable[Concatenate[ThreadedCluster, P], T]]:
    """Return a decorator that replaces a method by *method*, called on the cluster's thread."""

    @wraps(method)
    def call(self: ThreadedCluster, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.call(partial(method, self._cluster, *args, **kwargs))

    return lambda _: call


def _awaited(
    method: Callable[Concatenate[Cluster, P], Coroutine[Any, Any, T]],
) -> Callable[[object], Callable[Concatenate[ThreadedCluster, P], T]]:
    """Return a decorator that replaces a method by the coroutine function *method*, awaited on the cluster's thread."""

    @wraps(method)
    def call(self: ThreadedCluster, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self._portal.call(partial(method, self._cluster, *args, **kwargs))
        return result

    return lambda _: call


class ThreadedCluster:
    """A `Cluster` on a thread and event loop of its own, with the same methods, all of them synchronous.

        with ThreadedCluster(topics={"orders": 3}) as cluster:
            confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})

    It takes the arguments of `Cluster`, except for the transport: other threads need sockets. A rule of `on` is active
    at once: add its faults before a client sends the requests.
    """

    def __init__(self, brokers: int = 1, topics: Mapping[str, int] | None = None, **options: Any) -> None:
        if options.get("transport", "tcp") != "tcp":
            raise ValueError(
                "a ThreadedCluster is used from other threads, which need sockets: its transport is 'tcp'"
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    @property
    def bootstrap_servers(self) -> str:
        """See `Cluster`."""
        return self._cluster.bootstrap_servers

    @property
    def cluster_id(self) -> str | None:
        """See `Cluster`."""
        return self._cluster.cluster_id

    @cluster_id.setter
    def cluster_id(self, cluster_id: str | None) -> None:
        self._cluster.cluster_id = cluster_id

    @property
    def client_options(self) -> dict[str, Any]:
        """See `Cluster`."""
        return self._cluster.client_options

    @property
    def ca_pem(self) -> str:
        """See `Cluster`."""
        return self._cluster.ca_pem

    @property
    def users(self) -> dict[str, str]:
        """See `Cluster`."""
        return self._cluster.users

    @property
    def tokens(self) -> Tokens:
        """See `Cluster`."""
        return self._cluster.tokens

    @property
    def transaction_version(self) -> int:
        """See `Cluster`."""
        return self._cluster.transaction_version

    @transaction_version.setter
    def transaction_version(self, version: int) -> None:
        self._portal.call(setattr, self._cluster, "transaction_version", version)

    @property
    def marker_delay_s(self) -> float:
        """See `Cluster`."""
        return self._cluster.marker_delay_s

    @marker_delay_s.setter
    def marker_delay_s(self, s: float) -> None:
        self._portal.call(setattr, self._cluster, "marker_delay_s", s)

    def wait_for_records(
        self, topic: str, partition: int, count: int, *, timeout_s: float = 10.0
    ) -> list[DecodedRecord]:
        """See `Cluster`. Raises: TimeoutError."""

        async def wait() -> list[DecodedRecord]:
            async with asyncio.timeout(timeout_s):
                return await self._cluster.wait_for_records(topic, partition, count)

        return self._portal.call(wait)

    @_called(Cluster.renew_certificates)
    def renew_certificates(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.records)
    def records(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.batches)
    def batches(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.produce_requests)
    def produce_requests(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.request_count)
    def request_count(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.subscribe_metrics)
    def subscribe_metrics(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.pushed_metrics)
    def pushed_metrics(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.transaction_state)
    def transaction_state(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.committed_offset)
    def committed_offset(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.join_group)
    def join_group(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.coordinator)
    def coordinator(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.move_coordinator)
    def move_coordinator(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.create_topic)
    def create_topic(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.delete_topic)
    def delete_topic(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.add_partitions)
    def add_partitions(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.move_leader)
    def move_leader(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.lose_end)
    def lose_end(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.on)
    def on(self) -> None:
        """See `Cluster`."""

    @_awaited(Cluster.stop_broker)
    def stop_broker(self) -> None:
        """See `Cluster`."""

    @_awaited(Cluster.start_broker)
    def start_broker(self) -> None:
        """See `Cluster`."""

    @_awaited(Cluster.move_broker)
    def move_broker(self) -> None:
        """See `Cluster`."""

    @_awaited(Cluster.exchange_addresses)
    def exchange_addresses(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.freeze_broker)
    def freeze_broker(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.thaw_broker)
    def thaw_broker(self) -> None:
        """See `Cluster`."""

    @_called(Cluster.disconnect)
    def disconnect(self) -> None:
        """See `Cluster`."""
