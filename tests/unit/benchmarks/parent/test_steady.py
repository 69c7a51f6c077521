from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from benchmarks.figures import Run
from benchmarks.parent import steady
from benchmarks.parent.topics import MissingRecordsError
from benchmarks.settings import Settings, Work

SETTINGS = Settings(work=Work.STEADY)


def child(monkeypatch: pytest.MonkeyPatch, *, claims: int) -> None:
    """Let the child send a record to each of two partitions, and claim to have sent so many."""

    def answer_of(module: str, arguments: Sequence[str]) -> str:
        client, servers, topic, settings = arguments
        assert (module, client, Settings.loads(settings)) == (steady.CHILD, "aiokafka", SETTINGS)
        producer = Producer({"bootstrap.servers": servers})
        for partition in (0, steady.PARTITIONS - 1):
            producer.produce(topic, b"value", partition=partition)
            producer.flush(10)
        return f'{{"sent": {claims}, "figures": {{"cpu_us": 1.0}}, "series": []}}'

    monkeypatch.setattr(steady, "answer_of", answer_of)


def test_brokers_count_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, claims=2)
    assert steady.measure("aiokafka", SETTINGS) == Run(sent=2, figures={"cpu_us": 1.0, "requests": 1_000.0})


def test_a_claim_is_not_believed_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, claims=3)
    with pytest.raises(MissingRecordsError):
        steady.measure("aiokafka", SETTINGS)
