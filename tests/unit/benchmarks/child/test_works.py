from __future__ import annotations

import time

import pytest

from aioproducer.testing import ThreadedCluster
from benchmarks.child.__main__ import play
from benchmarks.child.works import Turns, compressor_us
from benchmarks.clients import adapter
from benchmarks.parent.topics import check_count, stored
from benchmarks.payload import window_of
from benchmarks.settings import PARTITIONS, Settings, Work

TOPIC = "work"
RECORDS = 300
WINDOW = 100
"""Fewer than there are tasks: all of them are to send nevertheless."""
PARTICIPANTS = [
    (client, work)
    for work in (Work.CLOSED, Work.LONE, Work.FIRE, Work.BULK, Work.ONE_BY_ONE, Work.MEMORY)
    for client in ("aioproducer", "aiokafka", "confluent-batch", "confluent-produce", "kafka-python")
    if work in adapter(client).works
]


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.settings.WINDOW", WINDOW)


@pytest.mark.slow
# kafka-python 3.0 reads its definitions so
@pytest.mark.filterwarnings("ignore:(open|read)_text is deprecated")
@pytest.mark.parametrize(("client", "work"), PARTICIPANTS)
async def test_a_run_sends_what_it_says_and_has_figures(
    kafka_cluster: ThreadedCluster, client: str, work: Work
) -> None:
    kafka_cluster.create_topic(TOPIC, PARTITIONS)
    settings = Settings(work=work, records=RECORDS, keys=True, headers="batch" not in client)
    run = await play(adapter(client)(kafka_cluster.bootstrap_servers, TOPIC, settings), settings)
    assert run.sent >= RECORDS
    check_count(
        run.sent, stored(kafka_cluster.bootstrap_servers, [(TOPIC, number) for number in range(PARTITIONS)])
    )
    assert run.figures["records_s"] > 0
    assert run.figures["cpu_us"] > 0
    assert run.figures["rss_mib"] > 10
    assert ("p99_ms" in run.figures) == (work in {Work.CLOSED, Work.LONE})
    assert bool(run.series) == (work is Work.MEMORY)


async def test_values_arrive_as_they_are_with_their_keys_and_headers(kafka_cluster: ThreadedCluster) -> None:
    kafka_cluster.create_topic(TOPIC, 1)
    settings = Settings(work=Work.ONE_BY_ONE, records=1, keys=True, headers=True)
    await play(adapter("aioproducer")(kafka_cluster.bootstrap_servers, TOPIC, settings), settings)
    window = window_of(settings)
    found = kafka_cluster.records(TOPIC, 0)[: len(window)]
    assert [record.value for record in found] == window.values
    assert [record.key for record in found] == window.keys
    assert [list(record.headers) for record in found] == window.headers


def test_turns_end_after_a_number_of_records() -> None:
    turns = Turns(Settings(work=Work.FIRE, records=25))
    assert [turns.over(10) for _ in range(3)] == [False, False, True]


def test_turns_end_after_a_time() -> None:
    assert Turns(Settings(work=Work.FIRE, seconds=0)).over()
    assert not Turns(Settings(work=Work.FIRE, seconds=1000)).over()


def test_the_compressor_alone_is_timed_per_record() -> None:
    settings = Settings(work=Work.FIRE, json_like=True, compression="gzip")
    window = window_of(settings)
    ticks = iter((1.0, 1.0 + len(window)))
    assert compressor_us(window, settings, lambda: next(ticks)) == 1e6
    assert compressor_us(window, settings, time.process_time) > 1
