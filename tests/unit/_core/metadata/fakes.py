"""A cluster, the connections to it and a pool of them, without a socket; made for virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from aioproducer._core.address import Address
from aioproducer._core.backoff import Backoff
from aioproducer._core.metadata.refresh_schedule import MetadataSettings
from aioproducer._core.metadata.staggered import Refusals
from aioproducer._core.net.connection import Connection
from aioproducer._core.protocol.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from aioproducer.errors import (
    ConnectionFailed,
    ProducerError,
    SaslAuthenticationFailed,
    UnknownTopicOrPartition,
)
from tests.unit._core.metadata.answers import answer, port_of, refused

LATENCY_S = 0.001
SETUP_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0


def now() -> float:
    return asyncio.get_running_loop().time()


def address_of(node_id: int) -> Address:
    return Address(f"b{node_id}", port_of(node_id))


def settings(
    *bootstrap: int,
    backoff: Backoff | None = None,
    max_age_s: float = 300.0,
    max_idle_s: float = 300.0,
    rebootstrap: bool = True,
    rebootstrap_trigger_s: float = 300.0,
    checks_cluster: bool = True,
) -> MetadataSettings:
    return MetadataSettings(
        bootstrap=tuple(address_of(each) for each in bootstrap or (1,)),
        max_age_s=max_age_s,
        max_idle_s=max_idle_s,
        backoff=backoff or Backoff(0.1, 1.0),
        request_timeout_s=REQUEST_TIMEOUT_S,
        rebootstrap=rebootstrap,
        rebootstrap_trigger_s=rebootstrap_trigger_s,
        checks_cluster=checks_cluster,
    )


class FakeCluster:
    """Fake brokers, their metadata, and the requests that they received."""

    def __init__(self, *nodes: int) -> None:
        self.nodes = list(nodes or (1, 2, 3))
        """Those that answers name."""
        self.topics: dict[str, MetadataResponseTopic] = {}
        self.away: set[int] = set()
        """Refuse connections."""
        self.deaf: set[int] = set()
        """Accept connections and then say nothing."""
        self.refusing: set[int] = set()
        """Accept connections and refuse every login."""
        self.mute: set[int] = set()
        """Shake hands, and never answer."""
        self.refused_logins = 0
        self.latency_s = LATENCY_S
        self.closing_s = 0.0
        self.next_answers: list[MetadataResponse | bytes | ProducerError] = []
        """Given before anything else, each once."""
        self.asked: list[tuple[float, int, tuple[str, ...]]] = []
        """When, who, for what."""
        self.connections: list[FakeConnection] = []

    @property
    def open_connections(self) -> list[FakeConnection]:
        return [each for each in self.connections if not each.closed]

    @property
    def asked_for(self) -> list[tuple[str, ...]]:
        return [topics for _, _, topics in self.asked]

    def has(self, *topics: MetadataResponseTopic) -> None:
        self.topics.update({str(each.name): each for each in topics})

    async def open(self, address: Address, _: Refusals | None = None) -> Connection:
        return cast("Connection", await self.connect(address.port - port_of(0)))

    async def connect(self, node_id: int) -> FakeConnection:
        await asyncio.sleep(self.latency_s)
        if node_id in self.deaf:
            await asyncio.sleep(SETUP_TIMEOUT_S)
            raise ConnectionFailed(f"{address_of(node_id)}: the handshake did not end")
        if node_id in self.away:
            raise ConnectionFailed(f"{address_of(node_id)}: refused")
        if node_id in self.refusing:
            self.refused_logins += 1
            raise SaslAuthenticationFailed(
                f"{address_of(node_id)}: refused the login",
                broker=str(address_of(node_id)),
                mechanism="PLAIN",
            )
        connection = FakeConnection(self, node_id)
        self.connections.append(connection)
        return connection

    async def respond(self, node_id: int, request: MetadataRequest) -> MetadataResponse | bytes:
        names = tuple(str(each.name) for each in request.topics or ())
        self.asked.append((now(), node_id, names))
        await asyncio.sleep(self.latency_s)
        if node_id in self.mute:
            await asyncio.sleep(REQUEST_TIMEOUT_S)
            raise ConnectionFailed(f"{address_of(node_id)}: no answer in time")
        if self.next_answers:
            following = self.next_answers.pop(0)
            if isinstance(following, ProducerError):
                raise following
            return following
        known = [self.topics.get(name) or refused(name, UnknownTopicOrPartition) for name in names]
        return answer(*known, nodes=self.nodes)


class FakeConnection:
    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self._cluster = cluster
        self.node_id = node_id
        self.closed = False
        self.throttled_until = 0.0
        self.error: ProducerError | None = None
        self.waited_for = False

    def __str__(self) -> str:
        return str(address_of(self.node_id))

    @property
    def is_throttled(self) -> bool:
        return self.throttled_until > now()

    async def request(self, request: Any, *, version: int | None = None) -> Any:
        return await self._cluster.respond(self.node_id, request)

    def retire(self) -> None:
        self.closed = True

    def close(self, cause: ProducerError | None = None) -> None:
        self.closed, self.error = True, cause

    async def wait_closed(self) -> None:
        assert self.closed, "it would be waited for for ever"
        await asyncio.sleep(self._cluster.closing_s)
        self.waited_for = True


class FakePool:
    """Connects in the background as the cluster lets it, with a pause after a failure."""

    def __init__(self, cluster: FakeCluster, pause_s: float = 0.05) -> None:
        self._cluster = cluster
        self._pause_s = pause_s
        self._connections: dict[int, FakeConnection] = {}
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._next_attempt_at: dict[int, float] = {}
        self._errors: dict[int, ProducerError] = {}
        self.attempts: list[tuple[float, int]] = []
        self.followed: list[dict[int, Address]] = []
        self.cluster_id: str | None = None
        """The one that nodes have to be of."""
        self.adopts = False
        """Whether it takes over connections that others have opened."""
        self.on_connected: Callable[[int], None] = lambda _: None
        self.on_disconnected: Callable[[int, ProducerError | None], None] = lambda *_: None

    async def connect(self, *nodes: int) -> None:
        """Have connections to *nodes* before the test begins; the earlier in the list, the less loaded."""
        for node_id in nodes:
            self._connections[node_id] = await self._cluster.connect(node_id)

    def follow(self, addresses: Mapping[int, Address], cluster_id: str | None = None) -> None:
        self.followed.append(dict(addresses))
        self.cluster_id = cluster_id

    def start_over(self, cause: ProducerError) -> None:
        for connection in self._connections.values():
            connection.close(cause)
        self._connections.clear()

    def adopt(self, connection: Connection, node_id: int, address: Address) -> bool:
        assert address == address_of(node_id)
        if self.adopts:
            self._connections[node_id] = cast("FakeConnection", connection)
        return self.adopts

    def lose(self, node_id: int) -> None:
        """Lose the connection to a broker that is away from now on."""
        self._cluster.away.add(node_id)
        if node_id in self._connections:
            self._connections.pop(node_id).close()
        self._failed(node_id, ConnectionFailed(f"{address_of(node_id)}: lost"))

    def get(self, node_id: int) -> Connection | None:
        return cast("Connection | None", self._connections.get(node_id))

    def least_loaded(self, candidates: Iterable[int], avoided: int = -1) -> Connection | None:
        wanted = set(candidates)
        usable = [each for each in self._connections if each in wanted]
        return self.get(min(usable, key=lambda each: each == avoided)) if usable else None

    @property
    def nodes(self) -> list[int]:
        return list(self._connections)

    def forget(self, node_id: int) -> None:
        connection = self._connections.pop(node_id, None)
        if connection is not None:
            connection.retire()

    def next_attempt_at(self, node_id: int) -> float | None:
        return self._next_attempt_at.get(node_id)

    def last_error(self, node_id: int) -> ProducerError | None:
        return self._errors.get(node_id)

    def connect_soon(self, node_id: int, address: Address) -> None:
        assert address == address_of(node_id)
        if node_id in self._connections or node_id in self._connecting:
            return
        if self._next_attempt_at.get(node_id, 0.0) <= now():
            self._next_attempt_at.pop(node_id, None)
            self.attempts.append((now(), node_id))
            self._connecting[node_id] = asyncio.create_task(self._connect(node_id))

    async def close(self) -> None:
        for task in self._connecting.values():
            task.cancel()
        await asyncio.gather(*self._connecting.values(), return_exceptions=True)

    async def _connect(self, node_id: int) -> None:
        try:
            self._connections[node_id] = await self._cluster.connect(node_id)
        except ProducerError as error:
            del self._connecting[node_id]
            self._failed(node_id, error)
        else:
            del self._connecting[node_id]
            self.on_connected(node_id)

    def _failed(self, node_id: int, error: ProducerError) -> None:
        self._next_attempt_at[node_id] = now() + self._pause_s
        self._errors[node_id] = error
        self.on_disconnected(node_id, error)
