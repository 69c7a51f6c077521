"""What the protocol of decisions asks, and what a broker answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aioproducer import PreparedTransaction, Producer, TransactionAdmin
from aioproducer._topic_client import Client
from aioproducer.errors import ProducerFenced, TransactionLost, TransactionOutcomeUnknown
from aioproducer.spark.decision_protocol import End, begin
from aioproducer.spark.decision_records import DecisionView, Entry, Share, decision
from aioproducer.spark.decision_topic import going_on, read_on
from aioproducer.spark.delivery import BatchId, DeliveryError, ExactlyOnce, Guarantee
from aioproducer.spark.kafka_port import REPLACED, KafkaPort, _end
from aioproducer.spark.sink_options import ProducerSettings
from aioproducer.testing import Cluster
from tests.unit.test_topic_client import without_brokers

pytestmark = pytest.mark.kafka_cluster(topics={"orders": 1})
VERSIONS = [
    pytest.param(version, marks=pytest.mark.kafka_cluster(topics={"orders": 1}, transaction_version=version))
    for version in (1, 2)
]


def settings(cluster: Cluster) -> ProducerSettings:
    return ProducerSettings((("bootstrap.servers", cluster.bootstrap_servers), ("max.block.ms", "3000")))


@asynccontextmanager
async def port(cluster: Cluster) -> AsyncIterator[KafkaPort]:
    async def read() -> DecisionView:
        view = DecisionView("p")
        async with Client(settings(cluster).config()) as client:
            await read_on(view, client)
        return view

    async with (
        TransactionAdmin.from_config(settings(cluster).config()) as admin,
        KafkaPort(settings(cluster), admin, read) as kafka,
    ):
        yield kafka


async def prepared(cluster: Cluster, name: str = "p.t.r.0.0") -> Share:
    async with Producer(cluster.bootstrap_servers, transactional_id=name) as producer:
        transaction = await producer.begin_transaction()
        await asyncio.gather(*(producer.send("orders", b"v") for _ in range(2)))
        sent = await producer.send("orders", b"v")
        return Share(*await transaction.prepare(), "orders", 0, sent.offset)


def entries(number: int) -> list[Entry]:
    return decision("p", BatchId("query a", number, ""), Guarantee.LOG)


@pytest.mark.parametrize("version", VERSIONS)
async def test_one_decision_after_the_other_is_written_under_what_the_last_has_returned(
    kafka_cluster: Cluster, version: int
) -> None:
    """Each by another process: sequences of an epoch are not begun twice, or a record would be taken for a duplicate."""
    async with port(kafka_cluster) as kafka:
        driver = await kafka.take_over("p.d")
        for number in range(4):
            driver = await kafka.write(driver, entries(number))
            assert (await kafka.decisions())["query a"].number == number
            known = (await kafka.describe(["p.d"]))["p.d"]
            assert known is not None
            assert (known.producer_id, known.epoch, known.is_open) == (*driver[1:3], False)


async def test_what_comes_after_a_decision_is_written_by_the_same_producer(
    kafka_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody connects twice in a commit; who goes on as somebody else does."""
    gone_on: list[PreparedTransaction] = []
    go_on = Producer._go_on

    async def counted(self: Producer, prepared: PreparedTransaction, *, anew: bool = False) -> None:
        gone_on.append(prepared)
        await go_on(self, prepared, anew=anew)

    monkeypatch.setattr(Producer, "_go_on", counted)
    async with port(kafka_cluster) as kafka:
        driver = await kafka.take_over("p.d")
        second = await kafka.write(await kafka.write(driver, entries(0)), entries(1))
        assert gone_on == [driver]
        third = await kafka.take_over("p.d")
        with pytest.raises(REPLACED):
            await kafka.write(second, entries(2))
        await kafka.write(third, entries(3))
        assert gone_on == [driver, third]
        assert (await kafka.decisions())["query a"].number == 3


@pytest.mark.parametrize("version", VERSIONS)
async def test_who_was_replaced_writes_nothing(kafka_cluster: Cluster, version: int) -> None:
    async with port(kafka_cluster) as kafka:
        first = await kafka.take_over("p.d")
        second = await kafka.take_over("p.d")
        with pytest.raises(REPLACED):
            await kafka.write(first, entries(1))
        assert await kafka.decisions() == {}
        assert not await kafka.succeed(first)
        await kafka.write(second, entries(2))
        assert not await kafka.succeed(first)


@pytest.mark.parametrize("version", VERSIONS)
async def test_replaced_driver_leaves_an_open_decision_alone(kafka_cluster: Cluster, version: int) -> None:
    """While a transaction is open the coordinator compares the producer id alone."""
    async with port(kafka_cluster) as kafka:
        first = await kafka.take_over("p.d")
        second = await kafka.take_over("p.d")
        successor = await going_on(second, settings(kafka_cluster))
        await successor.begin_transaction()
        await successor.send("orders", b"decision")
        assert not await kafka.succeed(first)
        with pytest.raises(REPLACED):
            await kafka.write(first, entries(1))
        await successor.commit_transaction()
        await successor.close()
        assert not await kafka.succeed(first)


