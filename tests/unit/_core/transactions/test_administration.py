from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aioproducer._core.protocol.admin import ListTransactionsRequest, TransactionState as Listed
from aioproducer._core.protocol.metadata import MetadataRequest
from aioproducer._core.protocol.produce import InitProducerIdRequest
from aioproducer._core.protocol.schema import ApiVersionTable
from aioproducer._core.protocol.transactions import (
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    TopicData,
    TransactionState as Described,
)
from aioproducer._core.transactions.administration import PIPELINED, TransactionListing
from aioproducer.errors import (
    BrokerError,
    ConnectionFailed,
    InvalidTxnState,
    ProducerError,
    TransactionalIdAuthorizationFailed,
    TransactionLost,
    TransactionOutcomeUnknown,
    TransactionStateError,
    TransactionTimeout,
    UnsupportedVersion,
)
from aioproducer.testing.virtual_time import in_virtual_time
from aioproducer.types import TopicPartition
from tests.cases import for_each
from tests.unit._core.transactions.administration_rig import (
    OFFERED,
    Brokers,
    Node,
    administration,
    description,
    end,
    prepared,
    run,
)


class TestEnd:
    @for_each("commit", [True, False])
    @for_each(("version", "of_request"), [(1, 4), (2, 5)])
    def test_request_version_matches_the_transaction_version(
        self, version: int, of_request: int, commit: bool
    ) -> None:
        brokers = Brokers()
        end(brokers, prepared(version=version), commit=commit)
        [request] = brokers.of(EndTxnRequest)
        assert request == EndTxnRequest(
            transactional_id="orders-1", producer_id=7, producer_epoch=3, committed=commit
        )
        assert brokers.versions(EndTxnRequest) == [of_request]

    def test_broker_too_old_for_the_version_is_not_asked(self) -> None:
        brokers = Brokers()
        brokers.connections[1].versions = ApiVersionTable({**OFFERED, 26: (0, 4)})
        with pytest.raises(UnsupportedVersion) as caught:
            end(brokers, prepared(version=2))
        assert not caught.value.fatal
        assert not brokers.of(EndTxnRequest)

    @for_each("code", [None, 7, 14, 15, 16, 51, -1, 9999])
    def test_end_is_requested_again_until_it_is_answered(self, code: int | None) -> None:
        brokers = Brokers()
        brokers.ends = [code, code]
        end(brokers, prepared())
        assert len(brokers.of(EndTxnRequest)) == 3

    @for_each("version", [1, 2])
    @for_each("commit", [True, False])
    @for_each("code", [47, 49, 90])
    def test_end_of_a_reused_id_has_an_unknown_outcome(self, code: int, commit: bool, version: int) -> None:
        brokers = Brokers()
        brokers.ends = [code]
        with pytest.raises(TransactionOutcomeUnknown, match="'orders-1'") as caught:
            end(brokers, prepared(version=version), commit=commit)
        assert isinstance(caught.value.__cause__, BrokerError)
        assert caught.value.__cause__.code == {47: 90}.get(code, code)  # before Kafka 2.7, 47 stands for both
        assert not caught.value.abortable
        assert not caught.value.fatal

    @for_each(
        ("version", "commit", "kind"),
        [
            (2, True, TransactionLost),
            (2, False, TransactionStateError),
            (1, True, TransactionOutcomeUnknown),
            (1, False, TransactionOutcomeUnknown),
        ],
    )
    @for_each("state", [None, description("CompleteAbort", epoch=4), description("Ongoing")])
    def test_end_in_another_state_is_refused(
        self, version: int, commit: bool, kind: type[ProducerError], state: Described | None
    ) -> None:
        brokers = Brokers()
        brokers.ends, brokers.state = [48], state
        with pytest.raises(kind) as caught:
            end(brokers, prepared(version=version), commit=commit)
        assert type(caught.value) is kind
        assert isinstance(caught.value.__cause__, InvalidTxnState)
        assert not caught.value.abortable

    @for_each("commit", [True, False])
    @for_each(("version", "state"), [(1, "Empty"), (2, "Empty"), (2, "CompleteCommit"), (2, "CompleteAbort")])
    def test_empty_transaction_is_ended(self, version: int, state: str, commit: bool) -> None:
        brokers = Brokers()
        brokers.ends, brokers.state = [48], description(state)
        end(brokers, prepared(version=version), commit=commit)
        assert brokers.of(DescribeTransactionsRequest)

    def test_completed_transaction_has_an_unknown_outcome_in_v1(self) -> None:
        brokers = Brokers()
        brokers.ends, brokers.state = [48], description("CompleteAbort")
        with pytest.raises(TransactionOutcomeUnknown):
            end(brokers, prepared(version=1))

    def test_outcome_is_unknown_where_states_cannot_be_described(self) -> None:
        brokers = Brokers()
        brokers.ends = [48]
        brokers.connections[1].versions = ApiVersionTable({26: OFFERED[26]})
        with pytest.raises(TransactionOutcomeUnknown, match="InvalidTxnState") as caught:
            end(brokers, prepared())
        assert isinstance(caught.value.__cause__, InvalidTxnState)
        assert not brokers.of(DescribeTransactionsRequest)

    def test_authorization_error_is_raised_as_it_is(self) -> None:
        brokers = Brokers()
        brokers.ends = [53]
        with pytest.raises(TransactionalIdAuthorizationFailed, match="'orders-1'") as caught:
            end(brokers, prepared())
        assert not caught.value.fatal

    def test_outcome_is_unknown_without_an_answer_in_time(self) -> None:
        brokers = Brokers()
        brokers.ends = [51] * 1000
        with pytest.raises(TransactionOutcomeUnknown, match=r"within 5 s .*ConcurrentTransactions") as caught:
            end(brokers, prepared(), timeout_s=5)
        assert isinstance(caught.value.__cause__, BrokerError)
        assert caught.value.__cause__.code == 51

    def test_outcome_is_unknown_when_the_coordinator_is_silent(self) -> None:
        brokers = Brokers()
        brokers.silent = True
        with pytest.raises(TransactionOutcomeUnknown, match="within 60 s"):
            end(brokers, prepared())

    def test_timeout_is_raised_when_no_coordinator_was_asked(self) -> None:
        brokers = Brokers()
        brokers.find_code = 15
        with pytest.raises(TransactionTimeout, match="CoordinatorNotAvailable") as caught:
            end(brokers, prepared(), timeout_s=5)
        assert not caught.value.abortable
        assert not brokers.of(EndTxnRequest)

    @in_virtual_time
    async def test_close_takes_effect_while_a_call_times_out(self) -> None:
        brokers, loop = Brokers(), asyncio.get_running_loop()
        brokers.silent = True
        admin = administration(brokers)
        calls = [loop.create_task(admin.end(prepared(), commit=True, timeout_s=each)) for each in (5, 60)]
        closed = loop.create_future()

        def close() -> None:
            admin.close()
            closed.set_result(loop.time())

        # Between the first call's timeout and the next step of its task.
        loop.call_later(5, loop.call_soon, close)
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in outcomes] == [TransactionOutcomeUnknown] * 2
        assert closed.done()
        assert loop.time() - closed.result() < 1


