"""A worker that sends the rows of one shard of an outbox, exactly once; PostgreSQL by asyncpg, others by SQLAlchemy.

    python -m examples.outbox.worker postgresql://shop@localhost/shop localhost:9092 0
    python -m examples.outbox.worker sqlite+aiosqlite:///shop.db localhost:9092 0

Start one for each shard, and as many more as you like: those wait.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from sqlalchemy.ext.asyncio import create_async_engine

from aioproducer import ConfigError, ProducerError
from aioproducer.contrib.outbox import OutboxStore, ShardTaken, relay
from examples.outbox import postgres, sqlalchemy_store

log = logging.getLogger("outbox")

PAUSE_S: Final = 2
"""Before the next attempt, when the database or Kafka has failed."""


@asynccontextmanager
async def opened(database: str, shard: int) -> AsyncIterator[OutboxStore]:
    """Yield the store of a shard."""
    if database.startswith("postgresql://"):
        connection = await postgres.connect(database)
        try:
            yield postgres.PostgresStore(connection, shard)
        finally:
            await connection.close()
    else:
        engine = create_async_engine(database)
        try:
            await sqlalchemy_store.create_tables(engine)
            store = sqlalchemy_store.SqlStore(engine, shard)
            try:
                yield store
            finally:
                with suppress(ShardTaken):
                    await store.release()
        finally:
            await engine.dispose()


async def run(database: str, servers: str, shard: int) -> None:
    """Relay until SIGTERM; after every failure claim the shard again."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    while True:
        try:
            async with opened(database, shard) as store:
                await relay(
                    store,
                    servers,
                    transactional_id=f"shop-outbox-{shard}",  # leave it out: at least once, and faster
                    delivery_timeout_ms=20_000,  # SIGTERM waits for the rows in hand
                    request_timeout_ms=10_000,
                )
        except ConfigError:
            raise
        except ShardTaken as error:
            log.warning("outbox.taken %s", error)
        except ProducerError as error:  # Kafka has failed: the message has the cause
            log.warning("outbox.failed shard=%d retry_in=%d s error=%s", shard, PAUSE_S, error)
        except Exception:  # whatever it is, the rows are still there
            log.exception("outbox.failed shard=%d retry_in=%d s", shard, PAUSE_S)
        await asyncio.sleep(PAUSE_S)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    with suppress(asyncio.CancelledError):  # SIGTERM
        asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
