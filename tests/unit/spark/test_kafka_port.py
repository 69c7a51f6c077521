"""Requests of the decision protocol, and the responses of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer import PreparedTransaction, Producer, TransactionAdmin
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer._topic_client import Client
from aioproducer.errors import (
    NotController,
    ProducerError,
    ProducerFenced,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    TransactionLost,
    TransactionOutcomeUnknown,
)
from aioproducer.spark import kafka_port
from aioproducer.spark.decision_protocol import End, begin
from aioproducer.spark.decision_records import (
    PARTITION,
    TOPIC,
    TOPIC_CONFIG,
    DecisionView,
    Entry,
    Share,
    decision,
)
from aioproducer.spark.delivery import BatchId, DeliveryError, ExactlyOnce, Guarantee
from aioproducer.spark.kafka_port import (
    REPLACED,
    KafkaPort,
    _end,
    check_retention,
    commit_with,
    read_new_records,
    resumed,
)
from aioproducer.spark.messages import log_topic_unchecked
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
            await read_new_records(view, client)
        return view

    async with (
        TransactionAdmin.from_config(settings(cluster).config()) as admin,
        aclosing(KafkaPort(settings(cluster), admin, read)) as kafka,
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
async def test_write_continues_under_the_returned_epoch(kafka_cluster: Cluster, version: int) -> None:
    """Each by another process: sequences of an epoch are not begun twice, or a record would be taken for a duplicate."""
    async with port(kafka_cluster) as kafka:
        driver = await kafka.take_over("p.d")
        for number in range(4):
            driver = await kafka.write(driver, entries(number))
            assert (await kafka.decisions())["query a"].number == number
            known = (await kafka.describe(["p.d"]))["p.d"]
            assert known is not None
            assert (known.producer_id, known.epoch, known.is_open) == (*driver[1:3], False)


async def test_write_reuses_the_producer_of_a_decision(
    kafka_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver reuses its producer for all its writes; another identity starts a new producer."""
    gone_on: list[PreparedTransaction] = []
    go_on = Producer._start_resumed

    async def counted(self: Producer, prepared: PreparedTransaction, *, anew: bool = False) -> None:
        gone_on.append(prepared)
        await go_on(self, prepared, anew=anew)

    monkeypatch.setattr(Producer, "_start_resumed", counted)
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
async def test_write_of_a_replaced_driver_fails(kafka_cluster: Cluster, version: int) -> None:
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
        successor = await resumed(second, settings(kafka_cluster))
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
        producer = await resumed(driver, settings(kafka_cluster))
        await producer.begin_transaction()
        await producer.send("orders", b"decision")
        await (producer.commit_transaction() if commit else producer.abort_transaction())
        await producer.close()
        assert await kafka.succeed(driver)


@pytest.mark.parametrize("version", VERSIONS)
async def test_succeed_takes_the_next_epoch_of_the_driver(kafka_cluster: Cluster, version: int) -> None:
    async with port(kafka_cluster) as kafka:
        driver = await kafka.take_over("p.d")
        assert await kafka.succeed(driver)
        with pytest.raises(REPLACED):
            await kafka.write(driver, entries(1))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
async def test_outcome_of_a_transaction_is_read_from_the_log(
    kafka_cluster: Cluster, version: int, commit: bool
) -> None:
    share, other = await prepared(kafka_cluster), await prepared(kafka_cluster, "p.t.r.1.0")
    async with port(kafka_cluster) as kafka, TransactionAdmin(kafka_cluster.bootstrap_servers) as admin:
        assert await kafka.outcome_in_log(share) is End.UNKNOWN
        await admin.end(other.prepared, commit=not commit)
        assert await kafka.outcome_in_log(share) is End.UNKNOWN
        await admin.end(share.prepared, commit=commit)
        again = await prepared(kafka_cluster)
        await admin.end(again.prepared, commit=not commit)
        assert await kafka.outcome_in_log(share) is (End.COMMITTED if commit else End.LOST)


async def test_ongoing_ids_are_listed_by_prefix_and_fenced(kafka_cluster: Cluster) -> None:
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
async def test_commit_is_repeatable_until_the_outcome_is_known(kafka_cluster: Cluster, version: int) -> None:
    first, second = await prepared(kafka_cluster), await prepared(kafka_cluster, "p.t.r.1.0")
    async with port(kafka_cluster) as kafka:
        await kafka.fence([second.transactional_id])
        for _ in range(2):
            ends = await kafka.commit([first, second])
            assert ends[first] is End.COMMITTED
            assert ends[second] in {End.LOST, End.UNKNOWN}
            assert await kafka.outcome_in_log(second) is End.LOST


