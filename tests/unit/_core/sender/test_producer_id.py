from __future__ import annotations

import asyncio
import logging

import pytest

from aioproducer._core.backoff import Backoff
from aioproducer._core.idempotence import IdentityKeeper, ProducerIdentity
from aioproducer._core.log_limits import LogLimits
from aioproducer._core.metadata.metadata_source import ANSWER_TIMEOUT_S, CONNECT_STAGGER_S
from aioproducer._core.metadata.refresh_schedule import SHORTEST_PAUSE_S
from aioproducer._core.protocol.produce import InitProducerIdResponse
from aioproducer._core.sender.producer_id import TOLERATED_FAILURES, ProducerIdRequester
from aioproducer.errors import (
    BrokerError,
    ClusterAuthorizationFailed,
    CoordinatorNotAvailable,
    ProducerError,
    UnsupportedVersion,
)
from aioproducer.testing import in_virtual_time
from tests.fakes import FakeConnection
from tests.unit.floor_rig import lost


class Asker:
    """A requester and its notifications."""

    def __init__(self, backoff: Backoff | None = None) -> None:
        self.identities = IdentityKeeper()
        self.assigned = 0
        self.refusals: list[ProducerError] = []
        self.wakes = 0
        self.requester = ProducerIdRequester(
            self.identities,
            backoff or Backoff(0.1, 1.0, jitter=0.0),
            on_identity=self._on_identity,
            on_refused=self.refusals.append,
            wake=self._wake,
            limits=LogLimits(),
        )

    def _on_identity(self) -> None:
        assert self.identities.current is not None, "it is told once there is one"
        self.assigned += 1

    def _wake(self) -> None:
        self.wakes += 1


def now() -> float:
    return asyncio.get_running_loop().time()


def identity(producer_id: int = 41, epoch: int = 0) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=epoch)


def refusal(kind: type[BrokerError]) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=kind.code, producer_id=-1, producer_epoch=-1)


@in_virtual_time
async def test_new_requester_has_no_deadlines_and_no_error() -> None:
    requester = Asker().requester
    requester.connected()
    assert (requester.tolerated_until, requester.dial_next_at, requester.last_error) == (0, 0, None)


@in_virtual_time
async def test_answer_becomes_the_identity() -> None:
    asker, connection = Asker(), FakeConnection()
    asker.requester.ask(connection.real)
    assert asker.assigned == 0
    asked = connection.calls[0].request
    assert (asked.transactional_id, asked.transaction_timeout_ms) == (None, 2**31 - 1)
    connection.answer(identity(41, 3))
    assert asker.identities.current == ProducerIdentity(41, 3)
    assert (asker.assigned, asker.wakes, asker.refusals) == (1, 1, [])


@in_virtual_time
async def test_request_sets_the_patience_for_its_broker() -> None:
    asker, connection = Asker(), FakeConnection(2)
    await asyncio.sleep(10)
    asker.requester.ask(connection.real)
    assert asker.requester.asked == {2}
    assert asker.requester.tolerated_until == 10 + ANSWER_TIMEOUT_S


@in_virtual_time
async def test_first_of_several_answers_counts() -> None:
    asker, slow, fast = Asker(), FakeConnection(1), FakeConnection(2)
    asker.requester.ask(slow.real)
    asker.requester.ask(fast.real)
    fast.answer(identity(42))
    slow.answer(identity(43))
    assert asker.identities.current == ProducerIdentity(42, 0)
    assert asker.assigned == 1
    assert asker.requester.asked == set()


@in_virtual_time
async def test_late_failure_changes_nothing() -> None:
    asker, slow, fast = Asker(), FakeConnection(1), FakeConnection(2)
    asker.requester.ask(slow.real)
    asker.requester.ask(fast.real)
    fast.answer(identity(42))
    slow.answer(refusal(ClusterAuthorizationFailed))
    assert asker.refusals == []
    assert asker.requester.tolerated_until == 0


@in_virtual_time
async def test_late_answer_serves_when_the_identity_is_used_up() -> None:
    asker, slow, fast = Asker(), FakeConnection(1), FakeConnection(2)
    asker.requester.ask(slow.real)
    asker.requester.ask(fast.real)
    fast.answer(identity(42))
    asker.identities.current = None
    slow.answer(identity(43))
    assert asker.identities.current == ProducerIdentity(43, 0)


