"""FindCoordinator requests to any broker, and the transaction.version in force."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.address import Address
from aioproducer._core.protocol.transactions import FindCoordinatorResponse
from aioproducer._core.transactions.coordinator import Node
from aioproducer.errors import (
    ConnectionFailed,
    ProtocolError,
    UnsupportedVersion,
    broker_error,
)
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit._core.transactions.coordinators_rig import (
    GROUP,
    TRANSACTION,
    AskedConnection,
    CoordinatorsRig,
    found,
)
from tests.unit.floor_rig import settle


class TestFind:
    @in_virtual_time
    async def test_find_asks_any_connected_broker(self) -> None:
        rig = CoordinatorsRig(2)
        finding = asyncio.create_task(rig.coordinators.find(TRANSACTION))
        await settle()
        [call] = rig.connection(2).calls
        assert (call.request.key_type, call.request.coordinator_keys, rig.connection(2).asked_in) == (
            1,
            ["tx"],
            [6],
        )
        rig.connection(2).answer(found(3))
        assert await finding == Node(3, Address("b3", 9092))

    @in_virtual_time
    async def test_find_sends_a_single_key_up_to_version_3(self) -> None:
        rig = CoordinatorsRig()
        connection = rig.connect(1, AskedConnection(1, {10: (0, 3)}))
        finding = asyncio.create_task(rig.coordinators.find(GROUP))
        await settle()
        [call] = connection.calls
        assert (call.request.key_type, call.request.key, connection.asked_in) == (0, "g", [3])
        connection.answer(FindCoordinatorResponse(node_id=2, host="b2", port=9093))
        assert await finding == Node(2, Address("b2", 9093))

    @in_virtual_time
    async def test_find_connects_to_a_broker(self) -> None:
        rig = CoordinatorsRig(nodes=(2,))
        finding = asyncio.create_task(rig.coordinators.find(TRANSACTION))
        await settle()
        assert rig.pool.wanted == [(2, Address("b2", 9092))]
        rig.connect(2)
        await settle()
        rig.connection(2).answer(found(2))
        await finding

    @in_virtual_time
    async def test_find_records_the_error_of_a_connection(self) -> None:
        rig = CoordinatorsRig(nodes=(2,))
        rig.pool.errors[2] = ConnectionFailed("refused")
        finding = asyncio.create_task(rig.coordinators.find(TRANSACTION))
        await settle()
        assert rig.coordinators.last_error is rig.pool.errors[2]
        finding.cancel()

    @in_virtual_time
    async def test_find_waits_for_a_known_broker(self) -> None:
        rig = CoordinatorsRig(nodes=())
        finding = asyncio.create_task(rig.coordinators.find(TRANSACTION))
        await asyncio.sleep(5)
        assert rig.pool.wanted == []
        rig.updater.knows("orders", nodes=(1,))
        await asyncio.sleep(0.5)
        assert rig.pool.wanted == [(1, Address("b1", 9092))]
        finding.cancel()

    @in_virtual_time
    async def test_find_asks_another_broker_when_one_is_silent(self) -> None:
        rig = CoordinatorsRig(1, 2, nodes=(1, 2))
        began_at = rig.loop.time()
        finding = asyncio.create_task(rig.coordinators.find(TRANSACTION))
        await settle()
        [silent] = [node_id for node_id in (1, 2) if rig.connection(node_id).calls]
        other = 3 - silent
        await asyncio.sleep(0.5)
        await settle()
        assert len(rig.connection(other).calls) == 1
        rig.connection(other).answer(found(other))
        assert (await finding).node_id == other
        assert rig.loop.time() - began_at == 0.5

    @in_virtual_time
    async def test_find_asks_all_brokers_again_when_all_are_silent(self) -> None:
        rig = CoordinatorsRig(1, 2, nodes=(1, 2))
        finding = asyncio.create_task(rig.coordinators.find(TRANSACTION))
        await asyncio.sleep(1.6)
        assert sorted(len(rig.connection(node_id).calls) for node_id in (1, 2)) == [2, 2]
        finding.cancel()

    @pytest.mark.parametrize("code", [14, 15, 16])
    @in_virtual_time
    async def test_find_asks_again_while_the_coordinator_is_unavailable(self, code: int) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        began_at = rig.loop.time()
        finding = asyncio.create_task(rig.coordinators.find(TRANSACTION))
        for _ in range(2):
            await settle()
            rig.connection(1).answer(found(-1, code=code))
            await settle()
            assert isinstance(rig.coordinators.last_error, broker_error(code))
            await asyncio.sleep(0.2)
        await rig.is_found_at(1)
        assert (await finding).node_id == 1
        assert rig.loop.time() - began_at == pytest.approx(0.4)

    @for_each(
        ("key", "code", "abortable"),
        [
            (TRANSACTION, 53, False),
            (GROUP, 30, True),
            (GROUP, -1, True),
            (TRANSACTION, -1, False),
        ],
    )
    @in_virtual_time
    async def test_refusal_is_abortable_or_fatal(self, key: object, code: int, abortable: bool) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        finding = asyncio.create_task(rig.coordinators.find(key))  # type: ignore[arg-type]
        await settle()
        rig.connection(1).answer(found(-1, code=code, message="not you"))
        with pytest.raises(
            broker_error(code), match=r"FIND_COORDINATOR for .*at b1:9092 \(node 1\): not you"
        ) as raised:
            await finding
        assert (raised.value.abortable, raised.value.fatal) == (abortable, not abortable)

    @in_virtual_time
    async def test_broker_that_is_too_old_raises_a_fatal_error(self) -> None:
        rig = CoordinatorsRig()
        rig.connect(1, AskedConnection(1, {10: (9, 9)}))
        with pytest.raises(UnsupportedVersion) as raised:
            await rig.coordinators.find(TRANSACTION)
        assert raised.value.fatal

    @pytest.mark.parametrize("answers", [0, 2])
    @in_virtual_time
    async def test_answer_with_a_wrong_number_of_coordinators_is_refused(self, answers: int) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        finding = asyncio.create_task(rig.coordinators.find(TRANSACTION))
        await settle()
        rig.connection(1).answer(FindCoordinatorResponse(coordinators=found(1).coordinators * answers))
        await settle()
        assert isinstance(rig.coordinators.last_error, ProtocolError)
        assert f"names {answers} coordinators of transactional id 'tx'" in str(rig.coordinators.last_error)
        await asyncio.sleep(0.1)
        await rig.is_found_at(1)
        await finding

    def test_keys_have_names(self) -> None:
        assert [str(TRANSACTION), str(GROUP)] == ["transactional id 'tx'", "group 'g'"]


class TestTransactionVersion:
    @in_virtual_time
    async def test_transaction_version_is_learned_from_a_connection(self) -> None:
        rig = CoordinatorsRig()
        assert rig.coordinators.transaction_version == 0
        rig.connect(1, AskedConnection(1, finalized_features={"transaction.version": 2}))
        assert rig.coordinators.transaction_version == 2

    @in_virtual_time
    async def test_lost_connection_does_not_change_the_transaction_version(self) -> None:
        rig = CoordinatorsRig()
        rig.coordinators.connected(1)
        assert rig.coordinators.transaction_version == 0
