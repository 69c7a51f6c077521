"""An outbox in any database that SQLAlchemy knows: the tables, the call that adds a row, and the store for the relay.

One worker per shard: `claim` takes a lease. The owner raises `beat` with every read; whoever sees the same beat for
LEASE_S takes the shard over. No clock of another machine is read.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from zlib import crc32

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    bindparam,
    delete,
    insert,
    select,
    update,
)

from aioproducer.contrib.outbox import OutboxRow, ShardTaken

SHARDS: Final = 4
"""Workers that can run at a time. To change the number, let the workers empty the table first."""
LEASE_S = 60.0
"""Longer than `delivery_timeout_ms`: then everything that the last owner has sent is settled before others send."""
POLL_S = 0.2

METADATA: Final = MetaData()
OUTBOX: Final = Table(
    "outbox",
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("shard", Integer, nullable=False),
    Column("topic", String(249), nullable=False),
    Column("key", LargeBinary),
    Column("value", LargeBinary),
    Column("headers", Text, nullable=False),
    Column("refused", Text),
    Index("outbox_to_send", "shard", "id"),
    sqlite_autoincrement=True,  # no id is used twice
)
SHARD: Final = Table(
    "outbox_shard",
    METADATA,
    Column("shard", Integer, primary_key=True, autoincrement=False),
    Column("claim", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("note", Text, nullable=False),
)


async def create_tables(engine: Any) -> None:
    """Create the tables and the shards that are missing."""
    async with engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
        there = {row.shard for row in await connection.execute(select(SHARD.c.shard))}
        missing = [
            {"shard": each, "claim": 0, "beat": 0, "note": ""} for each in range(SHARDS) if each not in there
        ]
        if missing:
            await connection.execute(insert(SHARD), missing)


async def add(
    session: Any, topic: str, key: bytes | None, value: bytes | None, headers: Mapping[str, str] | None = None
) -> None:
    """Add a record to the outbox, in the transaction of *session* (an AsyncSession or AsyncConnection).

    Order per key: update the key's own row first, as its lock makes the ids ascend in the order of the commits.
    """
    await session.execute(
        insert(OUTBOX).values(
            shard=crc32(key or b"") % SHARDS,
            topic=topic,
            key=key,
            value=value,
            headers=json.dumps(dict(headers or {})),
        )
    )


class SqlStore:
    """One shard, on the connections of an AsyncEngine."""

    def __init__(self, engine: Any, shard: int) -> None:
        self._engine = engine
        self._shard = shard
        self._claim = 0

    async def claim(self) -> tuple[int, str]:
        """Wait until the owner has released the shard, or has given no sign of life for LEASE_S."""
        seen: Any = None
        since = 0.0
        while True:
            async with self._engine.begin() as connection:
                row = (await connection.execute(select(SHARD).where(SHARD.c.shard == self._shard))).one()
                if (row.claim, row.beat) != seen:
                    seen, since = (row.claim, row.beat), time.monotonic()
                if row.beat == 0 or time.monotonic() - since > LEASE_S:
                    taken = await connection.execute(
                        update(SHARD)
                        .where(
                            SHARD.c.shard == self._shard, SHARD.c.claim == row.claim, SHARD.c.beat == row.beat
                        )
                        .values(claim=row.claim + 1, beat=1)
                    )
                    if taken.rowcount:
                        self._claim = row.claim + 1
                        note = select(SHARD.c.note).where(SHARD.c.shard == self._shard)
                        return self._claim, (await connection.execute(note)).scalar_one()
            await asyncio.sleep(POLL_S)

    async def read(self, limit: int) -> list[OutboxRow]:
        """Return the oldest rows, and renew the lease."""
        async with self._engine.begin() as connection:
            await self._set(connection, beat=SHARD.c.beat + 1)
            rows = await connection.execute(
                select(OUTBOX)
                .where(OUTBOX.c.shard == self._shard, OUTBOX.c.refused.is_(None))
                .order_by(OUTBOX.c.id)
                .limit(limit)
            )
            return [
                OutboxRow(
                    row.id,
                    row.topic,
                    row.key,
                    row.value,
                    [(name, text.encode()) for name, text in json.loads(row.headers).items()],
                )
                for row in rows
            ]

    async def note(self, note: str) -> None:
        """Store the decision to commit."""
        async with self._engine.begin() as connection:
            await self._set(connection, note=note)

    async def finish(self, delivered: Sequence[int], refused: Mapping[int, str]) -> None:
        """Delete the rows that were delivered; a refused one stays, with the reason, until somebody mends it."""
        async with self._engine.begin() as connection:
            await self._set(connection, note="")
            if delivered:
                await connection.execute(
                    delete(OUTBOX).where(OUTBOX.c.id == bindparam("row")),
                    [{"row": each} for each in delivered],
                )
            if refused:
                await connection.execute(
                    update(OUTBOX).where(OUTBOX.c.id == bindparam("row")).values(refused=bindparam("why")),
                    [{"row": each, "why": why} for each, why in refused.items()],
                )

    async def wait(self) -> None:
        """Wait a moment."""
        await asyncio.sleep(POLL_S)

    async def release(self) -> None:
        """Let the next worker claim the shard at once."""
        async with self._engine.begin() as connection:
            await self._set(connection, beat=0)

    async def _set(self, connection: Any, **values: Any) -> None:
        done = await connection.execute(
            update(SHARD).where(SHARD.c.shard == self._shard, SHARD.c.claim == self._claim).values(**values)
        )
        if not done.rowcount:
            raise ShardTaken(f"shard {self._shard}: another worker has claimed it")
