"""What is asked of a cluster: the rest is in test_kafka_port.py, on a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer import PreparedTransaction
from aioproducer.errors import TopicAlreadyExists
from aioproducer.spark import decision_topic
from aioproducer.spark.decision_records import PARTITION, TOPIC, TOPIC_CONFIG, DecisionView, Entry
from aioproducer.spark.decision_topic import commit_with, read_on

PREPARED = PreparedTransaction("p.d.r.0.0", 1, 2, 1, 3, 60_000)
ENTRIES = [Entry(b"k", b"v"), Entry(b"k2", b"v2")]


class Log:
    """A client of a cluster whose log begins and ends where a test says."""

    def __init__(self, first: int = 0, end: int = 0, *, is_there: bool = True) -> None:
        self._first, self._end, self._is_there = first, end, is_there
        self.created: list[tuple[str, int, Mapping[str, str]]] = []
        self.read: list[tuple[str, int, int, int]] = []

    async def is_there(self, topic: str) -> bool:
        return self._is_there

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        self.created.append((name, partitions, config))
        raise TopicAlreadyExists("somebody else was faster")

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
    view.offset = at
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
