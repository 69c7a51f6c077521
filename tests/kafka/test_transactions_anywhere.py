"""Transactions that are cancelled at a random moment, in every way to cancel, on a real Kafka of either version."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio
import pytest

from aioproducer import GroupMetadata, Producer
from tests.kafka.apache.stand import Stand
from tests.kafka.conftest import WHOLE
from tests.kafka.ledger import PARTITIONS, Ledger, Outcome

TIMES = 200 if WHOLE else 40
TIMEOUT_S = 30

Work: TypeAlias = Callable[[], Awaitable[None]]


async def by_its_task(work: Work, after_s: float) -> bool:
    task = asyncio.ensure_future(work())
    asyncio.get_running_loop().call_later(after_s, task.cancel)
    await asyncio.wait([task])
    if task.cancelled():
        return False
    task.result()
    return True


async def by_a_timeout(work: Work, after_s: float) -> bool:
    try:
        async with asyncio.timeout(after_s):
            await work()
    except TimeoutError:
        return False
    return True


async def by_a_scope(work: Work, after_s: float) -> bool:
    with anyio.move_on_after(after_s) as scope:
        await work()
    return not scope.cancelled_caught


async def whole(producer: Producer, ledger: Ledger, number: int) -> None:
    async with producer.transaction() as transaction:
        values = ledger.records(number)
        partitions = [index % PARTITIONS for index in range(len(values))]
        await producer.send_many(ledger.topic, values, partitions=partitions)
        await transaction.send_offsets({("in", 0): number}, GroupMetadata(f"group-{ledger.topic}"))


async def by_hand(producer: Producer, ledger: Ledger, number: int) -> None:
    await producer.begin_transaction()
    await ledger.fill(producer, number)
    await producer.commit_transaction()


async def abort_if_open(producer: Producer) -> None:
    """Recover from the cancelled call; a running end continues, and the next begin waits for it."""
    assert producer._engine is not None
    transactions = producer._engine.transactions
    assert transactions is not None
    if transactions.manager.can_be_aborted:
        await producer.abort_transaction()


@pytest.mark.timeout(300)
async def test_transactions_stay_whole_when_calls_are_cancelled(stand: Stand, stand_topic: str) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")  # noqa: T201 - pytest shows it if this fails
    chance = random.Random(seed)
    ledger = Ledger(stand.servers, stand_topic)
    cancelled: list[int] = []
    async with Producer(stand.servers, transactional_id=stand_topic) as producer:
        longest_s = 0.05
        for turn in range(TIMES):
            manner = (by_its_task, by_a_timeout, by_a_scope)[turn % 3]
            body = (whole, by_hand)[turn % 2]
            number = ledger.open()
            began_at = time.monotonic()
            async with asyncio.timeout(TIMEOUT_S):
                over = await manner(
                    lambda body=body, number=number: body(producer, ledger, number),  # type: ignore[misc]
                    chance.uniform(0, longest_s),
                )
                if over:
                    ledger.told[number] = Outcome.COMMITTED
                    longest_s = 0.9 * longest_s + 0.1 * (time.monotonic() - began_at)
                else:
                    cancelled.append(number)
                    longest_s *= 1.02
                    await abort_if_open(producer)
                if turn % 4 == 3:
                    assert await ledger.transact(producer) is Outcome.COMMITTED, ledger.errors[-1]
    visible = await ledger.check(stand_topic)
    seen = [number for number in cancelled if number in visible]
    assert cancelled
    assert len(seen) < len(cancelled)
    assert seen or not WHOLE, "none was cancelled after its commit was out"