class TestEndMany:
    def test_transactions_have_their_own_outcomes(self) -> None:
        brokers = Brokers()
        brokers.ends = [0, 90]
        first, second = prepared("orders-0"), prepared("orders-2")
        outcomes = run(brokers, lambda admin: admin.end_many([first, second, first], commit=True))
        assert outcomes[first] is None
        assert isinstance(outcomes[second], TransactionOutcomeUnknown)
        assert len(outcomes) == 2

    def test_empty_list_has_no_outcomes(self) -> None:
        assert run(Brokers(), lambda admin: admin.end_many([], commit=True)) == {}

    def test_requests_are_pipelined_up_to_a_limit_per_coordinator(self) -> None:
        brokers = Brokers()
        many = [prepared(f"orders-{number}") for number in range(10 * PIPELINED)]
        outcomes = run(brokers, lambda admin: admin.end_many(many, commit=True))
        assert set(outcomes.values()) == {None}
        assert 2 * PIPELINED <= brokers.most_waiting <= 3 * PIPELINED

    def test_silent_coordinator_delays_only_its_own_transactions(self) -> None:
        brokers = Brokers()
        many = [prepared(f"orders-{number}") for number in range(4 * PIPELINED)]

        class Frozen(Node):
            def call(self, request: Any, on_answer: Callable[[Any], None], *, version: int) -> None:
                if isinstance(request, FindCoordinatorRequest):
                    super().call(request, on_answer, version=version)

        brokers.connections[1] = Frozen(brokers, 1)
        outcomes = run(brokers, lambda admin: admin.end_many(many, commit=True))
        assert {each.transactional_id for each, error in outcomes.items() if error is None} == {
            f"orders-{number}" for number in range(0, 4 * PIPELINED, 2)
        }

    def test_cancelled_end_many_leaves_no_task(self) -> None:
        brokers = Brokers()
        brokers.silent = True

        async def main() -> None:
            admin = administration(brokers)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(admin.end_many([prepared()], commit=True), 1)
            assert len(asyncio.all_tasks()) == 1

        in_virtual_time(main)()