def test_commit_raises_for_other_errors() -> None:
    assert _end(None) is End.COMMITTED
    assert _end(TransactionLost("gone")) is End.LOST
    unknown = TransactionOutcomeUnknown("fenced")
    unknown.__cause__ = ProducerFenced("fenced")
    assert _end(unknown) is End.UNKNOWN
    with pytest.raises(DeliveryError, match="not committed everywhere yet"):
        _end(TransactionOutcomeUnknown("no answer"))


async def test_log_is_created_by_the_first_of_concurrent_readers(kafka_cluster: Cluster) -> None:
    views = [DecisionView("p") for _ in range(3)]

    async def read(view: DecisionView) -> None:
        async with Client(settings(kafka_cluster).config()) as client:
            await read_new_records(view, client)

    await asyncio.gather(*map(read, views))
    assert [view.offset for view in views] == [0, 0, 0]


async def test_log_that_lost_its_end_is_an_error(kafka_cluster: Cluster) -> None:
    view = DecisionView("p")
    view.offset = 7
    with pytest.raises(DeliveryError, match="decisions are lost"):
        async with Client(settings(kafka_cluster).config()) as client:
            await read_new_records(view, client)


def test_share_has_the_prepared_transaction() -> None:
    transaction = PreparedTransaction("p.t.r.0.0", 1, 2, 2, 3, 60_000)
    assert Share(*transaction, "orders", 0, 7).prepared == transaction


PREPARED = PreparedTransaction("p.d.r.0.0", 1, 2, 1, 3, 60_000)
TOPIC_ID = b"i" * 16
ENTRIES = [Entry(b"k", b"v"), Entry(b"k2", b"v2")]


class Log:
    """Client of a cluster whose log has the given start and end offsets."""

    def __init__(self, first: int = 0, end: int = 0, *, is_there: bool = True) -> None:
        self._first, self._end, self._is_there = first, end, is_there
        self.topic_id_now = TOPIC_ID
        self.described: dict[str, str] | ProducerError = {}
        self.created: list[tuple[str, int, Mapping[str, str]]] = []
        self.read: list[tuple[str, int, int, int]] = []

    async def topic_id(self, topic: str) -> bytes | None:
        return self.topic_id_now if self._is_there else None

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        self.created.append((name, partitions, config))
        self._is_there = True
        raise TopicAlreadyExists("somebody else was faster")

    async def topic_settings(self, topic: str, names: Sequence[str]) -> dict[str, str]:
        if isinstance(self.described, ProducerError):
            raise self.described
        return {name: value for name, value in self.described.items() if name in names}

    async def end_offset(self, topic: str, partition: int) -> int:
        return self._end

    async def first_offset(self, topic: str, partition: int) -> int:
        return self._first

    async def batches(self, topic: str, partition: int, start: int, end: int) -> AsyncIterator[Any]:
        self.read.append((topic, partition, start, end))
        if self._end < 0:  # never: this makes it a generator
            yield


async def read(log: Log, at: int = 0) -> None:
    view, client = DecisionView("p"), log
    view.offset, view.topic_id = at, TOPIC_ID
    await read_new_records(view, client)  # type: ignore[arg-type]


async def test_missing_log_is_created_with_compaction() -> None:
    log = Log(is_there=False)
    await read(log)
    assert log.created == [(TOPIC, PARTITION + 1, TOPIC_CONFIG)]
    assert "compact" in TOPIC_CONFIG["cleanup.policy"]


async def test_existing_log_is_unchanged() -> None:
    log = Log()
    await read(log)
    assert log.created == []


@pytest.mark.parametrize(("at", "start"), [(0, 5), (5, 5), (7, 7), (9, 9)])
async def test_log_is_read_from_the_offset_of_the_view(at: int, start: int) -> None:
    log = Log(first=5, end=9)
    await read(log, at)
    assert log.read == [(TOPIC, PARTITION, start, 9)]


