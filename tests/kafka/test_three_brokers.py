"""Brokers die, freeze, leave and come back under a steady load; every record is delivered all the same."""

from __future__ import annotations

import asyncio

import pytest

from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.under_load import REQUEST_TIMEOUT_S, under_load

CONTROLLER = 1
in_thread = asyncio.to_thread


async def test_other_brokers_take_over_from_a_killed_broker(three_brokers: ApacheKafka) -> None:
    async with under_load(three_brokers) as loads:
        three_brokers.kill(2)
        await loads.acknowledged_by()
        await in_thread(three_brokers.restart, 2)
        await loads.acknowledged_by()


async def test_other_brokers_take_over_from_a_frozen_broker(
    three_brokers: ApacheKafka,
) -> None:
    async with under_load(three_brokers) as loads:
        three_brokers.freeze(3)
        try:
            await loads.acknowledged_by()
        finally:
            three_brokers.thaw(3)
        await loads.acknowledged_by()


async def test_records_are_delivered_after_a_frozen_controller_resumes(
    three_brokers: ApacheKafka,
) -> None:
    """Without the controller no leader is elected and no replica leaves the ISR, so all clients wait."""
    async with under_load(three_brokers) as loads:
        three_brokers.freeze(CONTROLLER)
        try:
            await loads.piled_up(1.5 * REQUEST_TIMEOUT_S)
        finally:
            three_brokers.thaw(CONTROLLER)
        await loads.acknowledged_by()


@pytest.mark.timeout(120)  # three starts of a broker take half a minute on a busy machine
async def test_producer_survives_a_rolling_restart(three_brokers: ApacheKafka) -> None:
    async with under_load(three_brokers) as loads:
        for node_id in (2, 3, CONTROLLER):
            await in_thread(three_brokers.shut_down, node_id)
            await loads.acknowledged_by()
            await in_thread(three_brokers.restart, node_id)
            await loads.in_sync()  # a rolling restart waits for this before the next broker
            await loads.acknowledged_by()


async def test_records_wait_while_too_few_replicas_are_in_sync(three_brokers: ApacheKafka) -> None:
    async with under_load(three_brokers) as loads:
        for node_id in (2, 3):
            three_brokers.kill(node_id)
        await loads.piled_up(seconds=3)  # long enough for the last broker to take over and refuse
        await asyncio.gather(*(in_thread(three_brokers.restart, node_id) for node_id in (2, 3)))
        await loads.acknowledged_by()
