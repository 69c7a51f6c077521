from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from aioproducer._core.records.decode import DecodedRecord
from aioproducer._topic_client import Client
from aioproducer.cli.demo.demo_run import Outcome, Plan, run
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError, ConnectionFailed
from aioproducer.testing import Cluster

RECORDS = 400


class Followed:
    """What was shown while the demo ran."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int, int, int]] = []

    @asynccontextmanager
    async def __call__(self, what: str, total: int, done: Callable[[], int]) -> AsyncIterator[None]:
        before = done()
        yield
        self.stages.append((what, total, before, done()))


async def demo(servers: str | None = None, *, compression: str = "zstd") -> Outcome:
    config = None if servers is None else ProducerConfig(bootstrap_servers=servers)
    return await run(Plan(config, records=RECORDS, partitions=3, compression=compression), Followed())


async def test_every_record_is_sent_once_and_read_back() -> None:
    followed = Followed()
    outcome = await run(Plan(None, records=RECORDS, partitions=3, compression="lz4"), followed)
    assert outcome.flaws == {}
    assert outcome.records_read == RECORDS
    assert outcome.warm_up.records == 4
    assert outcome.one_by_one.records == 100
    assert outcome.in_bulk.records == 296
    assert len(outcome.one_by_one.latencies_s) == 100
    assert outcome.in_bulk.compression_ratio > 1
    assert followed.stages == [("sending", RECORDS, 0, RECORDS), ("reading back", RECORDS, 0, RECORDS)]


async def test_on_another_cluster_each_run_has_a_topic_of_its_own() -> None:
    async with Cluster(2, transport="memory") as cluster:
        first = await demo(cluster.bootstrap_servers)
        second = await demo(cluster.bootstrap_servers)
        assert first.topic != second.topic
        for outcome in (first, second):
            assert outcome.topic.startswith("aioproducer-demo-")
            assert sum(len(cluster.records(outcome.topic, each)) for each in range(3)) == RECORDS
            assert outcome.flaws == {}


async def test_what_is_lost_on_the_way_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Client.read

    async def read_all_but_one(self: Client, topic: str) -> AsyncIterator[tuple[int, list[DecodedRecord]]]:
        async for partition, records in read(self, topic):
            yield partition, records[1:] if partition == 0 else records

    monkeypatch.setattr(Client, "read", read_all_but_one)
    outcome = await demo()
    assert outcome.flaws["lost"] >= 1
    assert outcome.flaws["lost"] == RECORDS - outcome.records_read


async def test_a_cluster_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConnectionFailed, match="nowhere"):
        await demo("nowhere.invalid:9092")


async def test_a_codec_that_there_is_not_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"compression\.type"):
        await demo(compression="zip")
