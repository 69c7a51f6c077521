"""A broker that throttles is left alone for as long; one that has done so before it answered is not (KIP-219)."""

from __future__ import annotations

import pytest

from tests.scenarios.story import TOPIC, now, producing, speak_no_newer, story


@pytest.mark.parametrize(
    ("version", "acknowledged_at", "next_at"), [(5, 2.0, 2.0), (6, 0.0, 2.0), (12, 0.0, 2.0)]
)
@story
async def test_the_pause_is_made_once_before_the_answer_or_after_it(
    monkeypatch: pytest.MonkeyPatch, version: int, acknowledged_at: float, next_at: float
) -> None:
    speak_no_newer(monkeypatch, produce=version)
    async with producing(linger_ms=0) as (producer, cluster):
        cluster.on("produce", topic=TOPIC).throttle(2_000)
        began_at = now()
        await producer.send(TOPIC, b"a")
        assert now() - began_at == pytest.approx(acknowledged_at)
        await producer.send(TOPIC, b"b")
        assert now() - began_at == pytest.approx(next_at)
        assert producer.metrics()["producer"]["produce_throttle_time_max"] == 2_000


@pytest.mark.parametrize(("version", "sent_at"), [(5, 0.0), (6, 2.0)])
@story
async def test_what_metadata_asks_for_holds_for_records_too(
    monkeypatch: pytest.MonkeyPatch, version: int, sent_at: float
) -> None:
    speak_no_newer(monkeypatch, metadata=version)
    async with producing(linger_ms=0) as (producer, cluster):
        cluster.on("metadata").throttle(2_000)
        await producer.partitions_for("another")
        answered_at = now()
        arrived = cluster.on("produce", topic=TOPIC)
        await producer.send(TOPIC, b"v")
        assert now() - answered_at == pytest.approx(sent_at)
        assert arrived.hits == 1
