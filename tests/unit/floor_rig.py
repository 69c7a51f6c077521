"""What intake and sender work on: real batches and queues, with fakes for the floors that do I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from aioproducer.backoff import Backoff
from aioproducer.batching.accumulator import Accumulator
from aioproducer.batching.batch import Batch, RecordFuture
from aioproducer.batching.batching_settings import BatchingSettings
from aioproducer.batching.completion import BatchCompletion
from aioproducer.batching.partition_queue import PartitionQueue
from aioproducer.batching.topic import TopicQueues
from aioproducer.batching.waiters import Failure
from aioproducer.errors import ConnectionFailed, ProducerError
from aioproducer.idempotence.identity import IdentityKeeper, ProducerIdentity
from aioproducer.metadata.snapshot import Broker, LeaderHint, MetadataSnapshot, PartitionInfo, TopicInfo
from aioproducer.metadata.updater import MetadataUpdater
from aioproducer.metrics.counters import NodeTally
from aioproducer.net.address import Address
from aioproducer.net.connection import Connection
from aioproducer.net.pool import Pool, Refusal
from aioproducer.records.compression import Codec
from aioproducer.records.record_columns import RecordColumns
from aioproducer.records.sizes import record_size_bound
from aioproducer.sender.sender_settings import SenderSettings
from aioproducer.types import Headers

TOPIC = "orders"
NODE = 1
FIRST = ProducerIdentity(7, 0)
"""The identity that brokers give out first."""


def batching_settings(**changes: Any) -> BatchingSettings:
    defaults: dict[str, Any] = {
        "batch_bytes": 16_384,
        "linger_s": 0.005,
        "linger_is_adaptive": False,
        "buffer_bytes": 1_000_000,
        "max_request_bytes": 100_000,
        "delivery_timeout_s": 120.0,
        "max_in_flight": 5,
        "idempotent": True,
        "batch_cap_s": 300.0,
    }
    return BatchingSettings(**(defaults | changes))


def sender_settings(**changes: Any) -> SenderSettings:
    defaults: dict[str, Any] = {
        "acks": -1,
        "idempotent": True,
        "max_in_flight": 5,
        "retries": 2**31 - 1,
        "request_timeout_s": 30.0,
        "retry_backoff": Backoff(0.1, 1.0, jitter=0.0),
        "codec": Codec.NONE,
        "compression_level": None,
    }
    return SenderSettings(**(defaults | changes))


class Witness:
    """The completion's observer: remembers every outcome it is told."""

    def __init__(self) -> None:
        self.delivered_batches: list[tuple[Batch, int, int]] = []
        self.failures: list[tuple[Batch, int, Failure]] = []
        self.retried_batches: list[Batch] = []
        self.split_batches: list[Batch] = []

    def delivered(self, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        self.delivered_batches.append((batch, base_offset, log_append_time_ms))

    def failed(self, batch: Batch, records: RecordColumns, failure: Failure) -> None:
        self.failures.append((batch, len(records), failure))

    def retried(self, batch: Batch) -> None:
        self.retried_batches.append(batch)

    def split(self, batch: Batch) -> None:
        self.split_batches.append(batch)


@dataclass
class Call:
    """A request that a fake connection was given."""

    request: Any
    answer: Callable[[Any], None]


class FakeConnection:
    """Takes requests; the test answers them."""

    def __init__(self, node_id: int = NODE) -> None:
        self.node_id = node_id
        self.tally = NodeTally(0.0)
        self.last_used = 0.0
        self.calls: list[Call] = []
        self.unanswered: list[Any] = []
        """Requests that no answer is expected to."""
        self.error: ProducerError | None = None
        """What the next calls raise."""
        self.closed = False
        self.closed_for: ProducerError | None = None
        self.throttled_until = 0.0
        self.drains: list[asyncio.Future[None]] = []
        self.full = False  # until a test has let `drain` go on

    def __str__(self) -> str:
        return f"b{self.node_id}:9092 (node {self.node_id})"

    @property
    def in_flight(self) -> int:
        return len(self.calls)

    @property
    def real(self) -> Connection:
        return cast("Connection", self)

    def call(self, request: Any, on_answer: Callable[[Any], None], *, version: int | None = None) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append(Call(request, on_answer))

    def write_only(self, request: Any) -> None:
        if self.error is not None:
            raise self.error
        self.unanswered.append(request)
        self.full = True

    async def drain(self) -> None:
        if not self.full:
            return
        drained = asyncio.get_running_loop().create_future()
        self.drains.append(drained)
        try:
            await drained
        finally:
            self.full = False

    def close(self, cause: ProducerError | None = None) -> None:
        self.closed = True
        self.closed_for = cause

    def answer(self, answer: Any) -> None:
        """Answer the oldest call."""
        self.calls.pop(0).answer(answer)


class FakePool:
    """Connects when the test says so."""

    def __init__(self, *connected: int) -> None:
        self.connections = {node_id: FakeConnection(node_id) for node_id in connected}
        self.wanted: list[tuple[int, Address]] = []
        self.backing_off_until: dict[int, float] = {}
        self.errors: dict[int, ProducerError] = {}
        self.refusals: dict[int, Refusal] = {}

    @property
    def real(self) -> Pool:
        return cast("Pool", self)

    def get(self, node_id: int) -> FakeConnection | None:
        connection = self.connections.get(node_id)
        return None if connection is None or connection.closed else connection

    def connect_soon(self, node_id: int, address: Address) -> None:
        self.wanted.append((node_id, address))

    def next_attempt_at(self, node_id: int) -> float | None:
        return self.backing_off_until.get(node_id)

    def last_error(self, node_id: int) -> ProducerError | None:
        return self.errors.get(node_id)

    def refusal(self, node_id: int) -> Refusal | None:
        return self.refusals.get(node_id)

    def least_loaded(self, candidates: Iterable[int]) -> FakeConnection | None:
        usable = [connection for each in candidates if (connection := self.get(each)) is not None]
        return min(usable, key=lambda connection: connection.in_flight, default=None)


@dataclass
class FakeUpdater:
    """Knows what the test tells it; `topic` waits until the test answers."""

    snapshot: MetadataSnapshot = field(default_factory=MetadataSnapshot)
    refreshes: list[frozenset[str] | None] = field(default_factory=list)
    """The topics of each `request_refresh`; None: all."""
    doubted: list[tuple[int, dict[str, list[int]]]] = field(default_factory=list)
    """The node of each `doubt_leader`, and what it refused."""
    touched: list[str] = field(default_factory=list)
    hints: list[tuple[list[LeaderHint], list[Broker]]] = field(default_factory=list)
    asked: list[tuple[str, bool, asyncio.Future[TopicInfo]]] = field(default_factory=list)
    """Who waits in `topic`: its name, and whether anew."""

    @property
    def real(self) -> MetadataUpdater:
        return cast("MetadataUpdater", self)

    def knows(self, topic: str, *leaders: int, nodes: Iterable[int] = (NODE,)) -> TopicInfo:
        """Let the snapshot have *topic* with a partition per leader, and *nodes*."""
        info = topic_info(topic, *leaders)
        brokers = {each: Broker(each, f"b{each}", 9092) for each in nodes}
        self.snapshot = MetadataSnapshot(brokers=brokers, topics={**self.snapshot.topics, topic: info})
        return info

    def request_refresh(self, topics: Iterable[str] | None = None) -> None:
        self.refreshes.append(None if topics is None else frozenset(topics))

    def doubt_leader(self, node_id: int, refused: Mapping[str, Collection[int]]) -> None:
        self.doubted.append((node_id, {topic: list(each) for topic, each in refused.items()}))

    def touch(self, topic: str) -> None:
        self.touched.append(topic)

    def take_leader_hints(self, hints: Iterable[LeaderHint], endpoints: Iterable[Broker]) -> None:
        self.hints.append((list(hints), list(endpoints)))

    async def topic(self, name: str, deadline: float, *, anew: bool = False) -> TopicInfo:
        if self.snapshot.knows(name) and not anew:
            return self.snapshot.topics[name]
        answered: asyncio.Future[TopicInfo] = asyncio.get_running_loop().create_future()
        self.asked.append((name, anew, answered))
        async with asyncio.timeout_at(deadline):
            return await answered


def topic_info(topic: str, *leaders: int) -> TopicInfo:
    partitions = tuple(PartitionInfo(index, leader, 0) for index, leader in enumerate(leaders))
    return TopicInfo(topic, b"\0" * 16, partitions)


class FloorRig:
    """An accumulator and a completion on the running loop, with one topic that `NODE` leads."""

    def __init__(self, *, partitions: int = 1, identified: bool = True, **settings: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.identities = IdentityKeeper()
        if identified:
            self.identities.assign(*FIRST)
        self.wakes = 0
        self.updater = FakeUpdater()
        self.accumulator = Accumulator(
            batching_settings(**settings),
            self.identities,
            loop=self.loop,
            wake=self._wake,
            touch=self.updater.touch,
        )
        self.witness = Witness()
        self.completion = BatchCompletion(self.accumulator, observer=self.witness)
        if partitions:
            self.learn(TOPIC, *[NODE] * partitions)

    def learn(self, topic: str, *leaders: int) -> TopicQueues:
        """Let *topic* be known, to the updater too."""
        self.updater.knows(topic, *leaders)
        queues = self.accumulator.topic(topic)
        self.accumulator.update_topic(topic, list(leaders))
        return queues

    def recognise(self, partitions: int) -> None:
        """Let the leaders have acknowledged something before: batches may follow each other unanswered."""
        for partition in range(partitions):
            sequences = self.queue(partition).sequences
            sequences.acknowledged_here = sequences.may_assign(self.identities, unsettled=False)

    def queue(self, partition: int = 0) -> PartitionQueue:
        return self.accumulator.topics[TOPIC][partition]

    def append(
        self, value: bytes | None = b"value", *, partition: int = 0, headers: Headers = ()
    ) -> RecordFuture:
        """Append one record; there has to be memory."""
        future = self.accumulator.append(
            self.accumulator.topics[TOPIC],
            self.queue(partition),
            value,
            None,
            headers,
            1_000,
            record_size_bound(value, None, headers),
            asyncio.Future,
        )
        assert future is not None
        return future

    def fill(self, *values: bytes, partition: int = 0) -> Batch:
        """Append *values* for nobody in particular, and return the open batch they are in."""
        for value in values or (b"value",):
            _ = self.append(value, partition=partition)
        batch = self.queue(partition).open
        assert batch is not None
        return batch

    def drain(self, node_id: int = NODE) -> list[Batch]:
        """Seal what is open, and take one batch per partition, as the sender does."""
        for batch in tuple(self.accumulator.unresolved):
            if self.accumulator.queue(batch).open is batch:
                self.accumulator.seal(batch, self.loop.time())
        return self.accumulator.schedule.drain(node_id, self.loop.time(), 2**31)

    def sent(self, *values: bytes, partition: int = 0) -> tuple[Batch, list[RecordFuture]]:
        """Append *values* and return their batch, which is with the broker, and their Futures."""
        futures = [self.append(value, partition=partition) for value in values or (b"value",)]
        [batch] = self.drain()
        batch.written()
        return batch, futures

    def _wake(self) -> None:
        self.wakes += 1


async def settle() -> None:
    """Let everything happen that can happen now; no time passes."""
    for _ in range(50):
        await asyncio.sleep(0)


def lost(*, written: bool = True) -> ConnectionFailed:
    return ConnectionFailed("b1:9092 (node 1): lost", written=written)


def lose(*batches: Batch) -> None:
    """Let the connection be lost that *batches* were written to: each may be in the log."""
    for batch in batches:
        batch.connection_lost(lost(), reached_socket=True)


def doubt(*batches: Batch) -> None:
    """Let *batches*, which are out, be out for the second time: the first answer was lost."""
    lose(*batches)
    for batch in batches:
        batch.written()


def back_off(queue: PartitionQueue, batch: Batch, at: float) -> None:
    """Let *batch*, of *queue* and in flight, wait to be sent again at *at*."""
    queue.remove(batch)
    batch.retry(at)
    queue.retry(batch)
