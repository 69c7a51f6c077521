from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from benchmarks.figures import Run
from benchmarks.parent import memory
from benchmarks.parent.topics import MissingRecordsError
from benchmarks.settings import Settings, Work

SETTINGS = Settings(work=Work.MEMORY, slow_ms=10)


@pytest.mark.parametrize(("claims", "believed"), [(1, True), (2, False)])
def test_memory_row_counts_when_all_records_arrived(
    claims: int, believed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer_of(module: str, arguments: Sequence[str]) -> str:
        client, servers, topic, text = arguments
        assert (module, client, Settings.loads(text)) == (memory.CHILD, "aioproducer", SETTINGS)
        producer = Producer({"bootstrap.servers": servers})
        producer.produce(topic, b"value")
        producer.flush(10)
        return f'{{"sent": {claims}, "figures": {{"rss_mib": 1.0}}, "series": []}}'

    monkeypatch.setattr(memory, "answer_of", answer_of)
    if believed:
        assert memory.measure("aioproducer", SETTINGS) == Run(sent=1, figures={"rss_mib": 1.0})
    else:
        with pytest.raises(MissingRecordsError):
            memory.measure("aioproducer", SETTINGS)
