"""Every call in every state: a forbidden call is refused and fails no transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer._core.transactions.transaction_manager import Api, TransactionState as State
from aioproducer.errors import (
    CommitFailed,
    ConfigError,
    ProducerClosed,
    ProducerFenced,
    TransactionStateError,
)
from aioproducer.testing import in_virtual_time
from tests.cases import for_each
from tests.unit._core.transactions.transactions_rig import ID
from tests.unit.producer_rig import TOPIC, started as started_without
from tests.unit.transactional_rig import ends, fence, started

Call = Callable[[Producer], Awaitable[Any]]

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
    @for_each(
        ("state", "name"),
        [(state, name) for state, calls in WRONG.items() for name in calls],
    )
    @in_virtual_time
    async def test_forbidden_call_is_refused_and_appends_nothing(
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

    @for_each("name", SENDS | BEGIN | COMMIT | ABORT)
    @in_virtual_time
    async def test_fatal_error_is_raised_by_every_call(
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
    async def test_calls_without_a_transactional_id_are_refused(self, name: str) -> None:
        async with started_without() as (producer, _):
            with pytest.raises(ConfigError, match="the producer has no transactional_id"):
                await (BEGIN | COMMIT | ABORT)[name](producer)

    @for_each("name", SENDS | BEGIN | COMMIT | ABORT)
    async def test_calls_before_the_start_are_refused(self, name: str) -> None:
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
    async def test_wrong_argument_does_not_fail_the_transaction(
        self, monkeypatch: pytest.MonkeyPatch, call: Call, kind: type[Exception]
    ) -> None:
        async with started(monkeypatch) as (producer, fake, _):
            async with producer.transaction():
                await producer.send(TOPIC, b"v")
                with pytest.raises(kind):
                    await call(producer)
            assert ends(fake) == [Api.COMMIT]