class TestDescribe:
    def test_description_has_all_fields_of_the_response(self) -> None:
        brokers = Brokers()
        brokers.state = Described(
            transactional_id="orders-1",
            transaction_state="Ongoing",
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=1_000,
            producer_id=7,
            producer_epoch=3,
            topics=[TopicData(topic="in", partitions=[0, 2])],
        )
        told = run(brokers, lambda admin: admin.describe(["orders-1"]))["orders-1"]
        assert told == (
            "orders-1", "Ongoing", 7, 3, 60_000, 1_000, {TopicPartition("in", 0), TopicPartition("in", 2)},
        )  # fmt: skip

    def test_transaction_that_never_began_has_no_start_time(self) -> None:
        brokers = Brokers()
        brokers.state = description("Empty")
        assert run(brokers, lambda admin: admin.describe(["orders-1"]))["orders-1"].began_at_ms is None

    def test_unknown_ids_are_described_as_none(self) -> None:
        assert run(Brokers(), lambda admin: admin.describe(["a", "b"])) == {"a": None, "b": None}

    def test_answer_about_another_id_describes_nothing(self) -> None:
        brokers = Brokers()
        brokers.state = description("Ongoing")
        told = run(brokers, lambda admin: admin.describe(["orders-1", "orders-3"]))
        assert told["orders-1"].producer_id == 7
        assert told["orders-3"] is None

    def test_refusal_is_raised(self) -> None:
        brokers = Brokers()
        brokers.state = Described(error_code=53, transactional_id="orders-1")
        with pytest.raises(TransactionalIdAuthorizationFailed):
            run(brokers, lambda admin: admin.describe(["orders-1"]))


