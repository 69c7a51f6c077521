"""Requests to a coordinator, repeated until answered; on fake connections, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer._core.address import Address
from aioproducer._core.protocol.schema import ApiVersionTable
from aioproducer._core.protocol.transactions import EndTxnResponse
from aioproducer._core.transactions.coordinator import FRESH_S, SUCCESSOR_TIMEOUT_S, Node
from aioproducer._core.transactions.transaction_manager import Api
from aioproducer.errors import (
    BrokerError,
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidTxnState,
    ProducerFenced,
    TopicAuthorizationFailed,
    UnsupportedVersion,
    broker_error,
)
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit._core.transactions.coordinators_rig import (
    CHECK,
    END,
    OFFERED,
    TRANSACTION,
    AskedConnection,
    CoordinatorsRig,
)
from tests.unit.floor_rig import settle

DESCRIBE = "DescribeTransactionsRequest"


class TestRequest:
    @in_virtual_time
    async def test_coordinator_is_found_once(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        assert rig.coordinators.last_error is None
        for first in (True, False):
            ending = rig.end()
            if first:
                await rig.is_found_at(1)
            await rig.answer()
            assert (await ending).error_code == 0
        assert rig.happened == ["written"] * 2
        assert rig.coordinators.last_error is None

    @in_virtual_time
    async def test_requests_are_sent_one_after_the_other(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        both = [rig.end(), rig.end(Api.ABORT)]
        await rig.is_found_at(1)
        assert rig.requests(1) == ["EndTxnRequest"]
        await rig.answer()
        assert [each.done() for each in both] == [True, False]
        await rig.answer()
        await asyncio.gather(*both)

    @for_each(
        ("limits", "offered", "version"),
        [
            ({}, 5, 5),
            ({}, 0, 0),
            ({"at_most": 4}, 5, 4),
            ({"at_least": 5}, 5, 5),
            ({"at_least": 3, "at_most": 4}, 5, 4),
        ],
    )
    @in_virtual_time
    async def test_version_is_kept_within_limits(
        self, limits: dict[str, Any], offered: int, version: int
    ) -> None:
        rig = CoordinatorsRig(nodes=(1,))
        rig.connect(1, AskedConnection(1, {26: (0, offered)}))
        ending = rig.end(**limits)
        await rig.is_found_at(1)
        assert rig.connection(1).asked_in == [6, version]
        await rig.answer()
        await ending

    @in_virtual_time
    async def test_coordinator_without_the_version_raises_a_fatal_error(self) -> None:
        rig = CoordinatorsRig(nodes=(1,))
        rig.connect(1, AskedConnection(1, {26: (0, 3)}))
        ending = rig.end(at_least=5)
        await rig.is_found_at(1)
        with pytest.raises(
            UnsupportedVersion, match="offers EndTxnRequest up to version 3, and 5 is needed"
        ) as raised:
            await ending
        assert raised.value.fatal
        assert rig.happened == []

    @in_virtual_time
    async def test_request_with_a_field_too_new_is_not_repeated(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        rig.coordinators._nodes[TRANSACTION] = Node(1, Address("b1", 9092))
        rig.connection(1).error = UnsupportedVersion("no field for it")
        with pytest.raises(UnsupportedVersion, match="no field for it") as raised:
            await rig.end()
        assert (raised.value.abortable, raised.value.fatal) == (False, False)
        assert rig.happened == []

    @for_each(
        ("api", "version", "code", "abortable"),
        [
            (Api.COMMIT, 2, 48, True),
            (Api.COMMIT, 1, 48, False),
            (Api.ABORT, 2, 90, False),
            (Api.ABORT, 1, 48, True),
            (Api.ABORT, 2, 48, False),
            (Api.COMMIT, 2, 120, True),
        ],
    )
    @in_virtual_time
    async def test_refusal_is_abortable_or_fatal(
        self, api: Api, version: int, code: int, abortable: bool
    ) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        ending = rig.end(api, version=version)
        await rig.is_found_at(1)
        await rig.answer(code)
        if code != 120:  # otherwise a replaced coordinator may have answered
            await rig.is_found_at(1)
        with pytest.raises(broker_error(code)) as raised:
            await ending
        assert str(raised.value) == (
            f"{api.name} for transactional id 'tx' at b1:9092 (node 1): {broker_error(code).__doc__}"
        )
        assert (raised.value.abortable, raised.value.fatal) == (abortable, not abortable)

    @pytest.mark.parametrize("code", [7, -1, 4711])
    @in_virtual_time
    async def test_retriable_end_is_requested_again(self, code: int) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        ending = rig.end()
        await rig.is_found_at(1)
        for wait_s in (0.1, 0.2, 0.4):
            await rig.answer(code)
            assert isinstance(rig.coordinators.last_error, BrokerError)
            await asyncio.sleep(0.9 * wait_s)
            assert rig.requests(1) == []
            await asyncio.sleep(0.1 * wait_s)
        await rig.answer()
        await ending
        assert rig.happened == ["written"] * 4
        assert rig.coordinators.last_error is None

    @in_virtual_time
    async def test_error_of_an_earlier_request_is_forgotten(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        first = rig.end()
        await rig.is_found_at(1)
        await rig.answer(7)
        first.cancel()
        second = rig.end()
        await settle()
        assert rig.coordinators.last_error is None
        await rig.answer()
        await second

    @in_virtual_time
    async def test_end_is_requested_more_often_while_markers_are_written(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        ending = rig.end()
        await rig.is_found_at(1)
        await rig.answer(51)
        assert isinstance(rig.coordinators.last_error, ConcurrentTransactions)
        await asyncio.sleep(0.0121)
        await rig.answer()
        await ending

    @for_each("code", [47, 48, 49, 90])
    @in_virtual_time
    async def test_refusal_of_a_replaced_coordinator_is_verified(self, code: int) -> None:
        """A frozen coordinator that was replaced answers from its old state."""
        rig = CoordinatorsRig(1, 2, 3)
        rig.coordinators._nodes[TRANSACTION] = Node(1, Address("b1", 9092))
        ending = rig.end()
        await rig.answer(code)
        asked = [node_id for node_id in (2, 3) if rig.connection(node_id).calls]
        assert len(asked) == 1
        assert rig.requests(1) == []
        await rig.is_found_at(3, by=asked[0])
        await rig.answer(at=3)
        await ending
        assert rig.happened == ["written"] * 2

    @in_virtual_time
    async def test_refusal_of_two_coordinators_is_raised(self) -> None:
        rig = CoordinatorsRig(1, 2, nodes=(1, 2))
        rig.coordinators._nodes[TRANSACTION] = Node(1, Address("b1", 9092))
        ending = rig.end()
        await rig.answer(48)
        await rig.is_found_at(2, by=2)
        await rig.answer(48, at=2)
        await rig.is_found_at(1, by=1)  # both nodes have refused
        with pytest.raises(InvalidTxnState, match="at b2:9092"):
            await ending

    @for_each("others_answer", [True, False])
    @in_virtual_time
    async def test_refusal_is_raised_without_a_successor(self, others_answer: bool) -> None:
        rig = CoordinatorsRig(1, 2, nodes=(1, 2))
        rig.coordinators._nodes[TRANSACTION] = Node(1, Address("b1", 9092))
        ending = rig.end()
        await rig.answer(48)
        if others_answer:
            await rig.is_found_at(1, by=2)
        else:
            await asyncio.sleep(SUCCESSOR_TIMEOUT_S)
            await settle()
        assert ending.done()
        assert isinstance(ending.exception(), InvalidTxnState)
        assert rig.happened == ["written"]

    @for_each(
        ("api", "version", "kind"),
        [(Api.COMMIT, 2, ProducerFenced), (Api.OFFSET_COMMIT, 2, InvalidProducerEpoch)],
    )
    @in_virtual_time
    async def test_fatal_invalid_epoch_is_raised_as_fenced(
        self, api: Api, version: int, kind: type[BrokerError]
    ) -> None:
        """KIP-588."""
        rig = CoordinatorsRig(1, nodes=(1,))
        asking = asyncio.create_task(
            rig.coordinators.request(api, TRANSACTION, END, lambda _: [(47, "orders-0")], version=version)
        )
        await rig.is_found_at(1)
        await rig.answer()
        await rig.is_found_at(1)
        with pytest.raises(kind) as raised:
            await asking
        assert type(raised.value) is kind
        assert str(raised.value) == (
            f"{api.name} for transactional id 'tx' at b1:9092 (node 1): orders-0: {kind.__doc__}"
        )

    @pytest.mark.parametrize("code", [15, 16])
    @in_virtual_time
    async def test_former_coordinator_is_replaced(self, code: int) -> None:
        rig = CoordinatorsRig(1, 2, nodes=(1,))
        ending = rig.end()
        await rig.is_found_at(1)
        await rig.answer(code)
        await asyncio.sleep(0.1)
        await rig.is_found_at(2)
        await rig.answer(at=2)
        await ending
        assert rig.happened == ["written"] * 2

    @in_virtual_time
    async def test_gravest_of_several_refusals_is_raised(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))

        def asks(*codes: int) -> asyncio.Task[EndTxnResponse]:
            refusals = [(code, f"orders-{index}") for index, code in enumerate(codes)]
            return asyncio.create_task(
                rig.coordinators.request(Api.ADD_PARTITIONS, TRANSACTION, END, lambda _: refusals, version=1)
            )

        asking = asks(0, 7, 29, 29, 3)
        await rig.is_found_at(1)
        await rig.answer()
        with pytest.raises(TopicAuthorizationFailed, match="orders-2: "):
            await asking
        asking = asks(29, 90, 0, 29)
        await rig.answer()
        await rig.is_found_at(1)
        with pytest.raises(ProducerFenced, match="orders-1: "):
            await asking

    @pytest.mark.parametrize(("codes", "raised"), [((55, 29), 29), ((29, 55), 29), ((55,), 55)])
    @in_virtual_time
    async def test_operation_not_attempted_is_never_the_reason(
        self, codes: tuple[int, ...], raised: int
    ) -> None:
        """A coordinator adds all partitions or none, and reports 55 for partitions without an error of their own."""
        rig = CoordinatorsRig(1, nodes=(1,))
        refusals = [(code, "orders-0") for code in codes]
        asking = asyncio.create_task(
            rig.coordinators.request(Api.ADD_PARTITIONS, TRANSACTION, END, lambda _: refusals, version=1)
        )
        await rig.is_found_at(1)
        await rig.answer()
        with pytest.raises(broker_error(raised)):
            await asking

    @in_virtual_time
    async def test_operation_not_attempted_is_retried_if_the_cause_is(self) -> None:
        """The metadata of the coordinator may still lack a new topic."""
        rig = CoordinatorsRig(1, nodes=(1,))
        refusals = [[(55, "orders-0"), (3, "new-0")], [(0, "orders-0"), (0, "new-0")]]
        asking = asyncio.create_task(
            rig.coordinators.request(
                Api.ADD_PARTITIONS, TRANSACTION, END, lambda _: refusals.pop(0), version=1
            )
        )
        await rig.is_found_at(1)
        await rig.answer()
        await asyncio.sleep(0.1)
        await rig.answer()
        await asking


class TestCheck:
    """A request that is sent directly before another."""

    @in_virtual_time
    async def test_check_comes_before_each_attempt(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        ending = rig.end(check=CHECK)
        await rig.is_found_at(1)
        assert rig.requests(1) == [DESCRIBE]
        await rig.describes()
        await rig.answer(51)
        await asyncio.sleep(0.02)
        assert rig.requests(1) == [DESCRIBE]
        await rig.describes(51)
        await asyncio.sleep(0.03)
        assert rig.requests(1) == [DESCRIBE]
        await rig.describes()
        await rig.answer()
        await ending
        assert rig.happened == ["written"] * 2

    @in_virtual_time
    async def test_refused_check_keeps_the_request_back(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        ending = rig.end(check=CHECK)
        await rig.is_found_at(1)
        await rig.describes(90)
        await rig.is_found_at(1)
        with pytest.raises(
            ProducerFenced, match=r"^DESCRIBE for transactional id 'tx' at b1:9092 .*: another epoch"
        ) as raised:
            await ending
        assert raised.value.fatal
        assert rig.happened == []

    @in_virtual_time
    async def test_refused_check_of_a_replaced_coordinator_is_repeated(self) -> None:
        rig = CoordinatorsRig(1, 2, nodes=(1, 2))
        rig.coordinators._nodes[TRANSACTION] = Node(1, Address("b1", 9092))
        ending = rig.end(check=CHECK)
        await rig.describes(90)
        await rig.is_found_at(2, by=2)
        await rig.describes(at=2)
        await rig.answer(at=2)
        await ending

    @in_virtual_time
    async def test_late_answer_to_a_check_does_not_count(self) -> None:
        """A successor may have come since. On a slow network a check may take longer with each."""
        rig = CoordinatorsRig(1, nodes=(1,))
        ending = rig.end(check=CHECK)
        await rig.is_found_at(1)
        for took_s in (1.1, 1.9):
            assert rig.requests(1) == [DESCRIBE]
            await asyncio.sleep(took_s)
            await rig.describes()
        await rig.answer()
        await ending

    @in_virtual_time
    async def test_answer_to_a_check_counts_within_a_second(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        ending = rig.end(check=CHECK)
        await rig.is_found_at(1)
        await asyncio.sleep(FRESH_S)
        await rig.describes()
        await rig.answer()
        await ending

    @in_virtual_time
    async def test_lost_answer_to_a_check_leaves_nothing_uncertain(self) -> None:
        rig = CoordinatorsRig(1, nodes=(1,))
        ending = rig.end(check=CHECK)
        await rig.is_found_at(1)
        rig.lose(1)
        await asyncio.sleep(0.1)
        rig.connect(1)
        await rig.is_found_at(1)
        await rig.describes()
        await rig.answer()
        await ending
        assert rig.happened == ["written"]

    @in_virtual_time
    async def test_broker_without_the_check_receives_the_request(self) -> None:
        rig = CoordinatorsRig(nodes=(1,))
        connection = AskedConnection(1)
        connection.versions = ApiVersionTable({key: OFFERED[key] for key in (10, 26)})
        rig.connect(1, connection)
        ending = rig.end(check=CHECK)
        await rig.is_found_at(1)
        await rig.answer()
        await ending
