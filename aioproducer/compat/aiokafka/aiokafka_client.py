"""The parts of an aiokafka producer that programs read besides its methods: `client`, `client.cluster`, `_sender`."""

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

LOOK_AGAIN_S = 0.02
"""`ready()` looks this often whether there is a connection: whoever asks is a health check, and in no hurry."""


class ClusterMetadata:
    """The cluster as last heard of, in aiokafka's words. Reads only."""

    def __init__(self, snapshot: Callable[[], MetadataSnapshot]) -> None:
        self._snapshot = snapshot

    def brokers(self) -> set[BrokerMetadata]:
        """Return the brokers; none before the start."""
        return {BrokerMetadata(*each) for each in self._snapshot().brokers.values()}

    def broker_metadata(self, broker_id: int) -> BrokerMetadata | None:
        """Return a broker, or None if there is none of this id."""
        broker = self._snapshot().brokers.get(broker_id)
        return None if broker is None else BrokerMetadata(*broker)

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:  # noqa: FBT001, FBT002 - aiokafka's
        """Return the topics that are in use, and exist."""
        names = {name for name, info in self._snapshot().topics.items() if info.partitions}
        return names - INTERNAL_TOPICS if exclude_internal_topics else names

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of *topic*; None if they are not known."""
        info = self._info(topic)
        return None if info is None else set(range(len(info.partitions)))

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return those of them that have a leader."""
        info = self._info(topic)
        if info is None:
            return None
        return {partition for partition, leader in enumerate(info.leaders) if leader != NO_LEADER}

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """Return the id of the broker that leads *partition*; -1: nobody; None: it is not known."""
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
    """The `client` of a producer: who the brokers are, and whether they can be reached."""

    def __init__(
        self,
        producer: Producer,
        bootstrap_servers: str | Sequence[str],
        connecting: dict[str, Any],
    ) -> None:
        """*connecting* is what aiokafka's own client needs, if somebody has requests for one."""
        self._producer = producer
        self._bootstrap_servers = bootstrap_servers
        self._client_id = producer.config.client_id
        self._connecting = connecting
        self._theirs: asyncio.Future[Any] | None = None
        self.cluster: ClusterMetadata = ClusterMetadata(self._snapshot)

    def get_random_node(self) -> int | None:
        """Return the id of any broker, or None before the start."""
        brokers = list(self._snapshot().brokers)
        return random.choice(brokers) if brokers else None

    async def bootstrap(self) -> None:
        """Do nothing: the start of the producer has done it."""

    async def ready(self, node_id: int, **_: object) -> bool:
        """Return whether there is a connection to a broker, after an attempt to make one."""
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
            await asyncio.sleep(LOOK_AGAIN_S)
        return True

    async def force_metadata_update(self) -> bool:
        """Ask a broker for what the producer knows of its topics; return whether one has answered."""
        engine = self._engine()
        deadline = engine.intake.loop.time() + self._producer.config.max_block_s
        topics = [name for name, info in engine.updater.snapshot.topics.items() if info.partitions]
        try:
            if not topics:
                await engine.updater.whole_cluster()
            for outcome in await asyncio.gather(
                *(engine.updater.topic(each, deadline, anew=True) for each in topics)
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
        """Send a request of aiokafka's to a broker, by a client of aiokafka's that is made for it.

        Some programs create their topics so. Whoever has such a request has aiokafka, too.
        """
        if self._theirs is None:
            self._theirs = asyncio.ensure_future(self._make_theirs())
        try:
            theirs = await asyncio.shield(self._theirs)
        except Exception:
            self._theirs = None
            raise
        return await theirs.send(node_id, request, **more)

    async def close(self) -> None:
        """Close what `send` has opened; the producer closes the rest itself."""
        theirs, self._theirs = self._theirs, None
        if theirs is not None:
            await (await theirs).close()

    async def _make_theirs(self) -> Any:
        from aiokafka.client import AIOKafkaClient as Theirs  # noqa: PLC0415 - few need it, and it need not be there

        theirs = Theirs(
            bootstrap_servers=self._bootstrap_servers, client_id=self._client_id, **self._connecting
        )
        await theirs.bootstrap()
        return theirs

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        with translating():
            return set(await self._producer.partitions_for(topic))

    def _snapshot(self) -> MetadataSnapshot:
        engine = self._producer._engine  # noqa: SLF001 - our own
        return MetadataSnapshot() if engine is None else engine.updater.snapshot

    def _engine(self) -> Engine:
        engine = self._producer._engine  # noqa: SLF001 - our own
        if engine is None:
            with translating():
                raise ProducerClosed("the producer is not started")
        return engine


class Sender:
    """The task that sends: whether it lives is what health checks ask."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    @property
    def sender_task(self) -> asyncio.Task[None] | None:
        """The task; None before the start."""
        engine = self._producer._engine  # noqa: SLF001 - our own
        return None if engine is None else engine.sending

    @property
    def _sender_task(self) -> asyncio.Task[None] | None:
        return self.sender_task
