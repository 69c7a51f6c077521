"""Interface of all measured clients. The interface is thin, because its cost is part of every measurement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable
from itertools import repeat
from typing import Any, ClassVar, TypeAlias

from benchmarks.payload import Header, Window
from benchmarks.settings import Settings, Work

Send: TypeAlias = Callable[[], Awaitable[Any]]
Record: TypeAlias = tuple[bytes, bytes | None, list[Header] | None]


class Client(ABC):
    """One producer that writes to one topic.

    A client implements the methods of every workload in `workloads`. `call` and `call_whole` return a partial call of the
    client's own method, and `enqueue` returns the result of that method: a wrapper function costs a twentieth of a fast
    send, and a wrapper coroutine a tenth.
    """

    workloads: ClassVar[frozenset[Work]]
    distribution: ClassVar[str]
    """Name of the client's package on PyPI."""

    def __init__(self, servers: str, topic: str, settings: Settings) -> None:
        self.servers = servers
        self.topic = topic
        self.settings = settings

    @abstractmethod
    async def start(self) -> None:
        """Import the client, make a producer, and connect."""

    @abstractmethod
    async def close(self) -> None:
        """Close the producer."""

    def call(self, value: bytes) -> Send:
        """Return the call that sends one record. Awaiting the call waits for the acknowledgement."""
        raise NotImplementedError

    def call_whole(self, value: bytes, key: bytes | None, headers: list[Header] | None) -> Send:
        """Return the call that sends one record with a key and headers. Awaiting the call waits for the acknowledgement."""
        raise NotImplementedError

    def enqueue(self, value: bytes) -> Awaitable[Future[Any]]:
        """Append one record. The awaited call returns the Future of the acknowledgement."""
        raise NotImplementedError

    async def fire(self, window: Window) -> None:
        """Append records one by one, then wait for the outcome of each."""
        raise NotImplementedError

    async def outcomes(self, window: Window) -> list[tuple[int, int]] | None:
        """Send *window* and return the partition and offset of each record; None if the client reports none."""
        await self.fire(window)
        return None

    async def callbacks(self, window: Window) -> None:
        """Append records one by one, each with a callback, and wait until all callbacks were called."""
        raise NotImplementedError

    async def gather(self, window: Window, count: int) -> None:
        """Append *count* records one by one, from *window* repeatedly, then gather the outcomes."""
        raise NotImplementedError

    async def bulk(self, window: Window) -> None:
        """Append records, with one call if the client has a call for many records. `settle` waits for the acknowledgements."""
        raise NotImplementedError

    async def transact(self, window: Window) -> None:
        """Begin a transaction, append the records, commit."""
        raise NotImplementedError

    async def settle(self) -> None:  # noqa: B027 - most clients have nothing to wait for
        """Wait for the acknowledgement of all records of `bulk` and `enqueue`."""


def rows(window: Window) -> Iterable[Record]:
    """Return the value, key and headers of each record."""
    return zip(window.values, window.keys or repeat(None), window.headers or repeat(None), strict=False)


def sends(client: Client, window: Window) -> list[Send]:
    """Return the calls that send the records of *window*, one call per record."""
    if window.keys is None and window.headers is None:
        return [client.call(value) for value in window.values]
    return [client.call_whole(*record) for record in rows(window)]
