"""Transactions as users see them: every call in every state, and how a block is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioproducer import PreparedTransaction, Producer
from aioproducer.config import ProducerConfig
from aioproducer.errors import (
    CommitFailed,
    ConfigError,
    ProducerClosed,
    ProducerFenced,
    RecordTooLarge,
    TransactionOutcomeUnknown,
    TransactionStateError,
    TransactionTimeout,
)
from aioproducer.testing import Cluster, in_virtual_time
from aioproducer.transactions.coordinator import Coordinators
from aioproducer.transactions.reactions import Api
from aioproducer.transactions.transaction_state import TransactionState as State
from tests.unit.floor_rig import settle
from tests.unit.producer_rig import TOPIC, started as started_without
from tests.unit.transactions.transactions_rig import ID, FakeCoordinators, refused

Call = Callable[[Producer], Awaitable[Any]]


@asynccontextmanager
async def started(
    monkeypatch: pytest.MonkeyPatch, *, version: int = 2, **options: Any
) -> AsyncIterator[tuple[Producer, FakeCoordinators, Cluster]]:
    """Yield a producer with transactions, for which coordinators stand in that say yes to everything at once.

    To the broker its records are those of an idempotent producer: what a transaction is, it is not asked here.
    """
    sender_settings = ProducerConfig.sender_settings
    fake = FakeCoordinators(version)
    fake.answers_at_once = True

    def connected(self: Coordinators, node_id: int) -> None:
        self.transaction_version = version

    async def request(self: Coordinators, *args: Any, **more: Any) -> Any:
        return await fake.request(*args, **more)

    monkeypatch.setattr(
        ProducerConfig,
        "sender_settings",
        lambda config: sender_settings(config)._replace(transactional_id=None),
    )
    monkeypatch.setattr(Coordinators, "connected", connected)
    monkeypatch.setattr(Coordinators, "request", request)
    async with started_without(transactional_id=ID, **options) as (producer, cluster):
        yield producer, fake, cluster


def ends(fake: FakeCoordinators) -> list[Api]:
    """Return how transactions were ended."""
    return [each for each in fake.seen if each in {Api.COMMIT, Api.ABORT}]


def fence(producer: Producer) -> None:
    """Let somebody else have the id."""
    assert producer._engine is not None
    assert producer._engine.transactions is not None
    producer._engine.transactions._records.failed(ProducerFenced("gone"))


class TestBlock:
    @pytest.mark.parametrize("version", [1, 2])
    @in_virtual_time
    async def test_it_commits(self, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
        async with started(monkeypatch, version=version) as (producer, fake, cluster):
            for _ in range(3):
                async with producer.transaction() as transaction:
                    assert "tx" in repr(transaction)
                    await producer.send(TOPIC, b"v", partition=0)
            assert ends(fake) == [Api.COMMIT] * 3
            assert len(cluster.records(TOPIC, 0)) == 3

    @in_virtual_time
    async def test_it_aborts_and_lets_out_what_the_body_raised(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, fake, _):

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v")
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await block()
            assert ends(fake) == [Api.ABORT]

    @in_virtual_time
    async def test_cancelled_it_aborts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, fake, _):

            async def block() -> None:
                async with asyncio.timeout(1), producer.transaction():
                    await producer.send(TOPIC, b"v")
                    await asyncio.sleep(10)

            with pytest.raises(TimeoutError):
                await block()
            assert ends(fake) == [Api.ABORT]
            async with producer.transaction():
                pass

    @in_virtual_time
    async def test_cancelled_it_does_not_wait_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch, request_timeout_ms=3_000, max_block_ms=50_000) as (producer, fake, _):
            began_at = asyncio.get_running_loop().time()

            async def block() -> None:
                async with asyncio.timeout(1), producer.transaction():
                    await producer.send(TOPIC, b"v")
                    fake.answers_at_once = False
                    await asyncio.sleep(10)

            with pytest.raises(TimeoutError):
                await block()
            assert asyncio.get_running_loop().time() - began_at == 4
            fake.answer()

    @in_virtual_time
    async def test_a_failure_that_nobody_awaited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, fake, _):

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v")
                    with pytest.raises(RecordTooLarge):
                        await producer.send(TOPIC, b"v" * 2_000_000)

            with pytest.raises(CommitFailed) as raised:
                await block()
            assert isinstance(raised.value.__cause__, RecordTooLarge)
            assert ends(fake) == [Api.ABORT]
            async with producer.transaction():
                await producer.send(TOPIC, b"v")

    @in_virtual_time
    async def test_a_commit_that_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, fake, _):
            fake.refusing[Api.COMMIT] = refused(48)

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v")

            with pytest.raises(CommitFailed, match="refused with 48"):
                await block()
            assert ends(fake) == [Api.COMMIT, Api.ABORT]

    @in_virtual_time
    async def test_a_commit_without_an_answer_is_not_aborted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch, max_block_ms=1_000) as (producer, fake, _):

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v")
                    fake.answers_at_once = False

            with pytest.raises(TransactionOutcomeUnknown):
                await block()
            assert ends(fake) == [Api.COMMIT]
            fake.answer()
            await producer.commit_transaction()

    @in_virtual_time
    async def test_a_commit_in_whose_time_not_all_is_acknowledged(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with started(monkeypatch, max_block_ms=1_000) as (producer, fake, cluster):
            await asyncio.sleep(0)

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v")
                    cluster.freeze_broker(1)
                    _ = await producer.enqueue(TOPIC, b"v")
                    asyncio.get_running_loop().call_later(1.5, cluster.thaw_broker, 1)

            with pytest.raises(
                CommitFailed, match="the transaction was aborted: cannot commit within 1 s"
            ) as raised:
                await block()
            assert isinstance(raised.value.__cause__, TransactionTimeout)
            assert ends(fake) == [Api.ABORT]

    @pytest.mark.parametrize("commit", [True, False])
    @in_virtual_time
    async def test_ended_in_its_body(self, monkeypatch: pytest.MonkeyPatch, commit: bool) -> None:
        async with started(monkeypatch) as (producer, fake, _):
            async with producer.transaction():
                await producer.send(TOPIC, b"v")
                await (producer.commit_transaction() if commit else producer.abort_transaction())
            assert ends(fake) == [Api.COMMIT if commit else Api.ABORT]

    @in_virtual_time
    async def test_prepared_in_its_body_it_stays_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, fake, _):
            prepared = list[PreparedTransaction]()

            async def block() -> None:
                async with producer.transaction() as transaction:
                    await producer.send(TOPIC, b"v")
                    prepared.append(await transaction.prepare())
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await block()
            assert [each[:3] for each in prepared] == [(ID, 7, 0)]
            assert ends(fake) == []
        assert ends(fake) == []

    @in_virtual_time
    async def test_cancelled_before_it_was_prepared_it_is_aborted(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nobody has got what it takes to end it elsewhere."""
        async with started(monkeypatch) as (producer, fake, cluster):

            async def block() -> None:
                async with producer.transaction() as transaction:
                    await producer.send(TOPIC, b"v")
                    cluster.freeze_broker(1)
                    _ = await producer.enqueue(TOPIC, b"v")
                    await transaction.prepare()

            asyncio.get_running_loop().call_later(2, cluster.thaw_broker, 1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(block(), 1)
            assert ends(fake) == [Api.ABORT]

    @in_virtual_time
    async def test_another_one_was_begun_in_its_body(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, _, _):
            async with producer.transaction() as first:
                await producer.commit_transaction()
                second = await producer.begin_transaction()
                with pytest.raises(
                    TransactionStateError, match="cannot send offsets: this transaction is over"
                ):
                    await first.send_offsets({}, "g")
            await second.send_offsets({}, "g")
            await producer.commit_transaction()

    @in_virtual_time
    async def test_it_is_used_before_its_begin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, _, _):
            with pytest.raises(TransactionStateError, match="cannot prepare: this transaction has not begun"):
                await producer.transaction().prepare()