class TestFailures:
    @in_virtual_time
    async def test_retriable_failure_is_asked_again_after_growing_pauses(self) -> None:
        asker, connection = Asker(), FakeConnection()
        pauses = []
        for _ in range(3):
            asker.requester.ask(connection.real)
            connection.answer(refusal(CoordinatorNotAvailable))
            pauses.append(asker.requester.tolerated_until - now())
        assert pauses == [0.1, 0.2, 0.4]
        assert (asker.refusals, asker.wakes) == ([], 3)

    @in_virtual_time
    async def test_pauses_start_again_after_a_success(self) -> None:
        asker, connection = Asker(), FakeConnection()
        for answer in (refusal(CoordinatorNotAvailable), identity()):
            asker.requester.ask(connection.real)
            connection.answer(answer)
        asker.identities.current = None
        asker.requester.ask(connection.real)
        connection.answer(lost())
        assert asker.requester.tolerated_until == 0.1

    @in_virtual_time
    async def test_refusal_is_reported(self) -> None:
        asker, connection = Asker(), FakeConnection()
        asker.requester.ask(connection.real)
        connection.answer(refusal(ClusterAuthorizationFailed))
        [error] = asker.refusals
        assert isinstance(error, ClusterAuthorizationFailed)
        assert str(error) == "the cluster gave no producer id"
        assert asker.requester.tolerated_until == 0.1
        assert asker.wakes == 1

    @in_virtual_time
    async def test_broker_without_producer_ids_is_a_refusal(self) -> None:
        asker, connection = Asker(), FakeConnection()
        connection.error = UnsupportedVersion("too old")
        asker.requester.ask(connection.real)
        assert asker.refusals == [connection.error]
        assert asker.requester.asked == set()

    @in_virtual_time
    async def test_requester_pauses_without_a_backoff(self) -> None:
        """A refusal that needs no answer would otherwise be asked for again for ever, at once."""
        asker, connection = Asker(Backoff(0.0, 0.0)), FakeConnection()
        connection.error = lost(written=False)
        asker.requester.ask(connection.real)
        assert asker.requester.tolerated_until == SHORTEST_PAUSE_S


class TestLog:
    def told(self, caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
        return [(each.levelname, each.getMessage()) for each in caplog.records]

    @in_virtual_time
    async def test_identity_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, "aioproducer")
        asker, connection = Asker(), FakeConnection()
        asker.requester.ask(connection.real)
        connection.answer(identity(41, 3))
        assert self.told(caplog) == [("DEBUG", "producer_id.assigned id=41 epoch=3")]

    @in_virtual_time
    async def test_retriable_failure_becomes_a_warning_when_it_persists(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, "aioproducer")
        asker, connection = Asker(), FakeConnection()
        for _ in range(TOLERATED_FAILURES + 1):
            asker.requester.ask(connection.real)
            connection.answer(refusal(CoordinatorNotAvailable))
        told = self.told(caplog)
        why = "CoordinatorNotAvailable: the cluster gave no producer id"
        assert told[0] == ("INFO", f'producer_id.failed attempt=1 retry_in_s=0.100 error="{why}"')
        assert [level for level, _ in told] == ["INFO", *["DEBUG"] * (TOLERATED_FAILURES - 1), "WARNING"]

    @in_virtual_time
    async def test_identity_after_a_failure_is_logged_with_counts(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, "aioproducer")
        asker, connection = Asker(), FakeConnection()
        for answer in (refusal(CoordinatorNotAvailable), identity(41, 3)):
            asker.requester.ask(connection.real)
            connection.answer(answer)
        assert self.told(caplog)[-1] == ("INFO", "producer_id.assigned id=41 epoch=3 times=1 for_s=0.0")

    @in_virtual_time
    async def test_refusal_is_logged_as_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        asker, connection = Asker(), FakeConnection()
        asker.requester.ask(connection.real)
        connection.answer(refusal(ClusterAuthorizationFailed))
        assert [level for level, _ in self.told(caplog)] == ["WARNING"]


class TestDialling:
    @in_virtual_time
    async def test_brokers_are_dialled_in_turn(self) -> None:
        asker = Asker()
        for _ in range(5):
            assert {asker.requester.next_to_dial({1, 2, 3}) for _ in range(3)} == {1, 2, 3}

    @in_virtual_time
    async def test_new_broker_is_dialled_next(self) -> None:
        asker = Asker()
        for _ in range(2):
            asker.requester.next_to_dial({1, 2})
        assert asker.requester.next_to_dial({1, 2, 3}) == 3

    @in_virtual_time
    async def test_dialled_broker_has_some_time_to_accept(self) -> None:
        asker = Asker()
        await asyncio.sleep(2)
        asker.requester.next_to_dial({1})
        assert asker.requester.dial_next_at == 2 + CONNECT_STAGGER_S


@in_virtual_time
async def test_connection_shortens_the_pause_after_a_lost_connection() -> None:
    asker = Asker()
    for _ in range(5):
        connection = FakeConnection()
        asker.requester.ask(connection.real)
        connection.answer(lost())
    assert asker.requester.tolerated_until == now() + 1.0
    asker.requester.connected()
    assert asker.requester.tolerated_until == now() + 0.1


@in_virtual_time
async def test_connection_keeps_the_pause_after_a_refusal() -> None:
    asker = Asker()
    for _ in range(5):
        connection = FakeConnection()
        asker.requester.ask(connection.real)
        connection.answer(refusal(CoordinatorNotAvailable))
    asker.requester.connected()
    assert asker.requester.tolerated_until == now() + 1.0


@in_virtual_time
async def test_connection_keeps_the_patience_for_an_asked_broker() -> None:
    asker = Asker()
    connection = FakeConnection()
    asker.requester.ask(connection.real)
    connection.answer(lost())
    asker.requester.ask(FakeConnection().real)
    asker.requester.connected()
    assert asker.requester.tolerated_until == now() + ANSWER_TIMEOUT_S
