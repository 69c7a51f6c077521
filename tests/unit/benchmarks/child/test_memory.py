from __future__ import annotations

import pytest

from aioproducer.testing import ThreadedCluster
from benchmarks.child import memory
from benchmarks.clients.ours import Aioproducer
from benchmarks.settings import Settings, Tuning, Work


async def test_memory_is_sampled_until_the_last_acknowledgement(
    kafka_cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CHECK_EVERY", 100)
    kafka_cluster.create_topic("t", 1)
    settings = Settings(work=Work.MEMORY, records=1_000, tuning=Tuning.DEFAULTS)
    client = Aioproducer(kafka_cluster.bootstrap_servers, "t", settings)
    await client.start()
    run = await memory.memory(client, settings)
    values = {record.value for record in kafka_cluster.records("t", 0)}
    await client.close()
    assert len(values) == run.sent == 1_000
    assert {len(value or b"") for value in values} == {settings.value_bytes}
    assert len(run.series) == 1 + 10 + 1
    assert run.figures["kept_mib"] == run.series[-1][1] - run.series[0][1]
    assert run.figures["rss_mib"] >= max(mib for _, mib in run.series) - 1
