"""A cluster for code that is not on its event loop: synchronous tests, other clients, other loops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

from aioproducer._core.records.decode import DecodedBatch, DecodedRecord
from aioproducer.testing.cluster import Cluster, IsolationLevel
from aioproducer.testing.faults import Rule
from aioproducer.testing.groups import CommittedOffset
from aioproducer.testing.sasl.server_login import Tokens
from aioproducer.testing.telemetry_receiver import MetricsPushed


class ThreadedCluster:
    """A `Cluster` on a thread and event loop of its own, with the same methods, all of them synchronous.

        with ThreadedCluster(topics={"orders": 3}) as cluster:
            confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})

    It takes the arguments of `Cluster`, except for the transport: sockets are what threads have in common.
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

    def renew_certificates(
        self, *, hosts: Iterable[str] | None = None, expired: bool = False, new_authority: bool = False
    ) -> None:
        """See `Cluster`."""
        self._portal.call(
            partial(
                self._cluster.renew_certificates, hosts=hosts, expired=expired, new_authority=new_authority
            )
        )

    def records(
        self, topic: str, partition: int, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> list[DecodedRecord]:
        """See `Cluster`."""
        return self._portal.call(
            partial(self._cluster.records, topic, partition, isolation_level=isolation_level)
        )

    def batches(self, topic: str, partition: int) -> list[DecodedBatch]:
        """See `Cluster`."""
        return self._portal.call(self._cluster.batches, topic, partition)

    def wait_for_records(
        self, topic: str, partition: int, count: int, *, timeout_s: float = 10.0
    ) -> list[DecodedRecord]:
        """See `Cluster`. Raises: TimeoutError."""

        async def wait() -> list[DecodedRecord]:
            async with asyncio.timeout(timeout_s):
                return await self._cluster.wait_for_records(topic, partition, count)

        return self._portal.call(wait)

    def produce_requests(self, topic: str, partition: int) -> list[int]:
        """See `Cluster`."""
        return self._portal.call(self._cluster.produce_requests, topic, partition)

    def request_count(self, request: str, *, node: int | None = None) -> int:
        """See `Cluster`."""
        return self._portal.call(partial(self._cluster.request_count, request, node=node))

    def subscribe_metrics(
        self,
        *prefixes: str,
        push_interval_s: float = 300.0,
        delta_temporality: bool = True,
        compression_types: Sequence[str] = ("zstd", "lz4", "gzip", "snappy"),
        max_bytes: int = 1_048_576,
    ) -> None:
        """See `Cluster`."""
        subscribe = partial(
            self._cluster.subscribe_metrics,
            push_interval_s=push_interval_s,
            delta_temporality=delta_temporality,
            compression_types=compression_types,
            max_bytes=max_bytes,
        )
        self._portal.call(subscribe, *prefixes)

    def pushed_metrics(self) -> list[MetricsPushed]:
        """See `Cluster`."""
        return self._portal.call(self._cluster.pushed_metrics)

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

    def transaction_state(self, transactional_id: str) -> str | None:
        """See `Cluster`."""
        return self._portal.call(self._cluster.transaction_state, transactional_id)

    def committed_offset(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """See `Cluster`."""
        return self._portal.call(self._cluster.committed_offset, group_id, topic, partition)

    def join_group(
        self, group_id: str, member_id: str, generation: int, *, instance_id: str | None = None
    ) -> None:
        """See `Cluster`."""
        join = partial(self._cluster.join_group, instance_id=instance_id)
        self._portal.call(join, group_id, member_id, generation)

    def coordinator(self, key: str) -> int | None:
        """See `Cluster`."""
        return self._portal.call(self._cluster.coordinator, key)

    def move_coordinator(self, key: str, *, to_broker: int) -> None:
        """See `Cluster`."""
        self._portal.call(partial(self._cluster.move_coordinator, key, to_broker=to_broker))

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        log_append_time: bool = False,
        compacted: bool = False,
        message_max_bytes: int | None = None,
    ) -> None:
        """See `Cluster`."""
        create = partial(
            self._cluster.create_topic,
            log_append_time=log_append_time,
            compacted=compacted,
            message_max_bytes=message_max_bytes,
        )
        self._portal.call(create, name, partitions)

    def delete_topic(self, name: str) -> None:
        """See `Cluster`."""
        self._portal.call(self._cluster.delete_topic, name)

    def add_partitions(self, name: str, total: int) -> None:
        """See `Cluster`."""
        self._portal.call(self._cluster.add_partitions, name, total)

    def move_leader(self, topic: str, partition: int, *, to_broker: int) -> None:
        """See `Cluster`."""
        self._portal.call(partial(self._cluster.move_leader, topic, partition, to_broker=to_broker))

    def lose_end(
        self, topic: str, partition: int, records: int, *, to_broker: int | None = None
    ) -> list[DecodedRecord]:
        """See `Cluster`."""
        lose = partial(self._cluster.lose_end, topic, partition, records, to_broker=to_broker)
        return self._portal.call(lose)

    def on(
        self,
        request: str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
        times: int | None = 1,
        after: int = 0,
    ) -> Rule:
        """See `Cluster`. The rule is there at once: give it its faults before the requests it is for are sent."""
        rule = partial(
            self._cluster.on,
            request,
            topic=topic,
            partition=partition,
            node=node,
            times=times,
            after=after,
        )
        return self._portal.call(rule)

    def stop_broker(self, node_id: int, *, failover: bool = False) -> None:
        """See `Cluster`."""
        self._portal.call(partial(self._cluster.stop_broker, node_id, failover=failover))

    def start_broker(self, node_id: int) -> None:
        """See `Cluster`."""
        self._portal.call(self._cluster.start_broker, node_id)

    def move_broker(self, node_id: int) -> None:
        """See `Cluster`."""
        self._portal.call(self._cluster.move_broker, node_id)

    def exchange_addresses(self, one: int, other: int) -> None:
        """See `Cluster`."""
        self._portal.call(self._cluster.exchange_addresses, one, other)

    def freeze_broker(self, node_id: int) -> None:
        """See `Cluster`."""
        self._portal.call(self._cluster.freeze_broker, node_id)

    def thaw_broker(self, node_id: int) -> None:
        """See `Cluster`."""
        self._portal.call(self._cluster.thaw_broker, node_id)

    def disconnect(self, node_id: int) -> None:
        """See `Cluster`."""
        self._portal.call(self._cluster.disconnect, node_id)
