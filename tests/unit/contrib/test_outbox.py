from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from aioproducer import (
    ConfigError,
    InvalidRecord,
    Producer,
    ProducerError,
    TopicAuthorizationFailed,
    TransactionOutcomeUnknown,
)
from aioproducer.contrib.outbox import OutboxRow, ShardTaken, relay
from aioproducer.testing import Cluster

ONCE = "shop-outbox-0"
in_each_mode = pytest.mark.parametrize("mode", [None, ONCE], ids=["at-least-once", "exactly-once"])


class Stopped(Exception):
    """The store has no more rows, or its process has ended here."""


class Table:
    """A shard of an outbox in memory."""

    def __init__(self, *rows: OutboxRow) -> None:
        self.rows = {row.id: row for row in rows}
        self.refused: dict[int, str] = {}
        self.claim = 0
        self.note = ""


class MemoryStore:
    """A store that ends the relay at a step, *stop_at*, or when the table is empty."""

    def __init__(self, table: Table, stop_at: str = "") -> None:
        self.table, self.stop_at = table, stop_at
        self.number = 0
        self.reads: list[int] = []

    async def claim(self) -> tuple[int, str]:
        self.table.claim += 1
        self.number = self.table.claim
        return self.number, self.table.note

    async def read(self, limit: int) -> Sequence[OutboxRow]:
        rows = [row for row in self.table.rows.values() if row.id not in self.table.refused][:limit]
        self.reads.append(len(rows))
        return rows

    async def note(self, note: str) -> None:
        self._at("prepared")
        self._check()
        self.table.note = note
        self._at("noted")

    async def finish(self, delivered: Sequence[int], refused: Mapping[int, str]) -> None:
        self._at("committed")
        self._check()
        for row_id in delivered:
            del self.table.rows[row_id]
        self.table.refused |= refused
        self.table.note = ""
        self._at("finished")

    async def wait(self) -> None:
        raise Stopped

    def _check(self) -> None:
        if self.number != self.table.claim:
            raise ShardTaken

    def _at(self, step: str) -> None:
        if step == self.stop_at:
            raise Stopped


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(topics={"orders": 1, "parcels": 1}) as cluster:
        yield cluster


def rows(count: int, topic: str = "orders", first: int = 1) -> list[OutboxRow]:
    return [OutboxRow(each, topic, b"k%d" % (each % 3), b"%d" % each) for each in range(first, first + count)]


def values(cluster: Cluster, topic: str = "orders") -> list[bytes | None]:
    return [each.value for each in cluster.records(topic, 0, isolation_level="read_committed")]


async def run(
    cluster: Cluster, table: Table, mode: str | None, stop_at: str = "", **options: Any
) -> MemoryStore:
    store = MemoryStore(table, stop_at)
    with pytest.raises(Stopped):
        await relay(store, cluster.bootstrap_servers, transactional_id=mode, **options)
    return store


@in_each_mode
async def test_rows_are_sent_in_order_with_headers(cluster: Cluster, mode: str | None) -> None:
    traced = OutboxRow(8, "parcels", None, None, [("traceparent", b"00-1-2-01")])
    table = Table(*rows(7), traced)
    store = await run(cluster, table, mode, rows_at_once=5)
    assert values(cluster) == [b"%d" % each for each in range(1, 8)]
    (parcel,) = cluster.records("parcels", 0, isolation_level="read_committed")
    assert (parcel.key, parcel.value, parcel.headers) == (None, None, (("traceparent", b"00-1-2-01"),))
    assert (table.rows, table.note, store.reads) == ({}, "", [5, 3, 0])


@pytest.mark.parametrize("version", [1, 2], ids=["TV1", "TV2"])
@pytest.mark.parametrize("step", ["prepared", "noted", "committed", "finished"])
async def test_rows_are_committed_once_when_a_relay_ends_at_a_step(
    cluster: Cluster, step: str, version: int
) -> None:
    cluster.transaction_version = version
    table = Table(*rows(6))
    await run(cluster, table, ONCE, step, rows_at_once=3)
    await run(cluster, table, ONCE, rows_at_once=3)
    assert values(cluster) == [b"%d" % each for each in range(1, 7)]
    assert (table.rows, table.note) == ({}, "")


async def expire(cluster: Cluster, table: Table) -> None:
    """Prepare a transaction, note it, and let its time run out."""

    class Expiring(MemoryStore):
        async def note(self, note: str) -> None:
            await super().note(note)
            while cluster.transaction_state(f"{ONCE}-1") != "CompleteAbort":  # noqa: ASYNC110 - the cluster has no event
                await asyncio.sleep(0.01)

    store = Expiring(table)
    with pytest.raises(ProducerError):
        await relay(store, cluster.bootstrap_servers, transactional_id=ONCE, transaction_timeout_ms=100)


async def test_expired_transaction_is_sent_again_on_tv2(cluster: Cluster) -> None:
    table = Table(*rows(3))
    await expire(cluster, table)
    assert (values(cluster), bool(table.note)) == ([], True)
    await run(cluster, table, ONCE)
    assert values(cluster) == [b"1", b"2", b"3"]


async def test_expired_transaction_needs_an_operator_on_tv1(cluster: Cluster) -> None:
    cluster.transaction_version = 1
    table = Table(*rows(3))
    await expire(cluster, table)
    with pytest.raises(TransactionOutcomeUnknown):
        await relay(MemoryStore(table), cluster.bootstrap_servers, transactional_id=ONCE)
    assert len(table.rows) == 3
    assert table.note


async def test_noted_transaction_is_committed_before_at_least_once(cluster: Cluster) -> None:
    table = Table(*rows(3))
    await run(cluster, table, ONCE, "noted")
    await run(cluster, table, None)
    assert values(cluster) == [b"1", b"2", b"3"]