class TestList:
    def test_all_brokers_are_asked(self) -> None:
        brokers = Brokers()
        both = Listed(transactional_id="b", producer_id=2, transaction_state="Ongoing")
        brokers.listed[0] = [both]
        brokers.listed[1] = [Listed(transactional_id="a", producer_id=1, transaction_state="Empty"), both]
        told = run(brokers, lambda admin: admin.list(r"orders\..*", ["Ongoing"], 5))
        assert told == [TransactionListing("a", 1, "Empty"), TransactionListing("b", 2, "Ongoing")]
        assert brokers.of(ListTransactionsRequest) == 2 * [
            ListTransactionsRequest(
                state_filters=["Ongoing"], duration_filter=5, transactional_id_pattern=r"orders\..*"
            )
        ]

    def test_broker_that_is_not_ready_is_asked_again(self) -> None:
        brokers = Brokers()
        brokers.listed[1] = [14, 14, Listed(transactional_id="a", producer_id=1, transaction_state="Empty")]
        assert [each[0] for each in run(brokers, lambda admin: admin.list(None, (), None))] == ["a"]
        assert brokers.of(ListTransactionsRequest)[0].duration_filter == -1

    def test_broker_that_is_never_ready_raises_a_timeout(self) -> None:
        brokers = Brokers()
        brokers.listed[1] = [14] * 1000
        with pytest.raises(TransactionTimeout, match="CoordinatorLoadInProgress"):
            run(brokers, lambda admin: admin.list(None, (), None))

    def test_answer_without_brokers_is_asked_for_again(self) -> None:
        brokers = Brokers()
        brokers.starting = 2
        brokers.listed[1] = [Listed(transactional_id="a", producer_id=1, transaction_state="Empty")]
        assert [each[0] for each in run(brokers, lambda admin: admin.list(None, (), None))] == ["a"]
        assert len(brokers.of(MetadataRequest)) == 3

    def test_answers_without_brokers_are_no_empty_listing(self) -> None:
        brokers = Brokers()
        brokers.starting = 1000
        with pytest.raises(TransactionTimeout, match="the broker lists no brokers"):
            run(brokers, lambda admin: admin.list(None, (), None))

    def test_broker_without_these_filters_raises_unsupported(self) -> None:
        brokers = Brokers()
        brokers.connections[0].versions = ApiVersionTable({3: OFFERED[3]})
        with pytest.raises(
            UnsupportedVersion, match=r"b:9092 \(node 0\) cannot list transactions by these filters"
        ):
            run(brokers, lambda admin: admin.list(None, ["Ongoing"], None))

    @for_each("refused", [0, 2])
    @in_virtual_time
    async def test_broker_that_is_not_connected_is_dialled(self, refused: int) -> None:
        brokers, loop = Brokers(), asyncio.get_running_loop()
        brokers.listed[1] = [Listed(transactional_id="a", producer_id=1, transaction_state="Empty")]
        brokers.refused_dials = refused
        node = brokers.connections.pop(1)
        admin = administration(brokers)

        def connect() -> None:
            brokers.connections[1] = node
            admin.connections_changed()

        brokers.on_dial = lambda _node: loop.call_later(0.5, connect)
        assert [each[0] for each in await admin.list(None, (), None)] == ["a"]
        assert brokers.dials == [1] * (refused + 1)

    def test_broker_that_cannot_be_dialled_raises_a_timeout(self) -> None:
        brokers = Brokers()
        brokers.refused_dials = 1000
        del brokers.connections[1]
        with pytest.raises(TransactionTimeout, match="b:9093: refused") as caught:
            run(brokers, lambda admin: admin.list(None, (), None))
        assert isinstance(caught.value.__cause__, ConnectionFailed)

    def test_unknown_state_filter_raises_value_error(self) -> None:
        brokers = Brokers()
        brokers.listed[0] = ["ongoing"]
        with pytest.raises(ValueError, match="knows no ongoing"):
            run(brokers, lambda admin: admin.list(None, ["ongoing"], None))

    def test_refusal_is_raised(self) -> None:
        brokers = Brokers()
        brokers.listed[0] = [128]
        with pytest.raises(BrokerError) as caught:
            run(brokers, lambda admin: admin.list("(", (), None))
        assert caught.value.code == 128


class TestFence:
    def test_producer_ids_are_initialized_for_all_ids(self) -> None:
        brokers = Brokers()
        run(brokers, lambda admin: admin.fence(["orders-1", "orders-2"]))
        assert {each.transactional_id for each in brokers.of(InitProducerIdRequest)} == {
            "orders-1",
            "orders-2",
        }
        assert set(brokers.versions(InitProducerIdRequest)) == {5}

    def test_all_ids_are_tried_if_one_fails(self) -> None:
        brokers = Brokers()
        brokers.inits = {"orders-1": 53}
        with pytest.raises(TransactionalIdAuthorizationFailed) as caught:
            run(brokers, lambda admin: admin.fence(["orders-1", "orders-2"]))
        assert not caught.value.fatal
        assert len(brokers.of(InitProducerIdRequest)) == 2
