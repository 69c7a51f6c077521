from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from aioproducer.cli.send.arguments import (
    Format,
    SendArguments,
    SendOutcome,
    SendTransaction,
    TransactionOutcome,
)
from aioproducer.cli.send.decoding import Fields
from aioproducer.cli.send.framing import JsonInput, LengthPrefixed, Lines
from aioproducer.config import ProducerConfig
from aioproducer.errors import (
    CommitFailed,
    DeliveryTimeout,
    ProducerError,
    ProducerFenced,
    RecordTooLarge,
    TransactionOutcomeUnknown,
    TransactionTimeout,
)
from aioproducer.producer import Producer

PLAN = SendArguments(config=ProducerConfig(bootstrap_servers="a:1"), topic="orders")


@pytest.mark.parametrize(
    ("form", "unit", "framing"),
    [("lines", "line", Lines), ("json", "line", JsonInput), ("length-prefixed", "record", LengthPrefixed)],
)
def test_format_selects_framing_and_unit(form: str, unit: str, framing: type) -> None:
    format_ = Format(name=form)
    assert format_.unit == unit
    assert type(format_.framing(10)()) is framing


def test_format_selects_decoder() -> None:
    assert Format().decode({0})([b"a=1"]).values == [b"a=1"]
    assert Format(key_separator=b"=").decode({0})([b"a=1"]).keys == [b"a"]
    by_json = Format(name="json", fields=Fields(partition="p"))
    assert by_json.decode({0, 1})([b'{"p": 1}', b'{"p": 2}']).bad == [
        (1, "p = 2: the topic has the partitions 0 to 1")
    ]
    told = by_json.decode({0, 1}, skips=True)([b'{"p": 2}', b'{"p": 1}'])
    assert (told.rows, told.partitions, len(told.bad)) == ([1], [1], 1)
    told = Format(key_separator=b"=").decode({0}, skips=True)([b"a", b"b=2", b"c"])
    assert (told.rows, told.keys, [at for at, _ in told.bad]) == ([1], [b"b"], [0, 2])


def test_outcome_counts_failures_by_class_and_doubt() -> None:
    outcome = SendOutcome(PLAN, sent=6, acknowledged=2)
    possibly_persisted = DeliveryTimeout("first")
    possibly_persisted.possibly_persisted = True
    for error in (possibly_persisted, DeliveryTimeout("second"), RecordTooLarge("large")):
        outcome.fail(error)
    assert outcome.failures == {"DeliveryTimeout: first": 2, "RecordTooLarge: large": 1}
    assert (outcome.possibly_persisted, outcome.unknown) == (1, 1)


@pytest.mark.parametrize(
    ("sent", "stopped", "complete"), [(2, None, True), (3, None, False), (2, "interrupted", False)]
)
def test_outcome_is_complete_without_rest(sent: int, stopped: str | None, complete: bool) -> None:
    assert SendOutcome(PLAN, sent=sent, acknowledged=2, stopped=stopped).complete is complete


def test_every_format_adds_constants() -> None:
    for name in ("lines", "json", "length-prefixed"):
        columns = Format(name=name, key=b"k", headers=(("a", b"1"),)).decode({0})([b"{}"])
        assert (columns.keys, columns.headers) == ([b"k"], [[("a", b"1")]])
    columns = Format(key_separator=b":", headers=(("a", b"1"),)).decode({0})([b"k:v"])
    assert (columns.keys, columns.values, columns.headers) == ([b"k"], [b"v"], [[("a", b"1")]])


class FakeProducer:
    """Producer with scripted outcomes of commit and abort; further calls never return."""

    def __init__(self, transactional_id: str | None = "orders-1") -> None:
        self.config = SimpleNamespace(transactional_id=transactional_id)
        self.calls: list[str] = []
        self.commits: list[ProducerError | None] = []
        self.aborts: list[ProducerError | None] = []

    async def begin_transaction(self) -> None:
        self.calls.append("begin")

    async def commit_transaction(self) -> None:
        await self._answer("commit", self.commits)

    async def abort_transaction(self) -> None:
        await self._answer("abort", self.aborts)

    async def _answer(self, what: str, answers: list[ProducerError | None]) -> None:
        self.calls.append(what)
        if not answers:
            await asyncio.get_running_loop().create_future()
        error = answers.pop(0)
        if error is not None:
            raise error


