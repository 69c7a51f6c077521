"""The transaction timeout expires during each call, on a real Kafka of both versions.

Under version 2 the same producer continues. Under version 1 a timeout looks like a successor and is fatal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import pytest

from aioproducer import CommitFailed, GroupMetadata, Producer, ProducerError, TransactionAdmin
from tests.kafka.apache.stand import Stand
from tests.kafka.ledger import Ledger, Outcome, state_of

TIMEOUT_MS = 500
TIMEOUT_S = 20

Meeting: TypeAlias = Callable[[Producer, str], Awaitable[object]]


async def overdue(servers: str, name: str) -> None:
    """Wait until the coordinator has aborted the open transaction of an id."""
    async with asyncio.timeout(TIMEOUT_S), TransactionAdmin(servers) as admin:
        while await state_of(admin, name) != "CompleteAbort":
            pass


async def a_send(producer: Producer, topic: str) -> object:
    return await producer.send(topic, b"0/9", partition=0)


async def a_send_to_another_partition(producer: Producer, topic: str) -> object:
    return await producer.send(topic, b"0/9", partition=2)


async def offsets(producer: Producer, topic: str) -> None:
    await producer.send_offsets_to_transaction({("in", 0): 1}, GroupMetadata(f"group-{topic}"))


async def a_commit(producer: Producer, topic: str) -> None:
    await producer.commit_transaction()


async def an_abort(producer: Producer, topic: str) -> None:
    await producer.abort_transaction()


def told(outcome: object) -> Outcome:
    """Return the outcome of a commit after the timeout."""
    if outcome is None:
        return Outcome.COMMITTED
    assert isinstance(outcome, ProducerError)
    return Outcome.FATAL if outcome.fatal else Outcome.FAILED


async def tried(call: Awaitable[object]) -> ProducerError | None:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await call
    except ProducerError as error:
        return error
    return None


def in_short(case: Mapping[str, Any]) -> bool:
    return case["meets"] in {a_send, a_commit}


@pytest.mark.long(unless=in_short)
@pytest.mark.parametrize(
    "meets",
    [a_send, a_send_to_another_partition, offsets, a_commit, an_abort],
    ids=lambda meets: meets.__name__,
)
async def test_expired_transaction_fails_the_next_call(
    stand: Stand, stand_topic: str, meets: Meeting
) -> None:
    ledger = Ledger(stand.servers, stand_topic)
    async with Producer(
        stand.servers, transactional_id=stand_topic, transaction_timeout_ms=TIMEOUT_MS
    ) as producer:
        number = ledger.open()
        await producer.begin_transaction()
        for value in ledger.records(number)[:4]:
            await producer.send(stand_topic, value, partition=0)
        await overdue(stand.servers, stand_topic)
        met = await tried(meets(producer, stand_topic))
        # Under version 2 a write may begin another transaction; no record of the first may be visible.
        commits = meets is not an_abort
        committed = await tried(producer.commit_transaction()) if commits else None
        ledger.told[number] = told(committed) if commits else Outcome.ABORTED
        if stand.version == 2:
            assert producer.state == "ready", (met, committed)
            if commits:
                assert isinstance(committed, CommitFailed)
                assert committed.abortable
                await producer.abort_transaction()
            assert await ledger.transact(producer) is Outcome.COMMITTED
        else:
            aborted = await tried(producer.abort_transaction())
            last = aborted or committed or met
            assert last is not None
            assert last.fatal
            assert not last.abortable
            assert producer.state == "failed"
            with pytest.raises(type(last)) as again:
                await producer.begin_transaction()
            assert again.value.fatal
    if stand.version == 1:
        async with Producer(stand.servers, transactional_id=stand_topic) as successor:
            assert await ledger.transact(successor) is Outcome.COMMITTED
    visible = await ledger.check(stand_topic)
    assert visible == {1: 10}


async def test_expired_transaction_fails_without_a_call(stand: Stand, stand_topic: str) -> None:
    """The timeout starts at the first write, so a longer wait before the first write is harmless."""
    ledger = Ledger(stand.servers, stand_topic)
    other = f"{stand_topic}-other"
    async with (
        Producer(stand.servers, transactional_id=stand_topic, transaction_timeout_ms=TIMEOUT_MS) as producer,
        Producer(stand.servers, transactional_id=other, transaction_timeout_ms=2 * TIMEOUT_MS) as clock,
    ):
        await clock.begin_transaction()
        number = ledger.open()
        await producer.begin_transaction()
        await clock.send(stand_topic, b"0/0")
        await overdue(stand.servers, other)
        await asyncio.gather(*await ledger.fill(producer, number))
        await producer.commit_transaction()
        ledger.told[number] = Outcome.COMMITTED
        assert await ledger.transact(producer) is Outcome.COMMITTED
    await ledger.check(stand_topic)


@pytest.mark.long
async def test_transaction_of_a_dead_writer_expires(stand: Stand, stand_topic: str) -> None:
    """The transaction is left open, as by close(0), and blocks consumers only until its timeout."""
    ledger = Ledger(stand.servers, stand_topic)
    producer = Producer(stand.servers, transactional_id=stand_topic, transaction_timeout_ms=TIMEOUT_MS)
    await producer.start()
    await producer.begin_transaction()
    await asyncio.gather(*await ledger.fill(producer, ledger.open()))
    await producer.close(0)
    await overdue(stand.servers, stand_topic)
    async with Producer(stand.servers, transactional_id=stand_topic) as successor:
        assert await ledger.transact(successor) is Outcome.COMMITTED
    assert await ledger.check(stand_topic) == {1: 10}
