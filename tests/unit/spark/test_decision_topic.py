"""What is asked of a cluster: the rest is in test_kafka_port.py, on a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer import PreparedTransaction
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer.errors import (
    NotController,
    ProducerError,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
)
from aioproducer.spark import decision_topic
from aioproducer.spark.decision_records import PARTITION, TOPIC, TOPIC_CONFIG, DecisionView, Entry
from aioproducer.spark.decision_topic import check_kept, commit_with, read_on
from aioproducer.spark.delivery import DeliveryError
from aioproducer.spark.messages import log_topic_unchecked

PREPARED = PreparedTransaction("p.d.r.0.0", 1, 2, 1, 3, 60_000)
TOPIC_ID = b"i" * 16
ENTRIES = [Entry(b"k", b"v"), Entry(b"k2", b"v2")]


class Log:
    """A client of a cluster whose log begins and ends where a test says."""

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
    await read_on(view, client)  # type: ignore[arg-type]


async def test_a_log_that_is_not_there_is_made_so_that_it_keeps_decisions() -> None:
    log = Log(is_there=False)
    await read(log)
    assert log.created == [(TOPIC, PARTITION + 1, TOPIC_CONFIG)]
    assert "compact" in TOPIC_CONFIG["cleanup.policy"]


async def test_one_that_is_there_is_left_as_it_is() -> None:
    log = Log()
    await read(log)
    assert log.created == []


@pytest.mark.parametrize(("at", "start"), [(0, 5), (5, 5), (7, 7), (9, 9)])
async def test_it_is_read_from_its_beginning_or_from_where_it_was_read_to(at: int, start: int) -> None:
    log = Log(first=5, end=9)
    await read(log, at)
    assert log.read == [(TOPIC, PARTITION, start, 9)]


@pytest.mark.parametrize("fails", [None, "send", "commit"])
async def test_a_producer_is_closed_at_once_whatever_came_of_it(
    fails: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def noted(name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> None:
            calls.append((name, *arguments, *options.values()))
            if name == fails:
                raise RuntimeError(name)

        return call

    async def going_on(prepared: PreparedTransaction, settings: object) -> Any:
        assert prepared is PREPARED
        return SimpleNamespace(
            begin_transaction=noted("begin"),
            send=noted("send"),
            commit_transaction=noted("commit"),
            close=noted("close"),
            _identity=lambda: PREPARED,
        )

    monkeypatch.setattr(decision_topic, "going_on", going_on)
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
        await read_on(view, Log(first, end))  # type: ignore[arg-type]


@pytest.mark.parametrize(("known", "told"), [(NO_TOPIC_ID, TOPIC_ID), (TOPIC_ID, NO_TOPIC_ID)])
async def test_topic_without_an_id_is_no_other_topic(known: bytes, told: bytes) -> None:
    view, log = DecisionView("p"), Log(0, 9)
    view.offset, view.topic_id, log.topic_id_now = 5, known, told
    await read_on(view, log)  # type: ignore[arg-type]
    assert view.topic_id == TOPIC_ID


def settings(policy: str, ms: str = "-1", size: str = "-1") -> dict[str, str]:
    return {"cleanup.policy": policy, "retention.ms": ms, "retention.bytes": size}


@pytest.mark.parametrize(
    "described",
    [
        settings("compact", "604800000", "1000"),
        settings("delete"),
        settings("compact,delete"),
        settings("", "604800000"),
    ],
)
async def test_topic_that_keeps_decisions_is_accepted(
    described: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(is_there=False)
    log.described = described
    await check_kept(log, "b:1")  # type: ignore[arg-type]
    assert log.created == [(TOPIC, PARTITION + 1, TOPIC_CONFIG)]
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("described", "limit"),
    [
        (settings("delete", "604800000"), "cleanup.policy=delete and retention.ms=604800000"),
        (settings("delete", "-1", "1073741824"), "cleanup.policy=delete and retention.bytes=1073741824"),
        (settings("compact,delete", "0"), "cleanup.policy=compact,delete and retention.ms=0"),
        (settings("delete, compact", "1"), "cleanup.policy=delete, compact and retention.ms=1"),
    ],
)
async def test_topic_whose_decisions_expire_is_refused(described: dict[str, str], limit: str) -> None:
    log = Log()
    log.described = described
    with pytest.raises(DeliveryError, match="decisions expire") as told:
        await check_kept(log, "b:1,c:2")  # type: ignore[arg-type]
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
        await check_kept(log, "b:1")  # type: ignore[arg-type]
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message.startswith(f'spark.decision_topic.unchecked topic={TOPIC} reason="')


async def test_settings_that_are_not_described_now_are_an_error() -> None:
    log = Log()
    log.described = NotController("later")
    with pytest.raises(NotController):
        await check_kept(log, "b:1")  # type: ignore[arg-type]