class TestNoFalseCommit:
    """A block that is left without an error says that all in it is committed."""

    @in_virtual_time
    async def test_of_a_producer_that_has_failed_meanwhile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, fake, _):

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v")
                    fence(producer)

            with pytest.raises(ProducerFenced, match="close this producer"):
                await block()
            assert ends(fake) == []
            assert producer.state == "failed"

    @pytest.mark.parametrize("timeout_s", [0, None])
    @in_virtual_time
    async def test_of_a_producer_that_was_closed_meanwhile(
        self, monkeypatch: pytest.MonkeyPatch, timeout_s: float | None
    ) -> None:
        async with started(monkeypatch) as (producer, fake, _):

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v")
                    await producer.close(timeout_s)

            with pytest.raises(ProducerClosed):
                await block()
            assert ends(fake) == ([Api.ABORT] if timeout_s is None else [])

    @in_virtual_time
    async def test_of_a_producer_that_fails_after_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, fake, _):
            async with producer.transaction():
                await producer.send(TOPIC, b"v")
                await producer.commit_transaction()
                fence(producer)
            assert ends(fake) == [Api.COMMIT]


SENDS: dict[str, Call] = {
    "send": lambda producer: producer.send(TOPIC, b"v"),
    "enqueue": lambda producer: producer.enqueue(TOPIC, b"v"),
    "send with a timeout": lambda producer: producer.send(TOPIC, b"v", timeout_s=1),
    "send_many": lambda producer: producer.send_many(TOPIC, [b"v"]),
    "send_offsets_to_transaction": lambda producer: producer.send_offsets_to_transaction({("in", 0): 1}, "g"),
}


async def send_nowait(producer: Producer) -> None:
    await producer.send_nowait(TOPIC, b"v")


