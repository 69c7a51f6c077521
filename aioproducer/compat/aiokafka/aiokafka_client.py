"""Attributes of an aiokafka producer that programs read: `client`, `client.cluster`, `_sender`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from aioproducer._core.metadata.snapshot import NO_LEADER, MetadataSnapshot, TopicInfo
from aioproducer._engine import Engine
from aioproducer.compat.aiokafka.structs import BrokerMetadata, TopicPartition
from aioproducer.compat.aiokafka.translation import translating
from aioproducer.errors import ProducerClosed, ProducerError
from aioproducer.producer import Producer

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})

POLL_S = 0.02
"""Interval of the connection check in `ready()`, which health checks call, in seconds."""


class ClusterMetadata:
    """Read-only view of the latest metadata, with aiokafka's methods."""

    def __init__(self, snapshot: Callable[[], MetadataSnapshot]) -> None:
        self._snapshot = snapshot

    def brokers(self) -> set[BrokerMetadata]:
        """Return the brokers; empty before the start."""
        return {BrokerMetadata(*each) for each in self._snapshot().brokers.values()}

    def broker_metadata(self, broker_id: int) -> BrokerMetadata | None:
        """Return the broker with this id, or None."""
        broker = self._snapshot().brokers.get(broker_id)
        return None if broker is None else BrokerMetadata(*broker)

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:  # noqa: FBT001, FBT002 - aiokafka's
        """Return the existing topics among the topics in use."""
        names = {name for name, info in self._snapshot().topics.items() if info.partitions}
        return names - INTERNAL_TOPICS if exclude_internal_topics else names

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of *topic*; None if unknown."""
        info = self._info(topic)
        return None if info is None else set(range(len(info.partitions)))

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of *topic* with a leader; None if unknown."""
        info = self._info(topic)
        if info is None:
            return None
        return {partition for partition, leader in enumerate(info.leaders) if leader != NO_LEADER}

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """Return the id of the leader of *partition*; -1 without a leader; None if the partition is unknown."""
        info = self._info(partition.topic)
        if info is None or not 0 <= partition.partition < len(info.leaders):
            return None
        return info.leaders[partition.partition]

    def partitions_for_broker(self, broker_id: int) -> set[TopicPartition]:
        """Return the partitions that a broker leads."""
        return {
            TopicPartition(name, partition)
            for name, info in self._snapshot().topics.items()
            for partition, leader in enumerate(info.leaders)
            if leader == broker_id
        }

    def _info(self, topic: str) -> TopicInfo | None:
        info = self._snapshot().topics.get(topic)
        return info if info is not None and info.partitions else None


