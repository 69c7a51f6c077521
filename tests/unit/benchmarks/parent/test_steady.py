from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from aioproducer.testing import ThreadedCluster
from benchmarks.clients import adapter
from benchmarks.figures import Run
from benchmarks.parent import steady
from benchmarks.parent.topics import MissingRecordsError
from benchmarks.settings import Settings, Work

SETTINGS = Settings(work=Work.STEADY)
SLOW = Settings(work=Work.SLOW_BROKER, slow_ms=10)


def child(
    monkeypatch: pytest.MonkeyPatch,
    *,
    claims: int,
    settings: Settings = SETTINGS,
    partitions: Sequence[int] = (0, steady.PARTITIONS - 1),
) -> None:
    """Let the child send a record to each of *partitions*, and report *claims* records."""

    def answer_of(module: str, arguments: Sequence[str]) -> str:
        client, servers, topic, text = arguments
        assert (module, client, Settings.loads(text)) == (steady.CHILD, "aiokafka", settings)
        producer = Producer({"bootstrap.servers": servers})
        for partition in partitions:
            producer.produce(topic, b"value", partition=partition)
            producer.flush(10)
        return f'{{"sent": {claims}, "figures": {{"cpu_us": 1.0}}, "series": []}}'

    monkeypatch.setattr(steady, "answer_of", answer_of)


def test_brokers_count_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, claims=2)
    assert steady.measure("aiokafka", SETTINGS) == Run(sent=2, figures={"cpu_us": 1.0, "requests": 1_000.0})


def test_claimed_records_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, claims=3)
    with pytest.raises(MissingRecordsError):
        steady.measure("aiokafka", SETTINGS)


def test_slow_share_is_counted_in_the_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, claims=4, settings=SLOW, partitions=(0, 1, 2, 11))
    run = steady.measure("aiokafka", SLOW)
    assert run.figures == {"cpu_us": 1.0, "requests": 1_000.0, "slow_share": 50.0}


def test_claimed_records_beside_a_slow_broker_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, claims=3, settings=SLOW)
    with pytest.raises(MissingRecordsError):
        steady.measure("aiokafka", SLOW)


def test_slow_down_delays_every_produce_request() -> None:
    delays = {}

    class Scripted:
        """A cluster that stores the scripted delays."""

        def on(self, request: str, *, node: int, times: None) -> Scripted:
            self.node = node
            assert request == "produce"
            return self

        def delay(self, s: float) -> None:
            delays[self.node] = s

    steady.slow_down(cast("ThreadedCluster", Scripted()), 0.1)
    assert delays == {1: steady.OTHERS_S, 2: steady.OTHERS_S, 3: 0.1}


def test_slow_broker_leads_the_partitions_counted_for_it() -> None:
    with ThreadedCluster(brokers=steady.BROKERS, topics={steady.TOPIC: steady.PARTITIONS}) as cluster:
        known = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(steady.TOPIC)
    partitions = known.topics[steady.TOPIC].partitions
    led = [number for number, each in sorted(partitions.items()) if each.leader == steady.SLOW_NODE]
    assert led == [*range(steady.PARTITIONS)][steady.SLOW_NODE - 1 :: steady.BROKERS]


def test_share_of_other_zones_is_counted_by_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(work=Work.ZONES)
    child(monkeypatch, claims=4, settings=settings, partitions=(0, 3, 9, 11))
    run = steady.measure("aiokafka", settings)
    assert run.figures == {"cpu_us": 1.0, "requests": 1_000.0, "zone_share": 25.0}


def test_rack_aware_client_sends_to_its_zone_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer_of(module: str, arguments: Sequence[str]) -> str:
        name, servers, topic, text = arguments
        assert module == steady.CHILD

        async def send() -> Run:
            client = adapter(name)(servers, topic, Settings.loads(text))
            await client.start()
            for _ in range(30):
                await client.call(b"v" * 20_000)()
            await client.close()
            return Run(sent=30)

        return json.dumps(asdict(asyncio.run(send())))

    monkeypatch.setattr(steady, "answer_of", answer_of)
    shares = {
        name: steady.measure(name, Settings(work=Work.ZONES)).figures["zone_share"]
        for name in ("aioproducer", "aioproducer-rack-aware")
    }
    assert shares["aioproducer-rack-aware"] == 0
    assert shares["aioproducer"] > 30
