"""A transaction is cancelled at every iteration of the event loop that it takes, in each way to cancel.

Whatever the moment: all of it is visible to those who read what is committed, or nothing; what the call has said is true;
nothing stays open; and the same producer goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from typing import Any

import pytest

from aioproducer import CommitFailed, Producer
from aioproducer.testing import Cluster
from tests.cases import for_each
from tests.scenarios.cancelling import MANNERS, Manner
from tests.scenarios.rig import cluster as cluster_of, producing, scenario
from tests.scenarios.test_cancelling_anywhere import of_ours

ID = "orders-1"
PARTITIONS = 2
in_each_manner = pytest.mark.parametrize("manner", MANNERS, ids=[manner.__name__ for manner in MANNERS])
in_each_version = pytest.mark.parametrize("version", [1, 2], ids=["TV1", "TV2"])


async def fill(producer: Producer, name: str) -> None:
    records = [f"{name}/{index}".encode() for index in range(4)]
    await producer.send_many("orders", records, partitions=[index % PARTITIONS for index in range(4)])


async def whole(producer: Producer, name: str) -> None:
    async with producer.transaction() as transaction:
        await fill(producer, name)
        await transaction.send_offsets({("in", 0): 7}, "readers")


async def aborted(producer: Producer, name: str) -> None:
    try:
        async with producer.transaction():
            await fill(producer, name)
            raise KeyError  # noqa: TRY301 - the body's own
    except KeyError:
        pass


async def committed_by_hand(producer: Producer, name: str) -> None:
    await producer.begin_transaction()
    await fill(producer, name)
    await producer.commit_transaction()


async def aborted_by_hand(producer: Producer, name: str) -> None:
    await producer.begin_transaction()
    await fill(producer, name)
    await producer.abort_transaction()


async def prepared(producer: Producer, name: str) -> None:
    async with producer.transaction() as transaction:
        await fill(producer, name)
        _ = await transaction.prepare()
    await producer.commit_transaction()


CALLS = {each.__name__: each for each in (whole, aborted, committed_by_hand, aborted_by_hand, prepared)}
ABORTS = {aborted, aborted_by_hand}


def visible(cluster: Cluster) -> list[str]:
    return [
        (record.value or b"").decode()
        for partition in range(PARTITIONS)
        for record in cluster.records("orders", partition, isolation_level="read_committed")
    ]


async def go_on(producer: Producer) -> None:
    """Leave whatever the cancelled call has left, as the documentation says."""
    assert producer._engine is not None
    transactions = producer._engine.transactions
    assert transactions is not None
    if transactions.manager.is_open and transactions.manager.state.name not in {"COMMITTING", "ABORTING"}:
        await producer.abort_transaction()
    try:
        async with producer.transaction():
            await fill(producer, "after")
    except CommitFailed:  # that of the call before
        await producer.abort_transaction()
        async with producer.transaction():
            await fill(producer, "after")


@in_each_version
@in_each_manner
@for_each("call", CALLS.values())
@scenario
async def test_transaction_may_be_cancelled_at_any_step(
    call: Callable[[Producer, str], Coroutine[Any, Any, None]], manner: Manner, version: int
) -> None:
    seen_after_cancelling: set[int] = set()
    async with producing(partitions=PARTITIONS, acquainted=False, transactional_id=ID) as (producer, cluster):
        cluster.create_topic("in", 1)
        await go_on(producer)
        cluster.transaction_version = version
        for turns in count():
            name = f"turn-{turns}"
            outcome = await manner(partial(call, producer, name), turns)
            await go_on(producer)
            seen = [each for each in visible(cluster) if each.startswith(f"{name}/")]
            assert len(seen) in {0, 4}, "half visible"
            assert len(set(seen)) == len(seen), "doubled"
            if outcome.returned:
                assert len(seen) == (0 if call in ABORTS else 4)
            else:
                seen_after_cancelling.add(len(seen))
            assert cluster.transaction_state(ID) in {"CompleteCommit", "Empty"}
            if outcome.too_late:
                assert outcome.returned
                break
        afters = [each for each in visible(cluster) if each.startswith("after/")]
        assert len(afters) == 4 * (turns + 2)
    assert turns > 5
    assert 0 in seen_after_cancelling
    if call not in ABORTS:
        assert 4 in seen_after_cancelling, "it was never cancelled after the commit was out"


@in_each_version
@in_each_manner
@scenario
async def test_close_cancelled_at_any_iteration_aborts(manner: Manner, version: int) -> None:
    async with cluster_of(partitions=PARTITIONS, transaction_version=version) as cluster:
        for turns in count():
            producer = Producer(cluster.bootstrap_servers, transactional_id=ID)
            await producer.start()
            await producer.begin_transaction()
            filling = asyncio.create_task(fill(producer, "open"))
            await asyncio.sleep(0)
            outcome = await manner(producer.close, turns)
            if turns == 0 and not outcome.returned:  # it had not begun
                await producer.close()
            await asyncio.wait([filling])
            _ = filling.exception()
            assert (producer.state, of_ours()) == ("closed", set())
            if outcome.too_late:
                break
        assert cluster.transaction_state(ID) != "Ongoing"
        assert visible(cluster) == []