def transaction_of(producer: FakeProducer) -> SendTransaction:
    return SendTransaction(cast("Producer", producer))


def fatal() -> ProducerError:
    error = ProducerFenced("another has the id")
    error.fatal = True
    return error


async def test_transaction_does_nothing_without_id() -> None:
    producer = FakeProducer(None)
    transaction = transaction_of(producer)
    await transaction.begin()
    await transaction.end(commit=True)
    transaction.give_up()
    assert (producer.calls, transaction.ended) == ([], None)


@pytest.mark.parametrize(
    ("commit", "ended"), [(True, TransactionOutcome.COMMITTED), (False, TransactionOutcome.ABORTED)]
)
async def test_transaction_ends_once(commit: bool, ended: TransactionOutcome) -> None:
    producer = FakeProducer()
    producer.commits, producer.aborts = [None], [None]
    transaction = transaction_of(producer)
    await transaction.begin()
    await transaction.end(commit=commit)
    await transaction.end(commit=not commit)
    assert (transaction.ended, transaction.failure) == (ended, None)
    assert producer.calls == ["begin", "commit" if commit else "abort"]


async def test_commit_is_repeated_while_outcome_is_unknown() -> None:
    producer = FakeProducer()
    producer.commits = [TransactionOutcomeUnknown(), TransactionOutcomeUnknown(), None]
    transaction = transaction_of(producer)
    await transaction.end(commit=True)
    assert (transaction.ended, transaction.failure) == (TransactionOutcome.COMMITTED, None)


async def test_failed_commit_is_aborted() -> None:
    producer, failure = FakeProducer(), CommitFailed("a record failed")
    producer.commits, producer.aborts = [failure], [None]
    transaction = transaction_of(producer)
    await transaction.end(commit=True)
    assert (transaction.ended, transaction.failure) == (TransactionOutcome.ABORTED, failure)


async def test_outcome_is_unknown_after_fatal_commit_error() -> None:
    producer, failure = FakeProducer(), fatal()
    producer.commits = [failure]
    transaction = transaction_of(producer)
    await transaction.end(commit=True)
    assert (transaction.ended, transaction.failure) == (TransactionOutcome.UNKNOWN, failure)


@pytest.mark.parametrize("error", [TransactionTimeout(), TransactionOutcomeUnknown(), fatal()])
async def test_failed_abort_leaves_transaction_open(error: ProducerError) -> None:
    producer = FakeProducer()
    producer.aborts = [error]
    transaction = transaction_of(producer)
    await transaction.end(commit=False)
    assert (transaction.ended, transaction.failure) == (TransactionOutcome.LEFT_OPEN, error)


async def test_first_failure_of_transaction_is_reported() -> None:
    producer, failure = FakeProducer(), CommitFailed("a record failed")
    producer.commits, producer.aborts = [failure], [TransactionTimeout()]
    transaction = transaction_of(producer)
    await transaction.end(commit=True)
    assert (transaction.ended, transaction.failure) == (TransactionOutcome.LEFT_OPEN, failure)


@pytest.mark.parametrize(
    ("commit", "ended"), [(True, TransactionOutcome.UNKNOWN), (False, TransactionOutcome.LEFT_OPEN)]
)
async def test_give_up_reports_open_or_unknown_outcome(commit: bool, ended: TransactionOutcome) -> None:
    transaction = transaction_of(FakeProducer())
    asyncio.get_running_loop().call_later(0.01, transaction.give_up)
    await transaction.end(commit=commit)
    assert transaction.ended is ended