@pytest.mark.parametrize("fails", [None, "send", "commit"])
async def test_producer_is_closed_without_a_wait_in_any_outcome(
    fails: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def noted(name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> None:
            calls.append((name, *arguments, *options.values()))
            if name == fails:
                raise RuntimeError(name)

        return call

    async def resumed(prepared: PreparedTransaction, settings: object) -> Any:
        assert prepared is PREPARED
        return SimpleNamespace(
            begin_transaction=noted("begin"),
            send=noted("send"),
            commit_transaction=noted("commit"),
            close=noted("close"),
            _identity=lambda: PREPARED,
        )

    monkeypatch.setattr(kafka_port, "resumed", resumed)
    expected = [
        ("begin",),
        *(("send", TOPIC, each.value, each.key, PARTITION) for each in ENTRIES),
        ("commit",),
        ("close", 0),
    ]
    if fails is None:
        assert await commit_with(PREPARED, ENTRIES, settings=None) is PREPARED  # type: ignore[arg-type]
    else:
        with pytest.raises(RuntimeError, match=fails):
            await commit_with(PREPARED, ENTRIES, settings=None)  # type: ignore[arg-type]
        expected = expected[: [name for name, *_ in expected].index(fails) + 1] + expected[-1:]
    assert calls == expected


@pytest.mark.parametrize(
    ("first", "end", "topic_id"),
    [(0, 4, TOPIC_ID), (6, 9, TOPIC_ID), (0, 9, b"o" * 16)],
    ids=["end lost", "beginning removed", "recreated"],
)
async def test_log_that_lost_unread_records_is_refused(first: int, end: int, topic_id: bytes) -> None:
    view = DecisionView("p")
    view.offset, view.topic_id = 5, topic_id
    with pytest.raises(DeliveryError, match="decisions are lost, as the topic was read up to offset 5"):
        await read_new_records(view, Log(first, end))  # type: ignore[arg-type]


@pytest.mark.parametrize(("known", "told"), [(NO_TOPIC_ID, TOPIC_ID), (TOPIC_ID, NO_TOPIC_ID)])
async def test_topic_without_an_id_is_no_other_topic(known: bytes, told: bytes) -> None:
    view, log = DecisionView("p"), Log(0, 9)
    view.offset, view.topic_id, log.topic_id_now = 5, known, told
    await read_new_records(view, log)  # type: ignore[arg-type]
    assert view.topic_id == TOPIC_ID


def policies(policy: str, ms: str = "-1", size: str = "-1") -> dict[str, str]:
    return {"cleanup.policy": policy, "retention.ms": ms, "retention.bytes": size}


@pytest.mark.parametrize(
    "described",
    [
        policies("compact", "604800000", "1000"),
        policies("delete"),
        policies("compact,delete"),
        policies("", "604800000"),
    ],
)
async def test_topic_that_keeps_decisions_is_accepted(
    described: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(is_there=False)
    log.described = described
    await check_retention(log, "b:1")  # type: ignore[arg-type]
    assert log.created == [(TOPIC, PARTITION + 1, TOPIC_CONFIG)]
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("described", "limit"),
    [
        (policies("delete", "604800000"), "cleanup.policy=delete and retention.ms=604800000"),
        (policies("delete", "-1", "1073741824"), "cleanup.policy=delete and retention.bytes=1073741824"),
        (policies("compact,delete", "0"), "cleanup.policy=compact,delete and retention.ms=0"),
        (policies("delete, compact", "1"), "cleanup.policy=delete, compact and retention.ms=1"),
    ],
)
async def test_topic_whose_decisions_expire_is_refused(described: dict[str, str], limit: str) -> None:
    log = Log()
    log.described = described
    with pytest.raises(DeliveryError, match="decisions expire") as told:
        await check_retention(log, "b:1,c:2")  # type: ignore[arg-type]
    assert limit in str(told.value)
    assert str(told.value).endswith(
        "run kafka-configs.sh --bootstrap-server b:1,c:2 --entity-type topics --entity-name __aioproducer_spark"
        " --alter --add-config cleanup.policy=compact"
    )
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("described", [TopicAuthorizationFailed("denied"), {}, {"cleanup.policy": "delete"}])
async def test_settings_that_are_not_described_are_one_warning(
    described: dict[str, str] | ProducerError, caplog: pytest.LogCaptureFixture
) -> None:
    log_topic_unchecked.cache_clear()
    log = Log()
    log.described = described
    for _ in range(2):
        await check_retention(log, "b:1")  # type: ignore[arg-type]
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message.startswith(f'spark.decision_topic.unchecked topic={TOPIC} reason="')


async def test_settings_that_are_not_described_now_are_an_error() -> None:
    log = Log()
    log.described = NotController("later")
    with pytest.raises(NotController):
        await check_retention(log, "b:1")  # type: ignore[arg-type]
