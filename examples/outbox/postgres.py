"""An outbox in PostgreSQL, by asyncpg: the tables, the call that adds a row, and the store for the relay.

One worker per shard: `claim` takes an advisory lock, which PostgreSQL releases when the worker's connection ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from zlib import crc32

import asyncpg

from aioproducer.contrib.outbox import OutboxRow, ShardTaken

SHARDS: Final = 4
"""Workers that can run at a time. To change the number, let the workers empty the table first."""
LOCKS: Final = 0x6F7574
"""First half of the advisory locks' keys; the second half is the shard."""
POLL_S: Final = 0.2

TABLES: Final = f"""
CREATE TABLE IF NOT EXISTS outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    shard int NOT NULL,
    topic text NOT NULL,
    key bytea,
    value bytea,
    headers text NOT NULL DEFAULT '{{}}',
    refused text
);
CREATE INDEX IF NOT EXISTS outbox_to_send ON outbox (shard, id) WHERE refused IS NULL;
CREATE TABLE IF NOT EXISTS outbox_shard (
    shard int PRIMARY KEY,
    claim bigint NOT NULL DEFAULT 0,
    note text NOT NULL DEFAULT ''
);
INSERT INTO outbox_shard (shard) SELECT generate_series(0, {SHARDS - 1}) ON CONFLICT DO NOTHING;
"""


async def add(
    connection: Any,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Add a record to the outbox, in the transaction that *connection* is in.

    Order per key: update the key's own row first, as its lock makes the ids ascend in the order of the commits.
    """
    await connection.execute(
        "INSERT INTO outbox (shard, topic, key, value, headers) VALUES ($1, $2, $3, $4, $5)",
        crc32(key or b"") % SHARDS,
        topic,
        key,
        value,
        json.dumps(dict(headers or {})),
    )


class PostgresStore:
    """One shard, on a connection of its own: the advisory lock belongs to the connection (no transaction pooling)."""

    def __init__(self, connection: Any, shard: int) -> None:
        self._connection = connection
        self._shard = shard
        self._claim = 0

    async def claim(self) -> tuple[int, str]:
        """Wait for the lock; then fence the claims before this one."""
        await self._connection.execute("SELECT pg_advisory_lock($1, $2)", LOCKS, self._shard)
        claimed = await self._connection.fetchrow(
            "UPDATE outbox_shard SET claim = claim + 1 WHERE shard = $1 RETURNING claim, note", self._shard
        )
        self._claim = claimed["claim"]
        return self._claim, claimed["note"]

    async def read(self, limit: int) -> list[OutboxRow]:
        """Return the oldest rows."""
        rows = await self._connection.fetch(
            "SELECT id, topic, key, value, headers FROM outbox"
            " WHERE shard = $1 AND refused IS NULL ORDER BY id LIMIT $2",
            self._shard,
            limit,
        )
        return [
            OutboxRow(
                row["id"],
                row["topic"],
                row["key"],
                row["value"],
                [(name, text.encode()) for name, text in json.loads(row["headers"]).items()],
            )
            for row in rows
        ]

    async def note(self, note: str) -> None:
        """Store the decision to commit."""
        await self._set_note(note)

    async def finish(self, delivered: Sequence[int], refused: Mapping[int, str]) -> None:
        """Delete the rows that were delivered; a refused one stays, with the reason, until somebody mends it."""
        async with self._connection.transaction():
            await self._set_note("")
            await self._connection.execute("DELETE FROM outbox WHERE id = ANY($1::bigint[])", list(delivered))
            await self._connection.executemany(
                "UPDATE outbox SET refused = $2 WHERE id = $1", list(refused.items())
            )

    async def wait(self) -> None:
        """Wait a moment."""
        await asyncio.sleep(POLL_S)

    async def _set_note(self, note: str) -> None:
        done = await self._connection.execute(
            "UPDATE outbox_shard SET note = $1 WHERE shard = $2 AND claim = $3",
            note,
            self._shard,
            self._claim,
        )
        if done != "UPDATE 1":
            raise ShardTaken(f"shard {self._shard}: another worker has claimed it")


async def connect(database: str) -> Any:
    """Connect and create the tables."""
    connection = await asyncpg.connect(database)
    await connection.execute(TABLES)
    return connection
