"""Killed writers, and writers that a successor with the same transactional id has fenced, at every step."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from aioproducer import PreparedTransaction, Producer, ProducerError, TransactionAborted, TransactionAdmin
from aioproducer._core.protocol.produce import InitProducerIdRequest, ProduceRequest
from aioproducer._core.protocol.transactions import DescribeTransactionsRequest, EndTxnRequest
from aioproducer._transactional import Transaction
from tests.kafka.apache.proxy import What
from tests.kafka.apache.stand import Stand
from tests.kafka.ledger import STEPS, Ledger, Outcome, settled
from tests.kafka.readback import read_with_librdkafka

TIMEOUT_S = 40


@asynccontextmanager
async def writing(stand: Stand, topic: str, step: str, end: str) -> AsyncIterator[Process]:
    """Run a process that writes a transaction up to a step; it is killed at the end, if not before."""
    command = [sys.executable, "-m", "tests.kafka.writer", stand.servers, topic, topic, step, end]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_of(process: Process) -> str:
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode().strip()
    assert line, "it has ended"
    return line


async def reached(process: Process, step: str) -> None:
    """Wait until the writer has printed *step*."""
    async with asyncio.timeout(TIMEOUT_S):
        while await line_of(process) != step:
            pass


def of_the_newer_version(case: Mapping[str, Any]) -> bool:
    return (case["stand"], case.get("commit", True)) == (2, True)


def killed_in_short(case: Mapping[str, Any]) -> bool:
    chosen = {(1, "ending"), (2, "acknowledged"), (2, "ending")}
    return case["end"] == "commit" and (case["stand"], case["step"]) in chosen


@pytest.mark.long(unless=killed_in_short)
@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("step", ["started", *STEPS])
async def test_successor_takes_over_from_a_killed_writer(
    stand: Stand, stand_topic: str, step: str, end: str
) -> None:
    ledger = Ledger(stand.servers, stand_topic)
    number = ledger.open()
    async with writing(stand, stand_topic, step, end) as process:
        await reached(process, step)
        process.kill()
        await process.wait()
    if step == "ended" and end == "commit":
        ledger.told[number] = Outcome.COMMITTED
    elif step not in {"ending", "ended"} or end == "abort":
        ledger.told[number] = Outcome.ABORTED
    async with Producer(stand.servers, transactional_id=stand_topic) as successor:
        for abort in (False, True, False):
            outcome = await ledger.transact(successor, abort=abort)
            assert outcome is (Outcome.ABORTED if abort else Outcome.COMMITTED)
    await ledger.check(stand_topic)


@pytest.mark.long(unless=lambda case: case["end"] == "commit" and case["what"] is What.MUTED_AFTER)
@pytest.mark.parametrize("what", [What.MUTED, What.MUTED_AFTER], ids=lambda what: what.name.lower())
@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_successor_takes_over_when_a_writer_dies_in_end_txn(
    stand: Stand, stand_topic: str, what: What, end: str
) -> None:
    ledger = Ledger(stand.servers, stand_topic)
    number = ledger.open()
    fault = stand.proxy.add(EndTxnRequest, what)
    async with writing(stand, stand_topic, "never", end):
        assert await asyncio.to_thread(fault.happened.wait, TIMEOUT_S)
    done = what is What.MUTED_AFTER and end == "commit"
    ledger.told[number] = Outcome.COMMITTED if done else Outcome.ABORTED
    async with Producer(stand.servers, transactional_id=stand_topic) as successor:
        assert await ledger.transact(successor) is Outcome.COMMITTED
    await ledger.check(stand_topic)


@pytest.mark.long(unless=of_the_newer_version)
@pytest.mark.timeout(120)
@pytest.mark.parametrize("commit", [True, False])
async def test_prepared_transaction_ends_after_writer_and_broker_died(
    stand: Stand, stand_topic: str, commit: bool
) -> None:
    ledger = Ledger(stand.servers, stand_topic)
    number = ledger.open()
    async with writing(stand, stand_topic, "never", "prepare") as process:
        await reached(process, "started")
        prepared = PreparedTransaction.parse(await line_of(process))
    stand.kafka.kill()
    await asyncio.to_thread(stand.kafka.restart)
    async with TransactionAdmin(stand.servers) as admin:
        await admin.end(prepared, commit=commit)
        await admin.end(prepared, commit=commit)
    ledger.told[number] = Outcome.COMMITTED if commit else Outcome.ABORTED
    await ledger.check(stand_topic)
    async with Producer(stand.servers, transactional_id=stand_topic) as successor:
        assert await ledger.transact(successor) is Outcome.COMMITTED
    await ledger.check(stand_topic)


def taken_over_in_short(case: Mapping[str, Any]) -> bool:
    steps = {1: {"acknowledged"}, 2: {"acknowledged", "offsets", "ending"}}
    return not case["abort"] and case["step"] in steps[case["stand"]]


@pytest.mark.long(unless=taken_over_in_short)
@pytest.mark.parametrize("abort", [False, True], ids=["commit", "abort"])
@pytest.mark.parametrize("step", ["started", *STEPS])
async def test_successor_takes_over_from_a_running_writer(
    stand: Stand, stand_topic: str, step: str, abort: bool
) -> None:
    """The zombie gets a fatal error at the latest at the end of its next transaction."""
    ledger = Ledger(stand.servers, stand_topic)
    zombie = Producer(stand.servers, transactional_id=stand_topic)
    successor = Producer(stand.servers, transactional_id=stand_topic)
    await zombie.start()

    async def take_over(now: str) -> None:
        if now == step:
            await successor.start()
            assert await ledger.transact(successor) is Outcome.COMMITTED

    try:
        await take_over("started")
        first = await ledger.transact(zombie, abort=abort, at=take_over)
        if step != "ended":
            assert first is not Outcome.COMMITTED or step == "ending"
        if first is not Outcome.FATAL:
            assert await ledger.transact(zombie) is Outcome.FATAL
        assert zombie.state == "failed"
        with pytest.raises(ProducerError) as caught:
            await zombie.begin_transaction()
        assert caught.value.fatal
        assert await ledger.transact(successor) is Outcome.COMMITTED
    finally:
        await zombie.close()
        await successor.close()
    await ledger.check(stand_topic)


@pytest.mark.long(unless=of_the_newer_version)
@pytest.mark.parametrize("what", [What.MUTED, What.MUTED_AFTER], ids=lambda what: what.name.lower())
async def test_successor_takes_over_while_end_txn_is_unanswered(
    stand: Stand, stand_topic: str, what: What
) -> None:
    """The retry of the zombie is refused: the coordinator can no longer report the outcome of its commit."""
    ledger = Ledger(stand.servers, stand_topic)
    fault = stand.proxy.add(EndTxnRequest, what)
    async with Producer(stand.servers, transactional_id=stand_topic, request_timeout_ms=2_000) as zombie:
        number = ledger.open()
        await zombie.begin_transaction()
        await asyncio.gather(*await ledger.fill(zombie, number))
        commit = asyncio.ensure_future(zombie.commit_transaction())
        assert await asyncio.to_thread(fault.happened.wait, TIMEOUT_S)
        async with Producer(stand.servers, transactional_id=stand_topic) as successor:
            assert await ledger.transact(successor) is Outcome.COMMITTED
            async with asyncio.timeout(TIMEOUT_S):
                with pytest.raises(ProducerError) as caught:
                    await commit
            assert caught.value.fatal
            assert await ledger.transact(successor) is Outcome.COMMITTED
    visible = await ledger.check(stand_topic)
    assert visible.get(number, 0) == (10 if what is What.MUTED_AFTER else 0)


Act = Callable[[Producer, Transaction], Awaitable[object]]


async def abort(zombie: Producer, _: Transaction) -> None:
    await zombie.abort_transaction()


async def close(zombie: Producer, _: Transaction) -> None:
    await zombie.close(10)


async def fail_in_the_block(_: Producer, transaction: Transaction) -> None:
    await transaction.__aexit__(ValueError, ValueError("in the block"), None)


@pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "unaware"])
@pytest.mark.parametrize("end", [abort, close, fail_in_the_block], ids=lambda end: end.__name__)
async def test_fenced_producer_leaves_an_open_transaction_alone(
    stand: Stand, stand_topic: str, end: Act, is_refused: bool
) -> None:
    """While a transaction is open the coordinator compares the producer id alone of InitProducerId."""
    ledger = Ledger(stand.servers, stand_topic)
    zombie = Producer(stand.servers, transactional_id=stand_topic)
    await zombie.start()
    transaction = await zombie.begin_transaction()
    await asyncio.gather(*await ledger.fill(zombie, ledger.open()))

    async def comes_back(step: str) -> None:
        if step == "acknowledged":
            with suppress(ProducerError):
                if is_refused:
                    await zombie.send(stand_topic, b"0/late")
            with suppress(ProducerError):
                await end(zombie, transaction)
            await zombie.close(10)

    async with Producer(stand.servers, transactional_id=stand_topic) as successor:
        assert await ledger.transact(successor, at=comes_back) is Outcome.COMMITTED
        assert await ledger.transact(successor) is Outcome.COMMITTED
    visible = await ledger.check(stand_topic)
    assert visible.get(0, 0) == 0


@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("step", ["begun", "acknowledged"])
async def test_frozen_writer_leaves_its_successor_alone(
    stand: Stand, stand_topic: str, step: str, end: str
) -> None:
    """The writer is stopped in its transaction and continued during a transaction of its successor."""
    ledger = Ledger(stand.servers, stand_topic)
    number = ledger.open()
    async with writing(stand, stand_topic, f"{step}!", end) as zombie:
        await reached(zombie, step)

        async def thaw(now: str) -> None:
            if now == "acknowledged":
                zombie.send_signal(signal.SIGCONT)
                assert zombie.stdin is not None
                zombie.stdin.close()
                async with asyncio.timeout(TIMEOUT_S):
                    while not (await line_of(zombie)).startswith("fatal"):
                        pass
                    await zombie.wait()

        zombie.send_signal(signal.SIGSTOP)
        async with Producer(stand.servers, transactional_id=stand_topic) as successor:
            assert await ledger.transact(successor, at=thaw) is Outcome.COMMITTED
            assert await ledger.transact(successor) is Outcome.COMMITTED
    ledger.told[number] = Outcome.FATAL
    await ledger.check(stand_topic)


async def test_rolling_restart_loses_no_commit(stand: Stand, stand_topic: str) -> None:
    """Each producer starts while the one before is in a transaction, which aborts and closes in one of the new."""
    ledger = Ledger(stand.servers, stand_topic)
    old = Producer(stand.servers, transactional_id=stand_topic)
    await old.start()
    for restart in range(5):
        await old.begin_transaction()
        await asyncio.gather(*await ledger.fill(old, ledger.open()))
        new = Producer(stand.servers, transactional_id=stand_topic)
        await new.start()

        async def shut_down(step: str, old: Producer = old, restart: int = restart) -> None:
            if step == "taken":
                with suppress(ProducerError):
                    await (old.commit_transaction() if restart % 2 else old.abort_transaction())
                await old.close(10)

        assert await ledger.transact(new, at=shut_down) is Outcome.COMMITTED
        old = new
    assert await ledger.transact(old) is Outcome.COMMITTED
    await old.close()
    visible = await ledger.check(stand_topic)
    assert len(visible) == 6


async def test_abort_waits_for_the_markers_of_the_last_transaction(
    stands: Callable[[int], Stand], request: pytest.FixtureRequest
) -> None:
    """EndTxn of version 2 is refused until then: with 51, or as if a successor had come (90)."""
    stand, many = stands(2), 100
    stand.proxy.clear()
    topic = request.node.name
    await asyncio.to_thread(stand.kafka.create_topic, topic, many)
    async with Producer(
        stand.servers, transactional_id=topic, linger_ms=0, retry_backoff_ms=1_000
    ) as producer:
        for _ in range(50):
            async with producer.transaction():
                await producer.send_many(topic, [b"value"] * many, partitions=range(many))
            stand.proxy.clear()
            stand.proxy.add(ProduceRequest, What.REFUSED, code=7, times=10)
            await producer.begin_transaction()
            refused = await producer.enqueue(topic, b"never")
            for _ in range(5):  # until it is written
                await asyncio.sleep(0)
            await producer.abort_transaction()
            assert isinstance(refused.exception(), TransactionAborted)
            assert InitProducerIdRequest not in stand.proxy.seen
            stand.proxy.faults.clear()
            if DescribeTransactionsRequest in stand.proxy.seen or stand.proxy.seen.count(EndTxnRequest) > 1:
                break
        else:
            raise AssertionError("no abort met the markers")
        async with producer.transaction():
            await producer.send(topic, b"last", partition=0)
    await settled(stand.servers, topic)
    seen = await asyncio.to_thread(
        read_with_librdkafka, stand.servers, topic, isolation_level="read_committed"
    )
    values = Counter(each.value for each in seen)
    assert values == {b"value": values[b"value"], b"last": 1}
    assert values[b"value"] % many == 0
