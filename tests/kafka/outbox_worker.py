"""The worker of examples/outbox, which kills or stops itself at a step, and ends when its shard is empty.

python -m tests.kafka.outbox_worker DATABASE SERVERS SHARD ID [STEP [kill | stop]]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from aioproducer import PreparedTransaction
from aioproducer._transactional import Transaction
from aioproducer.contrib.outbox import OutboxRow, OutboxStore, relay
from examples.outbox import sqlalchemy_store
from examples.outbox.worker import opened

STEPS = ("read", "sent", "prepared", "noted", "committed", "finished")
ROWS_AT_ONCE = 10


class Empty(Exception):
    """The shard has no rows."""


class Watched(OutboxStore):
    """A store that ends its process at a step."""

    def __init__(self, store: OutboxStore, step: str, how: str) -> None:
        self._store, self._step, self._how = store, step, how

    def at(self, step: str) -> None:
        if step == self._step:
            os.kill(os.getpid(), signal.SIGSTOP if self._how == "stop" else signal.SIGKILL)

    async def claim(self) -> tuple[int, str]:
        return await self._store.claim()

    async def read(self, limit: int) -> Sequence[OutboxRow]:
        rows = await self._store.read(limit)
        self.at("read")
        return rows

    async def note(self, note: str) -> None:
        self.at("prepared")
        await self._store.note(note)
        self.at("noted")

    async def finish(self, delivered: Sequence[int], refused: Mapping[int, str]) -> None:
        self.at("committed")
        await self._store.finish(delivered, refused)
        self.at("finished")

    async def wait(self) -> None:
        raise Empty


async def main(database: str, servers: str, shard: int, name: str, step: str = "", how: str = "kill") -> None:
    sqlalchemy_store.LEASE_S = 1.0
    prepare = Transaction.prepare
    async with opened(database, shard) as store:
        watched = Watched(store, step, how)

        async def watched_prepare(self: Transaction, timeout_s: float | None = None) -> PreparedTransaction:
            watched.at("sent")
            return await prepare(self, timeout_s)

        Transaction.prepare = watched_prepare  # type: ignore[method-assign]
        timeout_ms = int(os.environ.get("TRANSACTION_MS", "60000"))
        options = {"transactional_id": name, "transaction_timeout_ms": timeout_ms} if name else {}
        try:
            await relay(watched, servers, rows_at_once=ROWS_AT_ONCE, **options)  # type: ignore[arg-type]
        except Empty:
            return


if __name__ == "__main__":
    database, servers, shard, *others = sys.argv[1:]
    asyncio.run(main(database, servers, int(shard), *others))
