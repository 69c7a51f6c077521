"""The feature `transaction.version` is changed on a running cluster under load, without errors or lost records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from aioproducer import Producer
from tests.kafka.apache.stand import Stand
from tests.kafka.features import DOWN, UP, switch
from tests.kafka.ledger import Ledger, Outcome

FEATURE = "transaction.version"


def version_of(producer: Producer) -> int:
    assert producer._engine is not None
    assert producer._engine.transactions is not None
    return producer._engine.transactions.manager.version


def in_short(case: Mapping[str, Any]) -> bool:
    return (case["stand"], case["reconnect"]) == (1, True)


@pytest.mark.long(unless=in_short)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("reconnect", [True, False], ids=["reconnected", "connected"])
async def test_transaction_version_can_be_switched_under_load(
    stand: Stand, stand_topic: str, reconnect: bool
) -> None:
    """A producer learns the new version at its next connection; brokers accept the old version until then."""
    ledger = Ledger(stand.servers, stand_topic)
    other = 3 - stand.version
    ids = [f"{stand_topic}-{number}" for number in range(3)]
    done = asyncio.Event()
    versions: set[int] = set()
    try:
        async with (
            Producer(stand.servers, transactional_id=ids[0]) as one,
            Producer(stand.servers, transactional_id=ids[1]) as two,
            Producer(stand.servers, transactional_id=ids[2]) as three,
            asyncio.TaskGroup() as group,
        ):
            for producer in (one, two, three):
                group.create_task(ledger.run(producer, done))
            for level in (other, stand.version, other, stand.version):
                await ledger.more(9)
                await switch(stand.servers, FEATURE, level, how=UP if level == 2 else DOWN)
                await ledger.more(9)
                if reconnect:
                    stand.proxy.reset()
                    await ledger.more(9)
                    versions.update(map(version_of, (one, two, three)))
            done.set()
    finally:
        await switch(stand.servers, FEATURE, stand.version, how=UP if stand.version == 2 else DOWN)
    await ledger.check(*ids)
    assert Outcome.FAILED not in ledger.told, [each for each in ledger.errors if each]
    assert versions == ({1, 2} if reconnect else set())