@pytest.mark.parametrize("version", [VERSIONS[1]])
@pytest.mark.parametrize("commit", [True, False])
async def test_driver_whose_answer_was_lost_is_still_in_office(
    kafka_cluster: Cluster, version: int, commit: bool
) -> None:
    async with port(kafka_cluster) as kafka:
        driver = await kafka.take_over("p.d")
        producer = await going_on(driver, settings(kafka_cluster))
        await producer.begin_transaction()
        await producer.send("orders", b"decision")
        await (producer.commit_transaction() if commit else producer.abort_transaction())
        await producer.close()
        assert await kafka.succeed(driver)


@pytest.mark.parametrize("version", VERSIONS)
async def test_who_is_in_office_may_take_the_next_epoch(kafka_cluster: Cluster, version: int) -> None:
    async with port(kafka_cluster) as kafka:
        driver = await kafka.take_over("p.d")
        assert await kafka.succeed(driver)
        with pytest.raises(REPLACED):
            await kafka.write(driver, entries(1))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
async def test_the_log_tells_how_a_transaction_ended(
    kafka_cluster: Cluster, version: int, commit: bool
) -> None:
    share, other = await prepared(kafka_cluster), await prepared(kafka_cluster, "p.t.r.1.0")
    async with port(kafka_cluster) as kafka, TransactionAdmin(kafka_cluster.bootstrap_servers) as admin:
        assert await kafka.fate(share) is End.UNTOLD
        await admin.end(other.prepared, commit=not commit)
        assert await kafka.fate(share) is End.UNTOLD
        await admin.end(share.prepared, commit=commit)
        again = await prepared(kafka_cluster)
        await admin.end(again.prepared, commit=not commit)
        assert await kafka.fate(share) is (End.COMMITTED if commit else End.LOST)


async def test_what_is_open_is_listed_by_how_it_begins_and_fenced(kafka_cluster: Cluster) -> None:
    for name in ("p.t.r.0.0", "p.t.q.0.0", "px.t.r.0.0"):
        await prepared(kafka_cluster, name)
    async with port(kafka_cluster) as kafka:
        assert await kafka.ongoing("p.t.") == ["p.t.q.0.0", "p.t.r.0.0"]
        assert await kafka.ongoing("p.t.r.") == ["p.t.r.0.0"]
        known = await kafka.describe(["p.t.r.0.0", "nobody"])
        assert known["nobody"] is None
        assert known["p.t.r.0.0"] is not None
        assert known["p.t.r.0.0"].takes_records
        await kafka.fence(["p.t.r.0.0"])
        assert await kafka.ongoing("p.t.") == ["p.t.q.0.0"]


async def test_listing_waits_for_brokers_that_start_up(kafka_cluster: Cluster) -> None:
    await prepared(kafka_cluster)
    async with port(kafka_cluster) as kafka:
        kafka_cluster.on("metadata", times=2).rewrite(without_brokers("orders"))
        assert await kafka.ongoing("p.t.") == ["p.t.r.0.0"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_first_use_left_open_is_aborted(kafka_cluster: Cluster, version: int) -> None:
    delivery = ExactlyOnce(Guarantee.LOG, "p", None)
    async with port(kafka_cluster) as kafka:
        await begin(kafka, delivery)
        await kafka.take_over(delivery.driver_id)
        await prepared(kafka_cluster, delivery.beginning_id)
        await begin(kafka, delivery)
        known = (await kafka.describe([delivery.beginning_id]))[delivery.beginning_id]
        assert known is not None
        assert not known.is_open


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_commit_is_repeated_until_it_is_told(kafka_cluster: Cluster, version: int) -> None:
    first, second = await prepared(kafka_cluster), await prepared(kafka_cluster, "p.t.r.1.0")
    async with port(kafka_cluster) as kafka:
        await kafka.fence([second.transactional_id])
        for _ in range(2):
            ends = await kafka.commit([first, second])
            assert ends[first] is End.COMMITTED
            assert ends[second] in {End.LOST, End.UNTOLD}
            assert await kafka.fate(second) is End.LOST


def test_what_is_not_known_to_be_over_is_an_error() -> None:
    assert _end(None) is End.COMMITTED
    assert _end(TransactionLost("gone")) is End.LOST
    untold = TransactionOutcomeUnknown("fenced")
    untold.__cause__ = ProducerFenced("fenced")
    assert _end(untold) is End.UNTOLD
    with pytest.raises(DeliveryError, match="not committed everywhere yet"):
        _end(TransactionOutcomeUnknown("no answer"))


async def test_the_log_is_made_by_whoever_is_first(kafka_cluster: Cluster) -> None:
    views = [DecisionView("p") for _ in range(3)]

    async def read(view: DecisionView) -> None:
        async with Client(settings(kafka_cluster).config()) as client:
            await read_on(view, client)

    await asyncio.gather(*map(read, views))
    assert [view.offset for view in views] == [0, 0, 0]


async def test_a_log_that_has_lost_its_end_is_an_error(kafka_cluster: Cluster) -> None:
    view = DecisionView("p")
    view.offset = 7
    with pytest.raises(DeliveryError, match="decisions are lost"):
        async with Client(settings(kafka_cluster).config()) as client:
            await read_on(view, client)


def test_a_share_is_a_transaction() -> None:
    transaction = PreparedTransaction("p.t.r.0.0", 1, 2, 2, 3, 60_000)
    assert Share(*transaction, "orders", 0, 7).prepared == transaction
