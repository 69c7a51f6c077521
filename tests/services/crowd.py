"""Clients that order and click as fast as they are answered, and keep account of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from itertools import count
from typing import Any

import httpx


class Crowd:
    """Any number of clients of one service. Each goes on until it is not answered any more.

    *name* is in every record, so that a log may have the records of others, too.
    """

    def __init__(self, client: httpx.AsyncClient, name: str) -> None:
        self._client = client
        self._name = name
        self._numbers = count()
        self._answered = asyncio.Condition()
        self.orders: dict[int, tuple[int, int]] = {}
        """Those answered with 200: partition and offset."""
        self.clicks: set[str] = set()
        """Those answered with 202."""
        self.unanswered = 0

    async def order(self) -> None:
        """Place one order, which is to succeed."""
        number = next(self._numbers)
        answer = await self._client.post("/orders", json={"order": number, "customer": self._name})
        assert answer.status_code == 200, answer.text
        self.orders[number] = (answer.json()["partition"], answer.json()["offset"])
        async with self._answered:
            self._answered.notify_all()

    async def click(self) -> None:
        """Click once; it is to be accepted."""
        page = f"{self._name}-{next(self._numbers)}"
        answer = await self._client.post("/clicks", json={"page": page})
        assert answer.status_code == 202, answer.text
        self.clicks.add(page)

    async def order_and_click_to_the_end(self) -> None:
        """Be one of the crowd, until the service closes the connection or takes none."""
        while True:
            try:
                await self.order()
                await self.click()
            except httpx.TimeoutException:
                raise  # left hanging: neither answered nor refused
            except httpx.TransportError:
                self.unanswered += 1
                return

    async def orders_answered(self, number: int) -> None:
        """Return when so many orders have succeeded."""
        async with self._answered:
            await self._answered.wait_for(lambda: len(self.orders) >= number)

    def check_orders(self, log: Iterable[tuple[int, int, bytes | None]]) -> None:
        """Check that *log* (partition, offset, value) has the orders that succeeded, once, where it was told, and no other.

        No other: a request that got no answer has done nothing, and may be sent again.
        """
        found = [
            (json.loads(value)["order"], (partition, offset))
            for partition, offset, value in log
            if value is not None and json.loads(value)["customer"] == self._name
        ]
        assert sorted(found) == sorted(self.orders.items())

    def check_clicks(self, values: Iterable[bytes | None]) -> None:
        """Check that *values* has each click that was accepted, once. One whose answer was lost may be there, too."""
        pages: Counter[Any] = Counter(json.loads(value or b"{}").get("page") for value in values)
        assert {page: pages[page] for page in self.clicks} == dict.fromkeys(self.clicks, 1)
