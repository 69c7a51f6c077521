from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from aioproducer.backoff import Backoff
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
from aioproducer.metadata.snapshot import Broker, MetadataSnapshot
from aioproducer.metadata.updater import MetadataUpdater
from aioproducer.net.pool import Pool
from aioproducer.protocol.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState as Described,
)
from aioproducer.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.protocol.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState as Listed,
)
from aioproducer.protocol.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from aioproducer.protocol.schema import ApiVersionTable, Request
from aioproducer.protocol.transactions import EndTxnRequest, EndTxnResponse
from aioproducer.testing.virtual_time import in_virtual_time
from aioproducer.transactions.administration import PIPELINED, Administration, TransactionListing
from aioproducer.transactions.prepared_transaction import PreparedTransaction
from aioproducer.types import TopicPartition

OFFERED = {3: (0, 13), 10: (0, 6), 22: (0, 5), 26: (0, 5), 65: (0, 0), 66: (0, 2)}
LIMIT_S = 60.0


def prepared(name: str = "orders-1", *, version: int = 2, epoch: int = 3) -> PreparedTransaction:
    return PreparedTransaction(name, 7, epoch, version, began_at_ms=1_000, timeout_ms=60_000)


class Brokers:
    """Two brokers that answer at once what the test says, and remember what they were asked, in which version.

    Ids that end with an even number are coordinated by node 0, the others by node 1.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[Request[Any], int]] = []
        self.ends: list[int | None] = []
        """Codes of the next answers to EndTxn, then 0; None: the connection is lost."""
        self.silent = False
        self.waiting = 0
        self.most_waiting = 0
        self.state: Described | None = None
        self.listed: dict[int, list[Any]] = {0: [], 1: []}
        self.inits: dict[str, int] = {}
        self.find_code = 0
        self.offered = dict(OFFERED)
        self.snapshot = MetadataSnapshot(brokers={node: Broker(node, "b", 9092 + node) for node in (0, 1)})
        self.connections = {node: Node(self, node) for node in (0, 1)}

    def of(self, kind: type[Request[Any]]) -> list[Any]:
        return [request for request, _ in self.asked if isinstance(request, kind)]

    def versions(self, kind: type[Request[Any]]) -> list[int]:
        return [version for request, version in self.asked if isinstance(request, kind)]

    # --- a pool ---
    def get(self, node_id: int) -> Any:
        return self.connections[node_id]

    def least_loaded(self, candidates: Any) -> Any:
        return next((self.connections[each] for each in sorted(candidates)), None)

    def next_attempt_at(self, _node_id: int) -> float | None:
        return None

    def answer(self, node: int, request: Any) -> Any:  # noqa: PLR0911 - a table
        match request:
            case FindCoordinatorRequest():
                (name,) = request.coordinator_keys
                at = int(name[-1]) % 2 if name[-1].isdigit() else 0
                found = Coordinator(key=name, node_id=at, host="b", port=9092 + at, error_code=self.find_code)
                return FindCoordinatorResponse(coordinators=[found])
            case EndTxnRequest():
                code = self.ends.pop(0) if self.ends else 0
                if code is None:
                    return ConnectionFailed("reset", written=True)
                return EndTxnResponse(error_code=code)
            case DescribeTransactionsRequest():
                (name,) = request.transactional_ids
                state = self.state or Described(error_code=105, transactional_id=name)
                return DescribeTransactionsResponse(transaction_states=[state])
            case InitProducerIdRequest():
                return InitProducerIdResponse(
                    error_code=self.inits.get(request.transactional_id or "", 0), producer_epoch=1
                )
            case MetadataRequest():
                return MetadataResponse(
                    brokers=[
                        MetadataResponseBroker(node_id=each, host="b", port=9092 + each) for each in (0, 1)
                    ],
                    topics=[],
                )
            case ListTransactionsRequest():
                told = self.listed[node]
                if told and isinstance(told[0], int):
                    return ListTransactionsResponse(error_code=told.pop(0))
                if told and isinstance(told[0], str):
                    return ListTransactionsResponse(unknown_state_filters=told)
                return ListTransactionsResponse(transaction_states=told)
        raise AssertionError(request)


class Node:
    def __init__(self, brokers: Brokers, node_id: int) -> None:
        self.brokers = brokers
        self.node_id = node_id
        self.versions = ApiVersionTable(brokers.offered)
        self.throttled_until = 0.0

    def __str__(self) -> str:
        return f"b:{9092 + self.node_id} (node {self.node_id})"

    def call(self, request: Any, on_answer: Callable[[Any], None], *, version: int) -> None:
        brokers = self.brokers
        brokers.asked.append((request, version))
        brokers.waiting += 1
        brokers.most_waiting = max(brokers.most_waiting, brokers.waiting)
        if not brokers.silent or isinstance(request, FindCoordinatorRequest):
            asyncio.get_running_loop().call_later(0.01, self._answer, request, on_answer)

    def _answer(self, request: Any, on_answer: Callable[[Any], None]) -> None:
        self.brokers.waiting -= 1
        on_answer(self.brokers.answer(self.node_id, request))

    async def request(self, request: Any, *, version: int | None = None) -> Any:
        chosen = self.versions.pick(type(request)) if version is None else version
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.call(request, answered.set_result, version=chosen)
        return await answered


def administration(brokers: Brokers) -> Administration:
    return Administration(
        cast("Pool", brokers),
        cast("MetadataUpdater", brokers),
        Backoff(0.1, 1.0, jitter=0.0),
        limit_s=LIMIT_S,
        timeout_ms=60_000,
    )


def run(brokers: Brokers, call: Callable[[Administration], Any]) -> Any:
    """Return what *call* returns, or raise what it raises."""

    async def main() -> Any:
        return await call(administration(brokers))

    return in_virtual_time(main)()


def end(
    brokers: Brokers, what: PreparedTransaction, *, commit: bool = True, timeout_s: float | None = None
) -> Any:
    return run(brokers, lambda admin: admin.end(what, commit=commit, timeout_s=timeout_s))


def description(state: str, *, epoch: int = 3) -> Described:
    return Described(
        transactional_id="orders-1",
        transaction_state=state,
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=-1,
        producer_id=7,
        producer_epoch=epoch,
    )


class TestEnd:
    @pytest.mark.parametrize("commit", [True, False])
    @pytest.mark.parametrize(("version", "of_request"), [(1, 4), (2, 5)])
    def test_the_coordinator_is_asked_in_the_version_of_the_transaction(
        self, version: int, of_request: int, commit: bool
    ) -> None:
        brokers = Brokers()
        end(brokers, prepared(version=version), commit=commit)
        [request] = brokers.of(EndTxnRequest)
        assert request == EndTxnRequest(
            transactional_id="orders-1", producer_id=7, producer_epoch=3, committed=commit
        )
        assert brokers.versions(EndTxnRequest) == [of_request]

    def test_a_broker_that_is_too_old_for_the_version_is_not_asked(self) -> None:
        brokers = Brokers()
        brokers.connections[1].versions = ApiVersionTable({**OFFERED, 26: (0, 4)})
        with pytest.raises(UnsupportedVersion) as caught:
            end(brokers, prepared(version=2))
        assert not caught.value.fatal
        assert not brokers.of(EndTxnRequest)

    @pytest.mark.parametrize("code", [None, 7, 14, 15, 16, 51, -1, 9999])
    def test_it_is_asked_again_until_it_is_answered(self, code: int | None) -> None:
        brokers = Brokers()
        brokers.ends = [code, code]
        end(brokers, prepared())
        assert len(brokers.of(EndTxnRequest)) == 3

    @pytest.mark.parametrize("version", [1, 2])
    @pytest.mark.parametrize("commit", [True, False])
    @pytest.mark.parametrize("code", [47, 49, 90])
    def test_of_an_id_that_was_used_since_nothing_can_be_told(
        self, code: int, commit: bool, version: int
    ) -> None:
        brokers = Brokers()
        brokers.ends = [code]
        with pytest.raises(TransactionOutcomeUnknown, match="'orders-1'") as caught:
            end(brokers, prepared(version=version), commit=commit)
        assert isinstance(caught.value.__cause__, BrokerError)
        assert caught.value.__cause__.code == code
        assert not caught.value.abortable
        assert not caught.value.fatal

    @pytest.mark.parametrize(
        ("version", "commit", "kind"),
        [
            (2, True, TransactionLost),
            (2, False, TransactionStateError),
            (1, True, TransactionOutcomeUnknown),
            (1, False, TransactionOutcomeUnknown),
        ],
    )
    @pytest.mark.parametrize("state", [None, description("CompleteAbort", epoch=4), description("Ongoing")])
    def test_a_state_that_does_not_allow_it(
        self, version: int, commit: bool, kind: type[ProducerError], state: Described | None
    ) -> None:
        brokers = Brokers()
        brokers.ends, brokers.state = [48], state
        with pytest.raises(kind) as caught:
            end(brokers, prepared(version=version), commit=commit)
        assert type(caught.value) is kind
        assert isinstance(caught.value.__cause__, InvalidTxnState)
        assert not caught.value.abortable

    @pytest.mark.parametrize("commit", [True, False])
    @pytest.mark.parametrize(
        ("version", "state"), [(1, "Empty"), (2, "Empty"), (2, "CompleteCommit"), (2, "CompleteAbort")]
    )
    def test_an_empty_one_is_ended(self, version: int, state: str, commit: bool) -> None:
        brokers = Brokers()
        brokers.ends, brokers.state = [48], description(state)
        end(brokers, prepared(version=version), commit=commit)
        assert brokers.of(DescribeTransactionsRequest)

    def test_below_version_2_a_transaction_that_is_complete_may_be_this_one(self) -> None:
        brokers = Brokers()
        brokers.ends, brokers.state = [48], description("CompleteAbort")
        with pytest.raises(TransactionOutcomeUnknown):
            end(brokers, prepared(version=1))

    def test_what_is_refused_for_good_is_told_as_it_is(self) -> None:
        brokers = Brokers()
        brokers.ends = [53]
        with pytest.raises(TransactionalIdAuthorizationFailed, match="'orders-1'") as caught:
            end(brokers, prepared())
        assert not caught.value.fatal

    def test_if_there_is_no_answer_in_time_the_outcome_is_unknown(self) -> None:
        brokers = Brokers()
        brokers.ends = [51] * 1000
        with pytest.raises(TransactionOutcomeUnknown, match=r"within 5 s .*ConcurrentTransactions") as caught:
            end(brokers, prepared(), timeout_s=5)
        assert isinstance(caught.value.__cause__, BrokerError)
        assert caught.value.__cause__.code == 51

    def test_a_silent_coordinator(self) -> None:
        brokers = Brokers()
        brokers.silent = True
        with pytest.raises(TransactionOutcomeUnknown, match="within 60 s"):
            end(brokers, prepared())

    def test_if_nobody_could_be_asked_nothing_was_done(self) -> None:
        brokers = Brokers()
        brokers.find_code = 15
        with pytest.raises(TransactionTimeout, match="CoordinatorNotAvailable") as caught:
            end(brokers, prepared(), timeout_s=5)
        assert not caught.value.abortable
        assert not brokers.of(EndTxnRequest)


class TestEndMany:
    def test_each_has_its_outcome(self) -> None:
        brokers = Brokers()
        brokers.ends = [0, 90]
        first, second = prepared("orders-0"), prepared("orders-2")
        outcomes = run(brokers, lambda admin: admin.end_many([first, second, first], commit=True))
        assert outcomes[first] is None
        assert isinstance(outcomes[second], TransactionOutcomeUnknown)
        assert len(outcomes) == 2

    def test_of_none(self) -> None:
        assert run(Brokers(), lambda admin: admin.end_many([], commit=True)) == {}

    def test_they_are_pipelined_up_to_a_limit_at_each_coordinator(self) -> None:
        brokers = Brokers()
        many = [prepared(f"orders-{number}") for number in range(10 * PIPELINED)]
        outcomes = run(brokers, lambda admin: admin.end_many(many, commit=True))
        assert set(outcomes.values()) == {None}
        assert 2 * PIPELINED <= brokers.most_waiting <= 3 * PIPELINED

    def test_a_coordinator_that_is_silent_holds_up_only_its_own(self) -> None:
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

    def test_cancelling_it_ends_the_asking(self) -> None:
        brokers = Brokers()
        brokers.silent = True

        async def main() -> None:
            admin = administration(brokers)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(admin.end_many([prepared()], commit=True), 1)
            assert len(asyncio.all_tasks()) == 1

        in_virtual_time(main)()


class TestDescribe:
    def test_what_is_known_is_told(self) -> None:
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

    def test_one_that_has_never_begun_has_no_time(self) -> None:
        brokers = Brokers()
        brokers.state = description("Empty")
        assert run(brokers, lambda admin: admin.describe(["orders-1"]))["orders-1"].began_at_ms is None

    def test_one_that_is_not_known(self) -> None:
        assert run(Brokers(), lambda admin: admin.describe(["a", "b"])) == {"a": None, "b": None}

    def test_what_is_refused(self) -> None:
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

    def test_a_broker_that_is_not_ready_is_asked_again(self) -> None:
        brokers = Brokers()
        brokers.listed[1] = [14, 14, Listed(transactional_id="a", producer_id=1, transaction_state="Empty")]
        assert [each[0] for each in run(brokers, lambda admin: admin.list(None, (), None))] == ["a"]
        assert brokers.of(ListTransactionsRequest)[0].duration_filter == -1

    def test_one_that_never_is_ready(self) -> None:
        brokers = Brokers()
        brokers.listed[1] = [14] * 1000
        with pytest.raises(TransactionTimeout, match="CoordinatorLoadInProgress"):
            run(brokers, lambda admin: admin.list(None, (), None))

    def test_a_state_that_nobody_knows(self) -> None:
        brokers = Brokers()
        brokers.listed[0] = ["ongoing"]
        with pytest.raises(ValueError, match="knows no ongoing"):
            run(brokers, lambda admin: admin.list(None, ["ongoing"], None))

    def test_what_is_refused(self) -> None:
        brokers = Brokers()
        brokers.listed[0] = [128]
        with pytest.raises(BrokerError) as caught:
            run(brokers, lambda admin: admin.list("(", (), None))
        assert caught.value.code == 128


class TestFence:
    def test_each_id_is_initialised(self) -> None:
        brokers = Brokers()
        run(brokers, lambda admin: admin.fence(["orders-1", "orders-2"]))
        assert {each.transactional_id for each in brokers.of(InitProducerIdRequest)} == {
            "orders-1",
            "orders-2",
        }
        assert set(brokers.versions(InitProducerIdRequest)) == {5}

    def test_all_are_tried_if_one_fails(self) -> None:
        brokers = Brokers()
        brokers.inits = {"orders-1": 53}
        with pytest.raises(TransactionalIdAuthorizationFailed) as caught:
            run(brokers, lambda admin: admin.fence(["orders-1", "orders-2"]))
        assert not caught.value.fatal
        assert len(brokers.of(InitProducerIdRequest)) == 2
