"""FindCoordinator requests to any broker, dials, and the transaction.version in force."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.address import Address
from aioproducer._core.metadata.background_dials import LEAST_GAP_S
from aioproducer._core.metadata.snapshot import Broker
from aioproducer._core.protocol.transactions import FindCoordinatorResponse
from aioproducer._core.transactions.coordinator import FIND_TIMEOUT_S, RESPONSE_TIMEOUT_S, Key, Node
from aioproducer.errors import (
    ConnectionFailed,
    ProtocolError,
    UnsupportedVersion,
    broker_error,
)
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit._core.transactions.coordinators_rig import (
    END,
    GROUP,
    TRANSACTION,
    AskedConnection,
    CoordinatorsRig,
    found,
)
from tests.unit.floor_rig import settle

NODE_2 = Node(2, Address("b2", 9092))


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
    async def test_find_sends_a_list_of_keys_from_version_4_on(self) -> None:
        rig = CoordinatorsRig()
        connection = rig.connect(1, AskedConnection(1, {10: (0, 4)}))
        finding = asyncio.create_task(rig.coordinators.find(TRANSACTION))
        await settle()
        assert (connection.calls[0].request.coordinator_keys, connection.asked_in) == (["tx"], [4])
        connection.answer(found(3))
        assert (await finding).node_id == 3

    @for_each("key", [GROUP, TRANSACTION])
    @in_virtual_time
    async def test_find_sends_a_single_key_up_to_version_3(self, key: Key) -> None:
        rig = CoordinatorsRig()
        connection = rig.connect(1, AskedConnection(1, {10: (0, 3)}))
        finding = asyncio.create_task(rig.coordinators.find(key))
        await settle()
        [call] = connection.calls
        assert (call.request.key_type, call.request.key, connection.asked_in) == (key.type, key.name, [3])
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
    async def test_find_asks_a_busy_broker_when_the_idle_one_is_silent(self) -> None:
        rig = CoordinatorsRig(1, 2, nodes=(1, 2))
        for _ in range(2):
            rig.connection(2).call(END, lambda _: None)
        finding = asyncio.create_task(rig.coordinators.find(TRANSACTION))
        await asyncio.sleep(FIND_TIMEOUT_S)
        await settle()
        assert [len(rig.connection(node_id).calls) for node_id in (1, 2)] == [1, 3]
        finding.cancel()

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
        for wait_s in (0.1, 0.2, 0.4):
            await settle()
            rig.connection(1).answer(found(-1, code=code))
            await settle()
            assert isinstance(rig.coordinators.last_error, broker_error(code))
            assert str(rig.coordinators.last_error) == broker_error(code).__doc__
            await asyncio.sleep(0.9 * wait_s)
            assert rig.requests(1) == []
            await asyncio.sleep(0.1 * wait_s)
        await rig.is_found_at(1)
        assert (await finding).node_id == 1
        assert rig.loop.time() - began_at == pytest.approx(0.7)

    @for_each(
        ("key", "code", "abortable"),
        [
            (TRANSACTION, 53, False),
            (TRANSACTION, 48, False),
            (GROUP, 30, True),
            (GROUP, -1, True),
            (TRANSACTION, -1, False),
        ],
    )
    @in_virtual_time
    async def test_refusal_is_abortable_or_fatal(self, key: Key, code: int, abortable: bool) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        finding = asyncio.create_task(rig.coordinators.find(key))
        await settle()
        rig.connection(1).answer(found(-1, code=code, message="not you"))
        with pytest.raises(broker_error(code)) as raised:
            await finding
        assert str(raised.value) == f"FIND_COORDINATOR for {key} at b1:9092 (node 1): not you"
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

    @for_each(("node_id", "refreshes"), [(1, []), (2, [None]), (3, [])])
    @in_virtual_time
    async def test_moved_coordinator_refreshes_the_metadata(
        self, node_id: int, refreshes: list[None]
    ) -> None:
        """Node 2 has another address in the metadata, and node 3 is not in the metadata."""
        rig = CoordinatorsRig(1, nodes=(1,))
        snapshot = rig.updater.snapshot
        rig.updater.snapshot = snapshot._replace(brokers={**snapshot.brokers, 2: Broker(2, "old", 9092)})
        finding = asyncio.create_task(rig.coordinators.find(TRANSACTION))
        await rig.is_found_at(node_id)
        assert await finding == Node(node_id, Address(f"b{node_id}", 9092))
        assert rig.updater.refreshes == refreshes

    @in_virtual_time
    async def test_failed_dials_are_spread_over_time(self) -> None:
        """In a large cluster, each failure would start the next dial at once."""
        rig = CoordinatorsRig()
        finding = asyncio.create_task(rig.coordinators.find(TRANSACTION))
        for dials in range(1, 4):
            for _ in range(3):
                await settle()
                assert len(rig.pool.wanted) == dials
                rig.coordinators.connections_changed()
            await asyncio.sleep(LEAST_GAP_S)
        finding.cancel()

    def test_keys_have_names(self) -> None:
        assert [str(TRANSACTION), str(GROUP)] == ["transactional id 'tx'", "group 'g'"]


class TestDial:
    """Node 2 is dialled by the caller."""

    @in_virtual_time
    async def test_dial_returns_once_connected(self) -> None:
        rig = CoordinatorsRig()
        dialling = asyncio.create_task(rig.coordinators.dial(NODE_2))
        await settle()
        assert rig.pool.wanted == [NODE_2]
        rig.pool.backing_off_until[2] = 60.0  # another part of the producer connected in a backoff
        rig.connect(2)
        assert await dialling is None
        assert rig.loop.time() == 0

    @in_virtual_time
    async def test_dial_of_a_silent_node_ends_without_an_error(self) -> None:
        rig = CoordinatorsRig()
        rig.pool.errors[2] = ConnectionFailed("an earlier attempt")
        assert await rig.coordinators.dial(NODE_2) is None
        assert rig.loop.time() == RESPONSE_TIMEOUT_S

    @in_virtual_time
    async def test_failed_dial_returns_its_error(self) -> None:
        rig = CoordinatorsRig()
        dialling = asyncio.create_task(rig.coordinators.dial(NODE_2))
        await settle()
        rig.pool.errors[2] = ConnectionFailed("refused")
        rig.pool.backing_off_until[2] = 60.0
        rig.coordinators.connections_changed()
        assert await dialling is rig.pool.errors[2]

    @in_virtual_time
    async def test_dial_in_a_backoff_returns_the_last_error_at_once(self) -> None:
        rig = CoordinatorsRig()
        rig.pool.errors[2] = ConnectionFailed("refused")
        rig.pool.backing_off_until[2] = 60.0
        assert await rig.coordinators.dial(NODE_2) is rig.pool.errors[2]
        assert rig.loop.time() == 0


class TestTransactionVersion:
    @in_virtual_time
    async def test_transaction_version_is_learned_from_a_connection(self) -> None:
        rig = CoordinatorsRig()
        assert rig.coordinators.transaction_version == 0
        rig.connect(1, AskedConnection(1, finalized_features={"transaction.version": 2}))
        assert rig.coordinators.transaction_version == 2

    @in_virtual_time
    async def test_version_is_1_until_the_limited_node_is_replaced(self) -> None:
        """An old proxy at node 2 offers lower versions of EndTxn."""
        rig = CoordinatorsRig()
        features = {"transaction.version": 2}
        for node_id, end_txn, version in ((1, 5, 2), (2, 4, 1), (1, 5, 1), (2, 5, 2)):
            rig.connect(node_id, AskedConnection(node_id, {26: (0, end_txn)}, finalized_features=features))
            assert rig.coordinators.transaction_version == version

    @in_virtual_time
    async def test_lost_connection_does_not_change_the_transaction_version(self) -> None:
        rig = CoordinatorsRig()
        rig.coordinators.connected(1)
        assert rig.coordinators.transaction_version == 0