SENDS["send_nowait"] = send_nowait
BEGIN: dict[str, Call] = {"begin": lambda producer: producer.begin_transaction()}
COMMIT: dict[str, Call] = {"commit": lambda producer: producer.commit_transaction(1)}
ABORT: dict[str, Call] = {"abort": lambda producer: producer.abort_transaction(1)}
WRONG: dict[State, dict[str, Call]] = {
    State.INITIALIZING: SENDS | BEGIN | COMMIT | ABORT,
    State.READY: SENDS | COMMIT | ABORT,
    State.IN_TRANSACTION: BEGIN,
    State.PREPARING: SENDS | BEGIN,
    State.PREPARED: SENDS | BEGIN,
    State.COMMITTING: SENDS | BEGIN | ABORT,
    State.ABORTING: SENDS | BEGIN | COMMIT,
    State.ABORTABLE: SENDS | BEGIN | COMMIT,
}


class TestMisuse:
    @pytest.mark.parametrize(
        ("state", "name"),
        [(state, name) for state, calls in WRONG.items() for name in calls],
        ids=lambda each: each.name if isinstance(each, State) else each,
    )
    @in_virtual_time
    async def test_a_wrong_call_is_refused_and_nothing_is_appended(
        self, monkeypatch: pytest.MonkeyPatch, state: State, name: str
    ) -> None:
        async with started(monkeypatch) as (producer, _, cluster):
            assert producer._engine is not None
            assert producer._engine.transactions is not None
            manager = producer._engine.transactions.manager
            await producer.begin_transaction()
            if state is State.ABORTABLE:
                manager.failed(CommitFailed("22"))
            else:
                manager.state = state
                producer._transaction_moved(takes_records=state is State.IN_TRANSACTION)
            kind = CommitFailed if state is State.ABORTABLE else TransactionStateError
            with pytest.raises(kind, match=r"cannot |22"):
                await WRONG[state][name](producer)
            assert manager.state is state
            assert not producer._engine.accumulator.unresolved
            manager.state = State.READY
            assert cluster.records(TOPIC, 0) == cluster.records(TOPIC, 1) == []

    @pytest.mark.parametrize("name", SENDS | BEGIN | COMMIT | ABORT)
    @in_virtual_time
    async def test_after_a_fatal_error_each_call_raises_it(
        self, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        async with started(monkeypatch) as (producer, _, _):
            fence(producer)
            with pytest.raises(ProducerFenced, match="gone") as raised:
                await (SENDS | BEGIN | COMMIT | ABORT)[name](producer)
            assert (raised.value.fatal, raised.value.abortable) == (True, False)
            assert producer.metrics()
            assert await producer.close() == 0

    @pytest.mark.parametrize("name", BEGIN | COMMIT | ABORT)
    @in_virtual_time
    async def test_without_a_transactional_id(self, name: str) -> None:
        async with started_without() as (producer, _):
            with pytest.raises(ConfigError, match="the producer has no transactional_id"):
                await (BEGIN | COMMIT | ABORT)[name](producer)

    @pytest.mark.parametrize("name", SENDS | BEGIN | COMMIT | ABORT)
    async def test_before_it_is_started(self, name: str) -> None:
        producer = Producer("localhost:9092", transactional_id=ID)
        with pytest.raises(ProducerClosed, match="the producer is not started"):
            await (SENDS | BEGIN | COMMIT | ABORT)[name](producer)

    @pytest.mark.parametrize(
        ("call", "kind"),
        [
            (lambda producer: producer.commit_transaction(-1), ValueError),
            (lambda producer: producer.abort_transaction("1"), TypeError),
            (lambda producer: producer.send_offsets_to_transaction({}, None), TypeError),
            (lambda producer: producer.send_offsets_to_transaction([], "g"), TypeError),
            (lambda producer: producer.send_offsets_to_transaction({}, "g", timeout_s=-1), ValueError),
        ],
    )
    @in_virtual_time
    async def test_a_wrong_argument_fails_nothing(
        self, monkeypatch: pytest.MonkeyPatch, call: Call, kind: type[Exception]
    ) -> None:
        async with started(monkeypatch) as (producer, fake, _):
            async with producer.transaction():
                await producer.send(TOPIC, b"v")
                with pytest.raises(kind):
                    await call(producer)
            assert ends(fake) == [Api.COMMIT]


class TestClose:
    @in_virtual_time
    async def test_it_aborts_what_is_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, fake, _):
            await producer.begin_transaction()
            await producer.send(TOPIC, b"v")
            await producer.close()
            assert ends(fake) == [Api.ABORT]

    @in_virtual_time
    async def test_it_waits_for_a_commit_that_is_under_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with started(monkeypatch) as (producer, fake, _):
            await producer.begin_transaction()
            await producer.send(TOPIC, b"v")
            fake.answers_at_once = False
            committing = asyncio.create_task(producer.commit_transaction())
            await settle()
            closing = asyncio.create_task(producer.close())
            await settle()
            fake.answer()
            await committing
            assert await closing == 0
            assert ends(fake) == [Api.COMMIT]
