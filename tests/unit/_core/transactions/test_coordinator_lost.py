"""Coordinators that are lost, silent or busy, and callers who are cancelled."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer._core.address import Address
from aioproducer._core.net.pool import REFUSAL_TIMEOUT_S, RefusedLogins
from aioproducer._core.protocol.transactions import EndTxnResponse
from aioproducer._core.transactions.coordinator import FIND_TIMEOUT_S, RESPONSE_TIMEOUT_S, Node
from aioproducer._core.transactions.transaction_manager import Api
from aioproducer.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ProtocolError,
)
from aioproducer.testing import in_virtual_time
from tests.unit._core.transactions.coordinators_rig import (
    TRANSACTION,
    CoordinatorsRig,
    found,
)
from tests.unit.floor_rig import settle


class TestLost:
    @pytest.mark.parametrize("written", [True, False])
    @in_virtual_time
    async def test_coordinator_is_looked_up_again(self, written: bool) -> None:
        rig = CoordinatorsRig(1, 2, nodes=(1, 2))
        rig.coordinators._nodes[TRANSACTION] = Node(1, Address("b1", 9092))
        ending = rig.end()
        await settle()
        rig.lose(1, written=written)
        await asyncio.sleep(0.1)
        assert isinstance(rig.coordinators.last_error, ConnectionFailed)
        await rig.is_found_at(2, by=2)
        await rig.answer(at=2)
        await ending
        assert rig.happened == ["written", *["uncertain"] * written, "written"]

    @in_virtual_time
    async def test_malformed_answer_leaves_the_outcome_uncertain(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        ending = rig.end()
        await rig.is_found_at(1)
        await rig.answer(ProtocolError("bytes"))
        await asyncio.sleep(0.1)
        await rig.is_found_at(1)
        await rig.answer()
        await ending
        assert rig.happened == ["written", "uncertain", "written"]

    @in_virtual_time
    async def test_request_on_a_closing_connection_counts_as_unwritten(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        ending = rig.end()
        await settle()
        rig.connection(1).error = ConnectionFailed("closing", written=False)
        rig.connection(1).answer(found(1))
        await settle()
        rig.connection(1).error = None
        await asyncio.sleep(0.1)
        await rig.is_found_at(1)
        await rig.answer()
        await ending
        assert rig.happened == ["written"]

    @in_virtual_time
    async def test_connection_to_the_coordinator_is_opened(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        ending = rig.end()
        await rig.is_found_at(2)
        assert rig.pool.wanted == [(2, Address("b2", 9092))]
        rig.connect(2)
        await rig.answer(at=2)
        await ending

    @in_virtual_time
    async def test_unreachable_coordinator_is_looked_up_again(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        ending = rig.end()
        await rig.is_found_at(2)
        rig.pool.errors[2] = ConnectionFailed("refused")
        rig.pool.backing_off_until[2] = rig.loop.time() + 60
        rig.coordinators.connections_changed()
        await settle()
        assert rig.coordinators.last_error is rig.pool.errors[2]
        for wait_s, node_id in ((0.1, 2), (0.2, 2), (0.4, 1)):
            await asyncio.sleep(0.9 * wait_s)
            assert rig.requests(1) == []
            await asyncio.sleep(0.1 * wait_s)
            await rig.is_found_at(node_id)
        await rig.answer()
        await ending
        assert rig.happened == ["written"]

    @in_virtual_time
    async def test_coordinator_whose_connection_hangs_is_looked_up_again(self) -> None:
        """A frozen broker accepts the socket, and the handshake hangs until its timeout."""
        rig = CoordinatorsRig(1, nodes=(1,))
        ending = rig.end()
        await rig.is_found_at(2)
        await asyncio.sleep(RESPONSE_TIMEOUT_S + 0.1)
        await rig.is_found_at(1)
        await rig.answer()
        await ending
        assert rig.happened == ["written"]

    @in_virtual_time
    async def test_unreachable_coordinator_is_reported_as_not_connected(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        rig.pool.backing_off_until[2] = rig.loop.time() + 60
        ending = rig.end()
        await rig.is_found_at(2)
        assert str(rig.coordinators.last_error) == "b2:9092: not connected"
        ending.cancel()

    @in_virtual_time
    async def test_changes_in_one_iteration_wake_a_request_once(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        ending = rig.end()
        await rig.is_found_at(2)
        rig.connect(2)
        rig.coordinators.connections_changed()
        await rig.answer(at=2)
        assert (await ending).error_code == 0

    @in_virtual_time
    async def test_throttled_coordinator_is_not_asked(self) -> None:
        """KIP-219: the broker reads nothing meanwhile, so the request would time out."""
        rig = CoordinatorsRig(1, nodes=(1,))
        rig.coordinators._nodes[TRANSACTION] = Node(1, Address("b1", 9092))
        rig.connection(1).throttled_until = rig.loop.time() + 3
        ending = rig.end()
        await asyncio.sleep(2.9)
        assert rig.requests(1) == []
        await asyncio.sleep(0.2)
        await rig.answer()
        await ending


class TestSilent:
    @in_virtual_time
    async def test_silent_coordinator_is_replaced_by_its_successor(self) -> None:
        rig = CoordinatorsRig(1, 2, nodes=(2,))
        ending = rig.end()
        await rig.is_found_at(1, by=2)
        await asyncio.sleep(2)
        await rig.is_found_at(2, by=2)
        error = rig.coordinators.last_error
        assert isinstance(error, ConnectionFailed)
        assert str(error) == (
            "node 1, which is silent, is not the coordinator of transactional id 'tx' any more"
        )
        await asyncio.sleep(0.1)
        await rig.is_found_at(2, by=2)
        await rig.answer(at=2)
        await ending
        assert rig.happened == ["written", "uncertain", "written"]
        rig.connection(1).answer(EndTxnResponse(error_code=90))  # too late

    @in_virtual_time
    async def test_silent_coordinator_without_a_successor_is_awaited(self) -> None:
        rig = CoordinatorsRig(1, 2, nodes=(2,))
        ending = rig.end()
        await rig.is_found_at(1, by=2)
        for _ in range(3):
            await asyncio.sleep(2)
            await rig.is_found_at(1, by=2)
        await rig.answer()
        await ending
        assert rig.happened == ["written"]

    @in_virtual_time
    async def test_answer_ends_the_lookup_of_a_silent_coordinator(self) -> None:
        rig = CoordinatorsRig(1, 2, nodes=(2,))
        ending = rig.end()
        await rig.is_found_at(1, by=2)
        before = asyncio.all_tasks()
        await asyncio.sleep(2)
        await settle()
        [lookup] = asyncio.all_tasks() - before
        assert lookup.get_name() == "aioproducer: find the coordinator of transactional id 'tx'"
        await rig.answer()
        await ending
        await settle()
        assert lookup.cancelled()
        assert rig.happened == ["written"]

    @in_virtual_time
    async def test_lookup_of_a_silent_coordinator_is_limited_in_time(self) -> None:
        rig = CoordinatorsRig(1, 2, nodes=(2,))
        ending = rig.end()
        await rig.is_found_at(1, by=2)
        before = asyncio.all_tasks()
        for lookups in (0, 1, 0, 1):
            assert len(asyncio.all_tasks() - before) == lookups
            await asyncio.sleep(RESPONSE_TIMEOUT_S)
            await settle()
        await rig.answer()
        await ending

    @in_virtual_time
    async def test_failed_lookup_leaves_the_silent_coordinator_in_place(self) -> None:
        rig = CoordinatorsRig(1, 2, nodes=(2,))
        ending = rig.end()
        await rig.is_found_at(1, by=2)
        await asyncio.sleep(2)
        await settle()
        rig.connection(2).answer(found(-1, code=53))
        await settle()
        assert not ending.done()
        await asyncio.sleep(4.1)  # no node answers
        await settle()
        await rig.answer()
        await ending
        assert rig.happened == ["written"]


class TestCancelled:
    @in_virtual_time
    async def test_cancelled_request_leaves_no_task_at_any_stage(self) -> None:
        """At each await: in line, finding, dialling, asked, asked for again while silent, in its pause."""
        stages = ["in line", "finding", "dialling", "asked", "silent", "pausing", "throttled"]
        for stage in stages:
            rig = CoordinatorsRig(2, nodes=(2,))
            before = asyncio.all_tasks()
            others = [rig.end()] if stage == "in line" else []
            await settle()
            ending = rig.end()
            await settle()
            if stage == "throttled":
                rig.connect(1).throttled_until = rig.loop.time() + 5
            if stage not in {"in line", "finding"}:
                await rig.is_found_at(1, by=2)
            if stage in {"asked", "silent", "pausing"}:
                rig.connect(1)
                await settle()
            if stage == "silent":
                await asyncio.sleep(2.1)
            if stage == "pausing":
                await rig.answer(7)
            ending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ending
            for other in others:
                other.cancel()
            await settle()
            assert asyncio.all_tasks() == before, stage
            uncertain = ["uncertain"] * (stage in {"asked", "silent"})
            assert rig.happened == ["written"] * (stage in {"asked", "silent", "pausing"}) + uncertain, stage
            assert not rig.coordinators._listeners, stage

    @in_virtual_time
    async def test_request_behind_a_cancelled_one_is_sent(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        first, second = rig.end(), rig.end(Api.ABORT)
        await rig.is_found_at(1)
        first.cancel()
        await settle()
        rig.connection(1).answer(EndTxnResponse())  # the answer to the cancelled request
        await rig.answer()
        await second


class TestRefused:
    """Logins are refused by the nodes that were dialled, and no other node is connected."""

    def refuse(self, rig: CoordinatorsRig, *nodes: int, since: float = 0.0) -> None:
        for node_id in nodes:
            error = AuthenticationFailed(f"b{node_id}:9092 refused", broker=f"b{node_id}:9092")
            rig.pool.errors[node_id] = error
            rig.pool.refused[node_id] = RefusedLogins(error, since)
            rig.pool.backing_off_until[node_id] = 60.0

    @pytest.mark.parametrize(
        ("api", "abortable"), [(Api.INIT_PRODUCER_ID, False), (Api.ADD_PARTITIONS, True)]
    )
    @in_virtual_time
    async def test_request_fails_when_all_that_were_dialled_refuse(self, api: Api, abortable: bool) -> None:
        rig = CoordinatorsRig()
        self.refuse(rig, 1, 2)
        asking = rig.end(api, fails_refused=True)
        await asyncio.sleep(REFUSAL_TIMEOUT_S - 0.1)
        assert not asking.done()
        with pytest.raises(AuthenticationFailed, match=r"b[12]:9092 refused") as failed:
            await asking
        assert rig.loop.time() <= REFUSAL_TIMEOUT_S + FIND_TIMEOUT_S
        assert (failed.value.abortable, failed.value.fatal) == (abortable, False)

    @in_virtual_time
    async def test_request_fails_at_once_after_long_refusals(self) -> None:
        rig = CoordinatorsRig()
        self.refuse(rig, 1, 2, 3, since=-REFUSAL_TIMEOUT_S)
        with pytest.raises(AuthenticationFailed):
            await rig.end(Api.ADD_PARTITIONS, fails_refused=True)
        assert rig.loop.time() == 0

    @in_virtual_time
    async def test_request_fails_when_the_coordinator_refuses(self) -> None:
        rig = CoordinatorsRig(1)
        self.refuse(rig, 2)
        asking = rig.end(Api.ADD_PARTITIONS, fails_refused=True)
        while not asking.done() and rig.loop.time() < 5:
            await settle()
            if rig.connection(1).calls:
                await rig.is_found_at(2)
            await asyncio.sleep(0.1)
        assert isinstance(asking.exception(), AuthenticationFailed)

    @in_virtual_time
    async def test_request_continues_when_another_node_is_unreachable(self) -> None:
        rig = CoordinatorsRig()
        self.refuse(rig, 1)
        rig.pool.errors[2] = ConnectionFailed("away")
        asking = rig.end(Api.ADD_PARTITIONS, fails_refused=True)
        await asyncio.sleep(60)
        assert not asking.done()
        asking.cancel()

    @in_virtual_time
    async def test_lookup_without_a_request_continues(self) -> None:
        rig = CoordinatorsRig()
        self.refuse(rig, 1, 2, 3)
        finding = asyncio.create_task(rig.coordinators.find(TRANSACTION))
        await asyncio.sleep(60)
        assert not finding.done()
        finding.cancel()

    @in_virtual_time
    async def test_end_continues_when_all_nodes_refuse_logins(self) -> None:
        rig = CoordinatorsRig()
        self.refuse(rig, 1, 2, 3)
        ending = rig.end()
        await asyncio.sleep(60)
        assert not ending.done()
        assert isinstance(rig.coordinators.last_error, AuthenticationFailed)
        ending.cancel()