class AIOKafkaClient:
    """The `client` of a producer: the brokers and their reachability."""

    def __init__(
        self,
        producer: Producer,
        bootstrap_servers: str | Sequence[str],
        connecting: dict[str, Any],
    ) -> None:
        """*connecting* contains the options of an aiokafka client, for requests that aioproducer lacks."""
        self._producer = producer
        self._bootstrap_servers = bootstrap_servers
        self._client_id = producer.config.client_id
        self._connecting = connecting
        self._aiokafka_client: asyncio.Future[Any] | None = None
        self.cluster: ClusterMetadata = ClusterMetadata(self._snapshot)

    def get_random_node(self) -> int | None:
        """Return the id of any broker, or None before the start."""
        brokers = list(self._snapshot().brokers)
        return random.choice(brokers) if brokers else None

    async def bootstrap(self) -> None:
        """Return immediately, because `start` of the producer has fetched the metadata."""

    async def ready(self, node_id: int, **_: object) -> bool:
        """Return True if a broker is connected, after a connection attempt if necessary."""
        engine = self._engine()
        broker = engine.updater.snapshot.brokers.get(node_id)
        if broker is None:
            return False
        deadline = engine.intake.loop.time() + self._producer.config.connection_settings().setup_timeout_s
        failed_before = engine.pool.last_error(node_id)
        while engine.pool.get(node_id) is None:
            failed = engine.pool.last_error(node_id)
            if engine.intake.loop.time() >= deadline or (failed is not None and failed is not failed_before):
                return False
            engine.pool.connect_soon(node_id, broker.address)
            await asyncio.sleep(POLL_S)
        return True

    async def force_metadata_update(self) -> bool:
        """Refresh the metadata of the producer's topics. Return True if a broker responded."""
        engine = self._engine()
        deadline = engine.intake.loop.time() + self._producer.config.max_block_s
        topics = [name for name, info in engine.updater.snapshot.topics.items() if info.partitions]
        try:
            if not topics:
                await engine.updater.whole_cluster()
            for outcome in await asyncio.gather(
                *(engine.updater.topic(each, deadline, refresh=True) for each in topics)
            ):
                assert outcome.partitions
        except ProducerError:
            return False
        return True

    def add_topic(self, topic: str) -> asyncio.Future[bool]:
        """Request the metadata of *topic*. The Future's result is True once the partitions are known."""
        return self.set_topics([topic])

    def set_topics(self, topics: Sequence[str]) -> asyncio.Future[bool]:
        """Request the metadata of *topics*; of all known topics if *topics* is empty. Other topics stay known."""
        engine = self._engine()
        deadline = engine.intake.loop.time() + self._producer.config.max_block_s
        return asyncio.ensure_future(
            self._known(topics, deadline) if topics else self.force_metadata_update()
        )

    async def _known(self, topics: Sequence[str], deadline: float) -> bool:
        updater = self._engine().updater
        outcomes = await asyncio.gather(
            *(updater.topic(each, deadline) for each in topics), return_exceptions=True
        )
        return not any(isinstance(each, BaseException) for each in outcomes)

    async def fetch_all_metadata(self) -> ClusterMetadata:
        """Return the cluster with all its topics. Raises: a KafkaError if no broker answers."""
        with translating():
            answer = await self._engine().updater.whole_cluster()
        everything = [each.name for each in answer.topics if each.name is not None]
        snapshot = MetadataSnapshot().with_answer(answer, asked=everything, complete=True, now=0.0)
        return ClusterMetadata(lambda: snapshot)

    async def send(self, node_id: int, request: Any, **more: Any) -> Any:
        """Send a request object of aiokafka to a broker, through a client of aiokafka that the first call creates.

        Some programs create topics by this method. The method requires an installed aiokafka.
        """
        if self._aiokafka_client is None:
            self._aiokafka_client = asyncio.ensure_future(self._make_theirs())
        try:
            theirs = await asyncio.shield(self._aiokafka_client)
        except Exception:
            self._aiokafka_client = None
            raise
        return await theirs.send(node_id, request, **more)

    async def close(self) -> None:
        """Close the client of `send`. The producer closes all other connections."""
        theirs, self._aiokafka_client = self._aiokafka_client, None
        if theirs is not None:
            await (await theirs).close()

    async def _make_theirs(self) -> Any:
        from aiokafka.client import AIOKafkaClient as TheirClient  # noqa: PLC0415 - aiokafka is optional

        theirs = TheirClient(
            bootstrap_servers=self._bootstrap_servers, client_id=self._client_id, **self._connecting
        )
        await theirs.bootstrap()
        return theirs

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        with translating():
            return set(await self._producer.partitions_for(topic))

    def _snapshot(self) -> MetadataSnapshot:
        engine = self._producer._engine  # noqa: SLF001 - of this package
        return MetadataSnapshot() if engine is None else engine.updater.snapshot

    def _engine(self) -> Engine:
        engine = self._producer._engine  # noqa: SLF001 - of this package
        if engine is None:
            with translating():
                raise ProducerClosed("the producer is not started")
        return engine


class Sender:
    """The sender task, whose state health checks read."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    @property
    def sender_task(self) -> asyncio.Task[None] | None:
        """The task; None before the start."""
        engine = self._producer._engine  # noqa: SLF001 - of this package
        return None if engine is None else engine.sending

    _sender_task = sender_task
