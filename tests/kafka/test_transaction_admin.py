"""`TransactionAdmin` on a real Kafka of both transaction versions: its results match read_committed consumers."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Callable

import pytest

from aioproducer import (
    BrokerError,
    PreparedTransaction,
    Producer,
    ProducerFenced,
    TopicPartition,
    TransactionAdmin,
    TransactionLost,
    TransactionOutcomeUnknown,
    TransactionStateError,
)
from tests.kafka.apache.broker import ApacheKafka
from tests.kafka.readback import read_with_librdkafka

numbers = itertools.count()


@pytest.fixture(scope="module", params=[1, 2], ids=["TV1", "TV2"])
def versioned(
    brokers: Callable[[int], ApacheKafka], request: pytest.FixtureRequest
) -> tuple[int, ApacheKafka]:
    """A broker of each transaction version."""
    return request.param, brokers(request.param)


@pytest.fixture
def version(versioned: tuple[int, ApacheKafka]) -> int:
    return versioned[0]


@pytest.fixture
def kafka(versioned: tuple[int, ApacheKafka]) -> ApacheKafka:
    return versioned[1]


@pytest.fixture
def topic(kafka: ApacheKafka) -> str:
    name = f"orders-{next(numbers)}"
    kafka.create_topic(name, 2)
    return name


@pytest.fixture
async def admin(kafka: ApacheKafka) -> AsyncIterator[TransactionAdmin]:
    async with TransactionAdmin(kafka.bootstrap_servers) as admin:
        yield admin


async def prepare(
    kafka: ApacheKafka, topic: str | None, name: str = "", *, timeout_ms: int = 60_000
) -> PreparedTransaction:
    """Return a transaction with a record in each partition of *topic*, whose producer has been closed."""
    async with (
        Producer(
            kafka.bootstrap_servers,
            transactional_id=name or f"id-{next(numbers)}",
            transaction_timeout_ms=timeout_ms,
        ) as producer,
        producer.transaction() as transaction,
    ):
        if topic is not None:
            for partition in (0, 1):
                _ = await producer.enqueue(topic, b"value", partition=partition)
        prepared = await transaction.prepare()
    return PreparedTransaction.parse(str(prepared))


async def settled(admin: TransactionAdmin, name: str, *, state: str) -> None:
    """Return when the coordinator has the id in *state*: the markers are written."""
    while (found := (await admin.describe(name))[name]) is None or found.state != state:
        assert found is not None


def committed(kafka: ApacheKafka, topic: str) -> int:
    return len(read_with_librdkafka(kafka.bootstrap_servers, topic, isolation_level="read_committed"))


class TestEnd:
    @pytest.mark.parametrize("commit", [True, False])
    async def test_transaction_can_be_ended_twice_from_elsewhere(
        self, kafka: ApacheKafka, admin: TransactionAdmin, topic: str, commit: bool
    ) -> None:
        prepared = await prepare(kafka, topic)
        for _ in range(3):
            await admin.end(prepared, commit=commit)
        await settled(admin, prepared.transactional_id, state="CompleteCommit" if commit else "CompleteAbort")
        await admin.end(prepared, commit=commit)
        assert committed(kafka, topic) == (2 if commit else 0)

    @pytest.mark.parametrize("commit", [True, False])
    async def test_empty_transaction_can_be_committed_or_aborted(
        self, kafka: ApacheKafka, admin: TransactionAdmin, topic: str, commit: bool, version: int
    ) -> None:
        never_used = await prepare(kafka, None)
        await admin.end(never_used, commit=commit)
        used_before = await prepare(kafka, topic)
        await admin.end(used_before, commit=True)
        async with Producer(
            kafka.bootstrap_servers, transactional_id=used_before.transactional_id
        ) as producer:
            async with producer.transaction():
                await producer.send(topic, b"one more")
            async with producer.transaction() as transaction:
                empty = await transaction.prepare()
        if version == 2:
            await admin.end(empty, commit=commit)
        elif not commit:  # it cannot be told from that before: what was committed is not aborted
            with pytest.raises(TransactionOutcomeUnknown) as caught:
                await admin.end(empty, commit=commit)
            assert isinstance(caught.value.__cause__, BrokerError)
            assert caught.value.__cause__.code == 48

    async def test_expired_transaction_is_lost_where_that_is_certain(
        self, kafka: ApacheKafka, admin: TransactionAdmin, topic: str, version: int
    ) -> None:
        prepared = await prepare(kafka, topic, timeout_ms=500)
        await settled(admin, prepared.transactional_id, state="CompleteAbort")
        kind = TransactionLost if version == 2 else TransactionOutcomeUnknown
        with pytest.raises(kind) as caught:
            await admin.end(prepared, commit=True)
        assert not caught.value.abortable
        assert not caught.value.fatal
        assert isinstance(caught.value.__cause__, BrokerError)
        assert caught.value.__cause__.code == (48 if version == 2 else 90)
        if version == 2:
            await admin.end(prepared, commit=False)
        assert committed(kafka, topic) == 0

    async def test_outcome_of_a_fenced_transaction_is_unknown(
        self, kafka: ApacheKafka, admin: TransactionAdmin, topic: str
    ) -> None:
        prepared = await prepare(kafka, topic)
        await admin.fence(prepared.transactional_id)
        for commit in (True, False):
            with pytest.raises(TransactionOutcomeUnknown, match="the outcome of the transaction") as caught:
                await admin.end(prepared, commit=commit)
            assert isinstance(caught.value.__cause__, ProducerFenced)
        assert committed(kafka, topic) == 0

    async def test_committed_transaction_cannot_be_aborted(
        self, kafka: ApacheKafka, admin: TransactionAdmin, topic: str, version: int
    ) -> None:
        prepared = await prepare(kafka, topic)
        await admin.end(prepared, commit=True)
        await settled(admin, prepared.transactional_id, state="CompleteCommit")
        with pytest.raises(TransactionStateError if version == 2 else TransactionOutcomeUnknown):
            await admin.end(prepared, commit=False)
        assert committed(kafka, topic) == 2

    async def test_aborted_transaction_cannot_be_committed(
        self, kafka: ApacheKafka, admin: TransactionAdmin, topic: str, version: int
    ) -> None:
        prepared = await prepare(kafka, topic)
        await admin.end(prepared, commit=False)
        await settled(admin, prepared.transactional_id, state="CompleteAbort")
        with pytest.raises(TransactionLost if version == 2 else TransactionOutcomeUnknown):
            await admin.end(prepared, commit=True)
        assert committed(kafka, topic) == 0

    async def test_transaction_can_be_ended_after_writer_and_broker_died(
        self, kafka: ApacheKafka, admin: TransactionAdmin, topic: str
    ) -> None:
        prepared = await prepare(kafka, topic)
        kafka.kill()
        kafka.restart()
        await admin.end(prepared, commit=True)
        await settled(admin, prepared.transactional_id, state="CompleteCommit")
        assert committed(kafka, topic) == 2


class TestEndMany:
    async def test_end_many_returns_an_outcome_per_transaction(
        self, kafka: ApacheKafka, admin: TransactionAdmin, topic: str
    ) -> None:
        several = [await prepare(kafka, topic) for _ in range(20)]
        await admin.fence(several[7].transactional_id)
        outcomes = await admin.end_many(several + several[:3], commit=True)
        assert list(outcomes) == several
        failed = {each: error for each, error in outcomes.items() if error is not None}
        assert [type(error) for error in failed.values()] == [TransactionOutcomeUnknown]
        assert list(failed) == [several[7]]
        for each in several:
            await settled(
                admin, each.transactional_id, state="Empty" if each is several[7] else "CompleteCommit"
            )
        assert committed(kafka, topic) == 2 * 19

    async def test_end_many_accepts_no_transactions(self, admin: TransactionAdmin) -> None:
        assert await admin.end_many([], commit=True) == {}


class TestLooking:
    async def test_open_transaction_is_described(
        self, kafka: ApacheKafka, admin: TransactionAdmin, topic: str
    ) -> None:
        before_ms = time.time_ns() // 1_000_000
        prepared = await prepare(kafka, topic, timeout_ms=45_000)
        name = prepared.transactional_id
        found = await admin.describe(name, "never-used")
        assert found["never-used"] is None
        described = found[name]
        assert described is not None
        assert described[:5] == (name, "Ongoing", prepared.producer_id, prepared.epoch, 45_000)
        assert described.began_at_ms is not None
        assert abs(described.began_at_ms - before_ms) < 20_000
        assert described.partitions == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        await admin.end(prepared, commit=True)
        await settled(admin, name, state="CompleteCommit")
        described = (await admin.describe(name))[name]
        assert described is not None
        assert described.partitions == frozenset()
        await admin.fence("never-opened")
        described = (await admin.describe("never-opened"))["never-opened"]
        assert described is not None
        assert (described.state, described.began_at_ms) == ("Empty", None)

    async def test_list_transactions_queries_all_brokers(
        self, kafka: ApacheKafka, admin: TransactionAdmin, topic: str
    ) -> None:
        group = f"listed-{next(numbers)}"
        several = [await prepare(kafka, topic, f"{group}.{number}") for number in range(3)]
        await admin.end(several[0], commit=True)
        await settled(admin, several[0].transactional_id, state="CompleteCommit")
        ids = [each.transactional_id for each in several]
        assert [each.transactional_id for each in await admin.list(rf"{group}\..*")] == ids
        assert [each[0] for each in await admin.list(rf"{group}\..*", ["Ongoing"])] == ids[1:]
        assert await admin.list(group) == []  # the whole id
        assert await admin.list(rf"{group}\..*", longer_than_ms=100_000) == []
        assert set(ids) <= {each.transactional_id for each in await admin.list()}
        assert [each.producer_id for each in await admin.list(rf"{group}\..*")] == [
            each.producer_id for each in several
        ]
        await admin.fence(*ids)
        assert {each.state for each in await admin.list(rf"{group}\..*")} == {"Empty"}
        assert committed(kafka, topic) == 2

    async def test_contradicting_filters_are_refused(self, admin: TransactionAdmin) -> None:
        with pytest.raises(ValueError, match="knows no ongoing"):
            await admin.list(states="ongoing")
        with pytest.raises(BrokerError) as caught:
            await admin.list("(")
        assert caught.value.code == 128