@in_each_mode
async def test_too_large_row_is_set_aside(cluster: Cluster, mode: str | None) -> None:
    large = OutboxRow(2, "orders", b"k1", bytes(2_000_000))
    table = Table(rows(1)[0], large, *rows(3, first=3), *rows(2, "parcels", first=6))
    await run(cluster, table, mode)
    assert values(cluster) == [b"1", b"3", b"4", b"5"]
    assert values(cluster, "parcels") == [b"6", b"7"]
    assert list(table.refused) == [2]
    assert table.refused[2].startswith("RecordTooLarge: ")


@in_each_mode
@pytest.mark.parametrize(
    "wrong",
    [
        OutboxRow(2, "no topic/", b"k1", b"v"),
        OutboxRow(2, "orders", b"k1", b"v", [("\ud800", b"")]),
    ],
    ids=["topic", "header"],
)
async def test_invalid_row_is_set_aside_alone(cluster: Cluster, mode: str | None, wrong: OutboxRow) -> None:
    table = Table(rows(1)[0], wrong, *rows(3, first=3))
    await run(cluster, table, mode)
    assert values(cluster) == [b"1", b"3", b"4", b"5"]
    assert list(table.refused) == [2]
    assert table.refused[2].startswith("ValueError: ")


@in_each_mode
async def test_refused_row_is_set_aside_when_its_batch_is_refused(cluster: Cluster, mode: str | None) -> None:
    table = Table(*rows(3))
    cluster.on("produce", times=2).answer(InvalidRecord)
    await run(cluster, table, mode)
    assert values(cluster) == [b"2", b"3"]
    assert list(table.refused) == [1]


@in_each_mode
async def test_other_errors_end_the_relay_and_keep_the_rows(cluster: Cluster, mode: str | None) -> None:
    table = Table(*rows(3))
    cluster.on("produce").answer(TopicAuthorizationFailed)
    with pytest.raises(ProducerError):
        await relay(MemoryStore(table), cluster.bootstrap_servers, transactional_id=mode)
    assert (len(table.rows), table.refused, table.note) == (3, {}, "")
    await run(cluster, table, mode)
    assert values(cluster) == [b"1", b"2", b"3"]


async def test_rows_behind_a_failed_row_of_their_key_are_sent_again(cluster: Cluster) -> None:
    """The broker refuses the first record and accepts the second; the last copies are in order."""
    table = Table(
        OutboxRow(1, "orders", b"same", b"a"),
        OutboxRow(2, "orders", b"same", b"b"),
        OutboxRow(3, "orders", b"other", b"c"),
    )
    cluster.on("produce").answer(InvalidRecord, record_errors={0: "no"})
    store = await run(cluster, table, None)
    assert values(cluster) == [b"b", b"c", b"a", b"b"]
    assert (table.refused, store.reads) == ({}, [3, 1, 1, 0])


async def test_worker_whose_shard_was_taken_aborts(cluster: Cluster) -> None:
    table = Table(*rows(3))

    class Taken(MemoryStore):
        async def note(self, note: str) -> None:
            self.table.claim += 1
            await super().note(note)

    with pytest.raises(ShardTaken):
        await relay(Taken(table), cluster.bootstrap_servers, transactional_id=ONCE)
    assert cluster.transaction_state(f"{ONCE}-1") in {"PrepareAbort", "CompleteAbort"}
    assert (values(cluster), len(table.rows)) == ([], 3)


async def test_worker_is_fenced_by_the_next_claim(cluster: Cluster) -> None:
    table = Table(*rows(3))
    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    go_on = asyncio.Event()

    class Slow(MemoryStore):
        async def read(self, limit: int) -> Sequence[OutboxRow]:
            found = await super().read(limit)
            reached.set_result(None)
            await go_on.wait()
            return found

    slow = asyncio.create_task(relay(Slow(table), cluster.bootstrap_servers, transactional_id=ONCE))
    await reached
    await run(cluster, table, ONCE)
    go_on.set()
    with pytest.raises(ProducerError) as caught:
        await slow
    assert caught.value.fatal
    assert values(cluster) == [b"1", b"2", b"3"]


@in_each_mode
async def test_started_producer_is_passed_on(cluster: Cluster, mode: str | None) -> None:
    started: list[Producer] = []
    await run(cluster, Table(*rows(3)), mode, on_start=started.append)
    (producer,) = started
    assert producer.metrics()["producer"]["record_send_total"] == 3


@in_each_mode
async def test_cancelled_relay_completes_the_rows_in_hand(cluster: Cluster, mode: str | None) -> None:
    table = Table(*rows(3))
    produce = cluster.on("produce").delay(0.1)
    task = asyncio.create_task(relay(MemoryStore(table), cluster.bootstrap_servers, transactional_id=mode))
    await produce.happened()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert table.rows == {}
    assert values(cluster) == [b"1", b"2", b"3"]


@in_each_mode
async def test_refused_row_among_many_is_found_in_few_rounds(cluster: Cluster, mode: str | None) -> None:
    large = OutboxRow(150, "orders", b"k0", bytes(2_000_000))
    table = Table(*rows(149), large, *rows(50, first=151))
    store = await run(cluster, table, mode)
    assert values(cluster) == [b"%d" % each for each in range(1, 201) if each != 150]
    assert list(table.refused) == [150]
    assert len(store.reads) < 40


async def test_wrong_options_raise_before_the_claim() -> None:
    table = Table()
    options: Any = {"acks": 7}
    with pytest.raises(ConfigError):
        await relay(MemoryStore(table), "localhost:9092", **options)
    assert table.claim == 0
