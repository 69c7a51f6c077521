"""Relay from an outbox table to Kafka: rows that a service wrote in its own database transactions become records.

    await relay(store, "localhost:9092", transactional_id="shop-outbox-0")

An `OutboxStore` is one shard of the table. docs/outbox.md has the tables, two stores and the promises.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, Unpack

from aioproducer import (
    PreparedTransaction,
    Producer,
    ProducerConfig,
    ProducerOptions,
    TransactionAdmin,
    errors,
)
from aioproducer.errors import ProducerError
from aioproducer.types import HeadersInput

REFUSED: Final = (errors.RecordTooLarge, errors.InvalidRecord, errors.InvalidTimestamp, ValueError)
"""Errors that a record causes by its content. In a batch or a transaction, another record may have caused the error."""


class OutboxRow(NamedTuple):
    """Row of an outbox table: one record to send."""

    id: int
    """Primary key. Ids of one topic and key ascend in the order of their records."""
    topic: str
    key: bytes | None
    value: bytes | None
    headers: HeadersInput = ()


class ShardTaken(Exception):
    """A later claim has taken the shard from this worker."""


class OutboxStore(Protocol):
    """One shard of an outbox table. Each method is one database transaction.

    After a later claim of the shard, `note` and `finish` must change nothing and raise `ShardTaken`; `read` may raise
    `ShardTaken`.
    """

    async def claim(self) -> tuple[int, str]:
        """Wait until the shard is free, claim it, and return the number of the claim and the stored note.

        Claims of a shard are numbered from 1, without gaps. The note is "" if none is stored.
        """

    async def read(self, limit: int) -> Sequence[OutboxRow]:
        """Return up to *limit* rows of the shard, the lowest ids first."""

    async def note(self, note: str) -> None:
        """Store *note*, one line."""

    async def finish(self, delivered: Sequence[int], refused: Mapping[int, str]) -> None:
        """Delete the rows *delivered*, set the rows *refused* aside with their errors, and clear the note."""

    async def wait(self) -> None:
        """Return when the shard may have new rows: after a notification, or after a pause."""


async def relay(
    store: OutboxStore,
    bootstrap_servers: str | Sequence[str],
    *,
    rows_at_once: int = 500,
    on_start: Callable[[Producer], object] | None = None,
    **options: Unpack[ProducerOptions],
) -> None:
    """Send the rows of one shard, in order per topic and key, until the call fails or is cancelled.

    Without a `transactional_id` each row is sent at least once. With a `transactional_id`, each row is committed
    exactly once; the id is a prefix, to which each claim adds its number. Rows that are refused for their content are
    set aside. Every other error ends the call; a new call with a new store continues, and loses nothing. A cancelled
    call first completes the rows in hand, within `delivery_timeout_ms`; a second cancellation ends the call at once.

    Args:
        store: the shard.
        bootstrap_servers: as for `Producer`.
        rows_at_once: number of rows in one database and Kafka transaction.
        on_start: called with the started producer, for example `contrib.prometheus.expose`.
        options: as for `Producer`.

    Raises:
        ShardTaken: another worker has the shard.
        TransactionOutcomeUnknown: the outcome of the noted transaction cannot be determined; an operator must decide.
        ProducerError: records failed, or no broker was reached.
    """
    prefix = ProducerConfig(bootstrap_servers=bootstrap_servers, **options).transactional_id
    claim, note = await store.claim()
    if note or prefix:
        async with TransactionAdmin(bootstrap_servers, **options) as admin:
            if note:
                await _end_noted(store, admin, note)
            if prefix and claim > 1:  # the last worker could block readers, or continue
                await admin.fence(f"{prefix}-{claim - 1}")
    if prefix:
        options["transactional_id"] = f"{prefix}-{claim}"
    async with Producer(bootstrap_servers, **options) as producer:
        if on_start is not None:
            on_start(producer)
        limit = rows_at_once
        while True:
            if not (rows := await store.read(limit)):
                await store.wait()
                continue
            sending = asyncio.create_task(_send_rows(store, producer, rows, in_transaction=bool(prefix)))
            try:
                has_refused = await asyncio.shield(sending)
            except asyncio.CancelledError:
                with suppress(Exception):
                    await sending
                raise
            limit = max(1, len(rows) // 2) if has_refused else min(2 * limit, rows_at_once)


async def _end_noted(store: OutboxStore, admin: TransactionAdmin, note: str) -> None:
    """Commit the transaction that an earlier claim noted: the note is the decision."""
    noted = json.loads(note)
    try:
        await admin.end(PreparedTransaction.parse(noted["transaction"]), commit=True)
    except errors.TransactionLost:  # the rows are still in the table, and are sent again
        await store.finish((), {})
    else:
        await store.finish(noted["rows"], {})


async def _send_rows(
    store: OutboxStore, producer: Producer, rows: Sequence[OutboxRow], *, in_transaction: bool
) -> bool:
    """Send *rows* and record their outcomes. Return True if fewer rows must be sent to find a refused row."""
    failed = await (_commit(store, producer, rows) if in_transaction else _send(producer, rows))
    refused: dict[int, str] = {}
    for row_id, error in failed.items():
        is_certain = len(rows) == 1 or (isinstance(error, errors.RecordTooLarge) and not in_transaction)
        if isinstance(error, REFUSED) and is_certain and not getattr(error, "possibly_persisted", False):
            refused[row_id] = f"{type(error).__name__}: {error}"
    is_aborted = in_transaction and bool(failed)
    await store.finish(() if is_aborted else _delivered(rows, failed, refused), refused)
    remaining = [error for row_id, error in failed.items() if row_id not in refused]
    if len(rows) > 1 and any(isinstance(error, REFUSED) for error in remaining):
        return True
    for error in remaining:
        raise error
    return False


async def _commit(store: OutboxStore, producer: Producer, rows: Sequence[OutboxRow]) -> dict[int, Exception]:
    """Send *rows* in a transaction, note the transaction in the database, and commit; or abort and return the failures."""
    async with producer.transaction() as transaction:
        if failed := await _send(producer, rows):
            await producer.abort_transaction()
            return failed
        prepared = await transaction.prepare()
        try:
            await store.note(json.dumps({"transaction": str(prepared), "rows": [row.id for row in rows]}))
        except ShardTaken:  # the note is certainly not stored; other errors leave that unknown
            await producer.abort_transaction()
            raise
        await producer.commit_transaction()
    return {}


async def _send(producer: Producer, rows: Sequence[OutboxRow]) -> dict[int, Exception]:
    """Send *rows* and return the error of each row that failed."""
    failed: dict[int, Exception] = {}
    for topic in dict.fromkeys(row.topic for row in rows):
        of_topic = [row for row in rows if row.topic == topic]
        columns = [[getattr(row, name) for row in of_topic] for name in ("value", "key", "headers")]
        try:
            await producer.send_many(topic, columns[0], keys=columns[1], headers=columns[2])
        except (ProducerError, ValueError) as error:
            failures: Mapping[int, Exception] = dict.fromkeys(range(len(of_topic)), error)
            if isinstance(error, errors.SendManyError):
                failures = error.result.failures
            failed |= {of_topic[at].id: failure for at, failure in failures.items()}
    return failed


def _delivered(rows: Sequence[OutboxRow], failed: Collection[int], refused: Collection[int]) -> list[int]:
    """Return the ids of acknowledged rows, without rows behind a failed row of their topic and key."""
    delivered: list[int] = []
    behind: set[tuple[str, bytes | None]] = set()
    for row in rows:
        if row.id not in failed:
            if row.key is None or (row.topic, row.key) not in behind:
                delivered.append(row.id)
        elif row.id not in refused:
            behind.add((row.topic, row.key))
    return delivered
