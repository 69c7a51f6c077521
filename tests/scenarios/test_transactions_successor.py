"""A successor with the same transactional id beside its fenced predecessor, on the in-process broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from aioproducer import Producer, ProducerError, ProducerFenced, TransactionAdmin
from aioproducer._core.protocol.schema import ApiVersionTable, Request
from aioproducer._core.protocol.transactions import DescribeTransactionsRequest
from aioproducer._transactional import Transaction
from aioproducer.errors import CoordinatorLoadInProgress, UnsupportedVersion
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.scenarios.rig import cluster, scenario

ID = "orders-1"
in_each_version = pytest.mark.parametrize("version", [0, 1, 2], ids=["TV0", "TV1", "TV2"])
OFFSETS = {("orders", 0): 1}

Act = Callable[[Producer, Transaction, str], Awaitable[object]]


def producer_of(opened: Cluster, **options: Any) -> Producer:
    return Producer(opened.bootstrap_servers, transactional_id=ID, **options)


def committed(opened: Cluster) -> list[bytes | None]:
    return [each.value for each in opened.records("orders", 0, isolation_level="read_committed")]


async def nothing(_: Producer, _transaction: Transaction, _servers: str) -> None:
    """Do nothing."""


async def send(old: Producer, _: Transaction, _servers: str) -> None:
    await old.send("orders", b"old")


async def send_many(old: Producer, _: Transaction, _servers: str) -> None:
    for number in range(200):
        _future = await old.enqueue("orders", b"old-%d" % number, b"key", headers=[("h", b"v")])


async def send_offsets(old: Producer, _: Transaction, _servers: str) -> None:
    await old.send_offsets_to_transaction(OFFSETS, "group")


async def prepare(_: Producer, transaction: Transaction, _servers: str) -> None:
    await transaction.prepare()


async def end_elsewhere(old: Producer, transaction: Transaction, servers: str) -> None:
    prepared = await transaction.prepare()
    async with TransactionAdmin(servers) as admin:
        await admin.end(prepared, commit=False)


async def abort(old: Producer, _: Transaction, _servers: str) -> None:
    await old.abort_transaction()


async def commit(old: Producer, _: Transaction, _servers: str) -> None:
    await old.commit_transaction()


async def fail_in_the_block(_: Producer, transaction: Transaction, _servers: str) -> None:
    await transaction.__aexit__(ValueError, ValueError("in the block"), None)


async def close(old: Producer, _: Transaction, _servers: str) -> None:
    await old.close(5)


@for_each("end", [abort, commit, fail_in_the_block, close])
@for_each("act", [nothing, send, send_many, send_offsets, prepare, end_elsewhere])
@in_each_version
@scenario
async def test_fenced_producer_leaves_its_successor_alone(version: int, act: Act, end: Act) -> None:
    async with cluster(transaction_version=version) as opened:
        old, new = producer_of(opened), producer_of(opened)
        await old.start()
        transaction = await old.begin_transaction()
        await old.send("orders", b"old")
        async with new, new.transaction():
            await new.send("orders", b"new-1")
            initialised = opened.request_count("init_producer_id")
            for step in (act, end):
                with suppress(ProducerError):
                    await step(old, transaction, opened.bootstrap_servers)
            await old.close(5)
            await new.send("orders", b"new-2")
            assert opened.request_count("init_producer_id") == initialised
        assert committed(opened) == [b"new-1", b"new-2"]


@for_each("end", [abort, fail_in_the_block, close])
@in_each_version
@scenario
async def test_unwritten_sequence_costs_a_fenced_producer_no_epoch(version: int, end: Act) -> None:
    """The coordinator was never asked in this transaction; the next epoch is due all the same."""
    async with cluster(transaction_version=version) as opened:
        old, new = producer_of(opened), producer_of(opened)
        await old.start()
        transaction = await old.begin_transaction()
        assert old._engine is not None
        assert old._engine.transactions is not None
        old._engine.transactions.manager.request_epoch_bump()
        async with new, new.transaction():
            await new.send("orders", b"new")
            with suppress(ProducerError):
                await end(old, transaction, opened.bootstrap_servers)
            with pytest.raises(ProducerError) as raised:
                await old.begin_transaction()
            assert end is close or raised.value.fatal
            await old.close(0)
        assert committed(opened) == [b"new"]


@pytest.mark.parametrize("version", [0, 1], ids=["TV0", "TV1"])
@pytest.mark.parametrize("api", ["describe_transactions", "init_producer_id"])
@scenario
async def test_epoch_bump_that_waits_leaves_a_successor_alone(version: int, api: str) -> None:
    """A lost answer makes the next transaction bump the epoch; a successor starts before the bump."""
    async with cluster(brokers=2, transaction_version=version) as opened:
        opened.move_coordinator(ID, to_broker=1)
        old, new = producer_of(opened, request_timeout_ms=500), producer_of(opened)
        await old.start()
        opened.on("add_partitions_to_txn").drop(before_append=False)
        await old.begin_transaction()
        await old.send("orders", b"old")
        refusing = opened.on(api, node=1, times=None).answer(CoordinatorLoadInProgress)
        ending = asyncio.create_task(old.commit_transaction())
        await refusing.happened(3)
        opened.move_coordinator(ID, to_broker=2)
        async with new, new.transaction():
            await new.send("orders", b"new")
            refusing.remove()
            opened.move_coordinator(ID, to_broker=1)
            await ending
            with pytest.raises(ProducerFenced):
                await old.begin_transaction()
            await old.close(0)
            await new.send("orders", b"new")
        assert committed(opened) == [b"old", b"new", b"new"]


@in_each_version
@scenario
async def test_epoch_after_a_lost_answer_is_still_given(version: int) -> None:
    async with cluster(transaction_version=version) as opened:
        async with producer_of(opened, request_timeout_ms=500) as producer:
            for number in range(3):
                opened.on("end_txn").drop(before_append=False)
                opened.on("init_producer_id").drop(before_append=False)
                async with producer.transaction():
                    await producer.send("orders", b"%d" % number)
        assert committed(opened) == [b"0", b"1", b"2"]


@scenario
async def test_abort_waits_for_the_markers_of_its_last_transaction() -> None:
    """EndTxn may be refused meanwhile as if a successor had come (90)."""
    async with cluster(transaction_version=2) as opened, producer_of(opened) as producer:
        async with producer.transaction():
            await producer.send("orders", b"first")
        opened.marker_delay_s = 0.5
        async with producer.transaction():
            await producer.send("orders", b"second")
        opened.on("produce", times=None).answer(CoordinatorLoadInProgress)
        opened.on("end_txn").answer(ProducerFenced)
        initialised = opened.request_count("init_producer_id")
        await producer.begin_transaction()
        future = await producer.enqueue("orders", b"never")
        await asyncio.sleep(0.1)
        assert opened.transaction_state(ID) == "PrepareCommit"
        await producer.abort_transaction()
        assert isinstance(future.exception(), ProducerError)
        assert opened.request_count("describe_transactions") > 1
        assert opened.request_count("init_producer_id") == initialised


@scenario
async def test_broker_without_descriptions_still_gives_the_next_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers before 3.0 have no DescribeTransactions."""
    offered = ApiVersionTable.pick

    def pick(table: ApiVersionTable, request: type[Request[Any]], at_most: int | None = None) -> int:
        if request is DescribeTransactionsRequest:
            raise UnsupportedVersion("DescribeTransactionsRequest is not offered")
        return offered(table, request, at_most)

    monkeypatch.setattr(ApiVersionTable, "pick", pick)
    async with cluster(transaction_version=0) as opened, producer_of(opened) as producer:
        opened.on("add_partitions_to_txn").close(before_append=False)
        for _ in range(2):
            async with producer.transaction():
                await producer.send("orders", b"value")
        assert opened.request_count("init_producer_id") == 2
