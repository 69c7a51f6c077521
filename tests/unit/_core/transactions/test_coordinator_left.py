"""Coordinators of a producer whose bootstrap addresses have moved to another cluster."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.errors import ConnectionFailed, ProducerError, RebootstrapRequired
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit._core.transactions.coordinators_rig import AskedConnection, CoordinatorsRig
from tests.unit.floor_rig import settle


def moved() -> ProducerError:
    return RebootstrapRequired("the cluster changed from a to b")


async def fails(asking: asyncio.Task[object], cause: ProducerError) -> None:
    """Wait for *asking*, which fails with *cause*."""
    with pytest.raises(RebootstrapRequired) as raised:
        await asking
    assert str(raised.value) == "the transaction has failed: the cluster changed from a to b"
    assert raised.value.__cause__ is cause
    assert (raised.value.abortable, raised.value.fatal) == (True, False)


@for_each("then", ["found", "connected", "not connected", "lost", "refused", "retried"])
@in_virtual_time
async def test_requests_for_the_old_cluster_fail(then: str) -> None:
    rig = CoordinatorsRig(1, nodes=(1,))
    asking, queued = rig.end(), rig.end()
    await settle()
    if then in {"connected", "not connected"}:
        await rig.is_found_at(2)
    elif then != "found":
        await rig.is_found_at(1)
    if then == "retried":
        await rig.answer(7)
    left = moved()
    rig.coordinators.leave_cluster(left)
    match then:
        case "found":
            await rig.is_found_at(1)
        case "connected":
            rig.connect(2)
            await rig.is_found_at(1)
        case "not connected":
            rig.pool.errors[2], rig.pool.backing_off_until[2] = ConnectionFailed("refused"), 60.0
            rig.coordinators.connections_changed()
            await asyncio.sleep(0.1)
            await rig.is_found_at(1)
        case "lost":
            rig.lose(1)
        case "refused":
            await rig.answer(16)
    await fails(asking, left)
    await fails(queued, left)
    assert rig.happened.count("written") == (then in {"lost", "refused", "retried"})


@in_virtual_time
async def test_coordinator_is_looked_up_in_the_new_cluster() -> None:
    rig = CoordinatorsRig(1, 2, nodes=(1,))
    for node_id in (1, 2):
        ending = rig.end()
        await rig.is_found_at(node_id)
        await rig.answer(at=node_id)
        await ending
        rig.coordinators.leave_cluster(moved())


@in_virtual_time
async def test_transaction_version_is_that_of_the_new_cluster() -> None:
    rig = CoordinatorsRig()
    for epoch, version in ((5, 2), (1, 1)):
        features = {"transaction.version": version}
        rig.connect(1, AskedConnection(1, finalized_features=features, finalized_features_epoch=epoch))
        assert rig.coordinators.transaction_version == version
        rig.coordinators.leave_cluster(moved())
