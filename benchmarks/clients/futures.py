"""Base of clients whose awaited call returns the Future of a record."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterator
from itertools import cycle, islice
from typing import Any, TypeAlias

from benchmarks.clients.base import Client, Record, rows
from benchmarks.payload import Window

HandOver: TypeAlias = Callable[..., Awaitable[Future[Any]]]

TURN_EVERY = 500
"""Number of records between two yields to the event loop, in a program whose call needs no await."""


class FuturesClient(Client):
    """Client whose call with `topic, value, key, headers=` returns a Future when awaited."""

    @property
    @abstractmethod
    def hand_over(self) -> HandOver:
        """Call that appends one record."""

    async def futures(self, window: Window) -> list[Future[Any]]:
        """Append the records of *window* one by one and return their Futures."""
        topic, hand_over = self.topic, self.hand_over
        if window.keys is None and window.headers is None:
            return [await hand_over(topic, value) for value in window.values]
        return [
            await hand_over(topic, value, key, headers=headers or ()) for value, key, headers in rows(window)
        ]

    async def fire(self, window: Window) -> None:
        """Append records one by one, then wait for each."""
        for future in await self.futures(window):
            await future

    async def outcomes(self, window: Window) -> list[tuple[int, int]]:
        """Send *window* and return the partition and the offset of each record."""
        sent = await asyncio.gather(*await self.futures(window))
        return [(each.partition, each.offset) for each in sent]

    async def callbacks(self, window: Window) -> None:
        """Add a callback to each record's Future, and wait until all callbacks were called."""
        topic, hand_over, left = self.topic, self.hand_over, len(window)
        errors: list[BaseException] = []
        all_called = asyncio.Event()

        def resolved(future: Future[Any]) -> None:
            nonlocal left
            error = future.exception()
            if error is not None:
                errors.append(error)
            left -= 1
            if not left:
                all_called.set()

        if window.keys is None and window.headers is None:
            for value in window.values:
                (await hand_over(topic, value)).add_done_callback(resolved)
        else:
            for value, key, headers in rows(window):
                future = await hand_over(topic, value, key, headers=headers or ())
                future.add_done_callback(resolved)
        await all_called.wait()
        if errors:
            raise errors[0]

    async def gather(self, window: Window, count: int) -> None:
        """Append *count* records of *window*, then gather their Futures."""
        topic, hand_over = self.topic, self.hand_over
        if window.keys is None and window.headers is None:
            futures = [await hand_over(topic, value) for value in islice(cycle(window.values), count)]
        else:
            futures = [
                await hand_over(topic, value, key, headers=headers or ())
                for value, key, headers in repeated(window, count)
            ]
        await asyncio.gather(*futures)


def repeated(window: Window, count: int) -> Iterator[Record]:
    """Yield the value, key and headers of *count* records, from *window* repeatedly."""
    return islice(cycle(rows(window)), count)
