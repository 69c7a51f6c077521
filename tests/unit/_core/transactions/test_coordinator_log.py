"""Log events of requests to a coordinator."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aioproducer._core.transactions.coordinator import Key
from aioproducer._core.transactions.transaction_manager import Api
from aioproducer.errors import ConnectionFailed, RequestTimedOut
from aioproducer.testing import in_virtual_time
from tests.unit._core.transactions.coordinators_rig import GROUP, TRANSACTION, CoordinatorsRig, found
from tests.unit.floor_rig import settle


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == level]


def retry(api: Api, key: Key, attempt: int, retry_in_s: float, error: str) -> str:
    return (
        f'transaction.retry api={api.name} key="{key}" attempt={attempt} retry_in_s={retry_in_s:.3f}'
        f' error="{error}"'
    )


@in_virtual_time
async def test_found_coordinator_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aioproducer")
    rig = CoordinatorsRig(1, nodes=(1,))
    finding = asyncio.create_task(rig.coordinators.find(TRANSACTION))
    await rig.is_found_at(3)
    await finding
    assert lines(caplog, logging.DEBUG) == ["""coordinator.found key="transactional id 'tx'" node_id=3"""]


@in_virtual_time
async def test_retry_is_logged_for_each_request_and_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aioproducer")
    rig = CoordinatorsRig(1, nodes=(1,))
    ending = rig.end()
    for _ in range(2):
        await settle()
        rig.connection(1).answer(found(-1, code=15, message="not yet"))
        await asyncio.sleep(0.2)
    await rig.is_found_at(2)
    rig.pool.errors[2], rig.pool.backing_off_until[2] = ConnectionFailed("refused"), 60.0
    rig.coordinators.connections_changed()
    await asyncio.sleep(0.1)
    await rig.is_found_at(1)
    await rig.answer(7)
    await asyncio.sleep(0.1)
    await rig.answer(51)  # CONCURRENT_TRANSACTIONS is routine
    await asyncio.sleep(0.2)
    await rig.answer()
    await ending
    finding = asyncio.create_task(rig.coordinators.find(GROUP))
    await settle()
    rig.connection(1).answer(found(-1, code=15, message="not yet"))
    await settle()
    finding.cancel()
    assert lines(caplog, logging.INFO) == [
        retry(Api.FIND_COORDINATOR, TRANSACTION, 1, 0.1, "CoordinatorNotAvailable: not yet"),
        retry(Api.COMMIT, TRANSACTION, 1, 0.1, f"RequestTimedOut: {RequestTimedOut.__doc__}"),
        retry(Api.FIND_COORDINATOR, GROUP, 1, 0.1, "CoordinatorNotAvailable: not yet"),
    ]
    assert [each for each in lines(caplog, logging.DEBUG) if "retry" in each] == [
        retry(Api.FIND_COORDINATOR, TRANSACTION, 2, 0.2, "CoordinatorNotAvailable: not yet"),
        retry(Api.FIND_COORDINATOR, TRANSACTION, 1, 0.1, "ConnectionFailed: refused"),
    ]
