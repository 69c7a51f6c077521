"""Fakes for classes that do I/O, controlled by the test. `test_fakes` compares them with the real classes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from aioproducer._core.address import Address
from aioproducer._core.metadata.snapshot import Broker, LeaderHint, MetadataSnapshot, PartitionInfo, TopicInfo
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.metrics import NodeCounters
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.in_flight import Decode
from aioproducer._core.net.pool import Pool, RefusedLogins
from aioproducer._core.protocol.produce import ProduceRequest
from aioproducer._core.protocol.schema import ApiVersionTable, decode_response
from aioproducer.errors import ConnectionFailed, MetadataTimeout, ProducerError


@dataclass
class Call:
    """A request that a fake connection was given."""

    request: Any
    answer: Callable[[Any], None]
    version: int | None
    """Which one is asked for; None for the highest that both know."""
    decode: Decode


class FakeConnection:
    """Takes requests; the test answers them."""

    def __init__(self, node_id: int = 1) -> None:
        self.node_id = node_id
        self.counters = NodeCounters(0.0)
        self.last_used = 0.0
        self.calls: list[Call] = []
        self.asked_in: list[int | None] = []
        """The version of each request there was."""
        self.unanswered: list[Any] = []
        """Requests that no answer is expected to."""
        self.error: ProducerError | None = None
        """What the next calls raise."""
        self.closed = False
        self.closed_for: ProducerError | None = None
        self.throttled_until = 0.0
        self.is_paused = False
        self.is_reading = False
        self.read_at = 0.0
        self.after_read: Callable[[], None] | None = None
        self.versions = ApiVersionTable({ProduceRequest.API_KEY: (3, 13)})
        self.drains: list[asyncio.Future[None]] = []
        self.full = False
        """Whether the socket has something to take: until a test has let `drain` go on."""

    def __str__(self) -> str:
        return f"b{self.node_id}:9092 (node {self.node_id})"

    @property
    def in_flight(self) -> int:
        return len(self.calls)

    @property
    def real(self) -> Connection:
        return cast("Connection", self)

    def call(
        self,
        request: Any,
        on_answer: Callable[[Any], None],
        version: int | None = None,
        decode: Decode = decode_response,
        now: float | None = None,
    ) -> None:
        self._check()
        self.calls.append(Call(request, on_answer, version, decode))
        self.asked_in.append(version)

    def write_only(self, request: Any, *, version: int | None = None) -> None:
        self._check()
        self.unanswered.append(request)
        self.asked_in.append(version)
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

    async def wait_unthrottled(self) -> None:
        await asyncio.sleep(self.throttled_until - asyncio.get_running_loop().time())

    def close(self, cause: ProducerError | None = None) -> None:
        if self.closed:
            return
        self.closed = True
        self.closed_for = cause
        failed, self.calls = self.calls, []
        for call in failed:
            call.answer(cause or ConnectionFailed(f"{self}: closed"))

    def _check(self) -> None:
        if self.closed:
            raise ConnectionFailed(f"{self}: the connection is closed", written=False)
        if self.error is not None:
            raise self.error

    def answer(self, answer: Any, *, read_s_ago: float = 0.0) -> None:
        """Answer the oldest call, as when it is read."""
        self.is_reading, self.read_at = True, asyncio.get_running_loop().time() - read_s_ago
        try:
            self.calls.pop(0).answer(answer)
        finally:
            self.is_reading, callback, self.after_read = False, self.after_read, None
            if callback is not None:
                callback()


class FakePool:
    """Connects when the test says so."""

    def __init__(self, *connected: int) -> None:
        self.connections = {node_id: FakeConnection(node_id) for node_id in connected}
        self.wanted: list[tuple[int, Address]] = []
        self.backing_off_until: dict[int, float] = {}
        self.errors: dict[int, ProducerError] = {}
        self.refused: dict[int, RefusedLogins] = {}

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

    def refused_logins(self, node_id: int) -> RefusedLogins | None:
        return self.refused.get(node_id)

    def least_loaded(self, candidates: Iterable[int], avoided: int = -1) -> FakeConnection | None:
        usable = [connection for each in candidates if (connection := self.get(each)) is not None]
        return min(usable, key=lambda each: (each.in_flight, each.node_id == avoided), default=None)


@dataclass
class FakeUpdater:
    """Metadata updater with topics from the test; `topic` waits until the test answers."""

    snapshot: MetadataSnapshot = field(default_factory=MetadataSnapshot)
    refreshes: list[frozenset[str] | None] = field(default_factory=list)
    """The topics of each `request_refresh`; None: all."""
    doubted: list[tuple[int, dict[str, list[int]]]] = field(default_factory=list)
    """The node of each `mark_leader_stale`, and what it refused."""
    touched: list[str] = field(default_factory=list)
    used_until: dict[str, float] = field(default_factory=dict)
    hints: list[tuple[list[LeaderHint], list[Broker]]] = field(default_factory=list)
    asked: list[tuple[str, bool, asyncio.Future[TopicInfo]]] = field(default_factory=list)
    """Who waits in `topic`: its name, and whether refresh."""

    @property
    def real(self) -> MetadataUpdater:
        return cast("MetadataUpdater", self)

    def knows(self, topic: str, *leaders: int, nodes: Iterable[int] = (1,)) -> TopicInfo:
        """Let the snapshot have *topic* with a partition per leader, and *nodes*."""
        info = topic_info(topic, *leaders)
        brokers = {each: Broker(each, f"b{each}", 9092) for each in nodes}
        self.snapshot = MetadataSnapshot(brokers=brokers, topics={**self.snapshot.topics, topic: info})
        return info

    def request_refresh(self, topics: Iterable[str] | None = None) -> None:
        self.refreshes.append(None if topics is None else frozenset(topics))

    def mark_leader_stale(self, node_id: int, refused: Mapping[str, Collection[int]]) -> None:
        self.doubted.append((node_id, {topic: list(each) for topic, each in refused.items()}))

    def mark_used(self, topic: str, now: float) -> None:
        self.touched.append(topic)
        self.used_until[topic] = now

    def take_leader_hints(self, hints: Iterable[LeaderHint], endpoints: Iterable[Broker]) -> None:
        self.hints.append((list(hints), list(endpoints)))

    def fail_all(self, error: Callable[[], ProducerError]) -> None:
        for _, _, answered in self.asked:
            if not answered.done():
                answered.set_exception(error())

    async def topic(
        self, name: str, deadline: float, *, refresh: bool = False, partition: int | None = None
    ) -> TopicInfo:
        refresh = refresh or partition is not None
        if self.snapshot.knows(name) and not refresh:
            self.mark_used(name, asyncio.get_running_loop().time())
            return self.snapshot.topics[name]
        answered: asyncio.Future[TopicInfo] = asyncio.get_running_loop().create_future()
        self.asked.append((name, refresh, answered))
        try:
            async with asyncio.timeout_at(deadline):
                return await answered
        except TimeoutError as error:
            raise MetadataTimeout(f"topic {name} did not become known") from error


def topic_info(topic: str, *leaders: int) -> TopicInfo:
    partitions = tuple(PartitionInfo(index, leader, 0) for index, leader in enumerate(leaders))
    return TopicInfo(topic, b"\0" * 16, partitions)
