"""What every client is measured through: as thin as can be, since what it costs is measured too."""

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

    The methods that a kind of work needs are there if `works` names it. `call` and `call_whole` return a call of the
    client's own method with its arguments, as a user writes it, and `enqueue` what that returns: a function around a send
    costs a twentieth of a fast one, and a coroutine a tenth.
    """

    works: ClassVar[frozenset[Work]]
    distribution: ClassVar[str]
    """What the package index calls it."""

    def __init__(self, servers: str, topic: str, settings: Settings) -> None:
        self.servers = servers
        self.topic = topic
        self.settings = settings

    @abstractmethod
    async def start(self) -> None:
        """Import the client, make a producer, and connect."""

    @abstractmethod
    async def close(self) -> None:
        """End it."""

    def call(self, value: bytes) -> Send:
        """Return the call that sends one record; awaited, it is acknowledged."""
        raise NotImplementedError

    def call_whole(self, value: bytes, key: bytes | None, headers: list[Header] | None) -> Send:
        """Return the call that sends one record with a key and headers; awaited, it is acknowledged."""
        raise NotImplementedError

    def enqueue(self, value: bytes) -> Awaitable[Future[Any]]:
        """Hand one record over; awaited, it returns the Future of its acknowledgement."""
        raise NotImplementedError

    async def fire(self, window: Window) -> None:
        """Hand records over one by one, then wait for the outcome of each."""
        raise NotImplementedError

    async def outcomes(self, window: Window) -> list[tuple[int, int]] | None:
        """Send *window* and return the partition and offset of each record; None if the client reports none."""
        await self.fire(window)
        return None

    async def callbacks(self, window: Window) -> None:
        """Hand records over one by one, each with a callback, and wait until all callbacks were called."""
        raise NotImplementedError

    async def gather(self, window: Window, count: int) -> None:
        """Hand *count* records over one by one, from *window* again and again, then gather the outcomes."""
        raise NotImplementedError

    async def bulk(self, window: Window) -> None:
        """Hand records over with one call, if the client has one; they are acknowledged after `settle`."""
        raise NotImplementedError

    async def transact(self, window: Window) -> None:
        """Begin a transaction, hand the records over, commit."""
        raise NotImplementedError

    async def settle(self) -> None:  # noqa: B027 - for many there is nothing to do
        """Wait for everything that was handed over with `bulk` or `enqueue`."""


def rows(window: Window) -> Iterable[Record]:
    """Return the value, key and headers of each record."""
    return zip(window.values, window.keys or repeat(None), window.headers or repeat(None), strict=False)


def sends(client: Client, window: Window) -> list[Send]:
    """Return a call for each record of *window* that sends it."""
    if window.keys is None and window.headers is None:
        return [client.call(value) for value in window.values]
    return [client.call_whole(*record) for record in rows(window)]
