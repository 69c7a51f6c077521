from __future__ import annotations

from typing import Any, cast

import pytest

from benchmarks.clients.confluent import configuration, flush
from benchmarks.clients.confluent_batch import ConfluentBatch
from benchmarks.payload import Window
from benchmarks.settings import Settings, Work

SETTINGS = Settings(work=Work.BULK, linger_ms=5)


def test_the_same_settings_in_librdkafkas_words() -> None:
    assert configuration("here:1", SETTINGS) == {
        "bootstrap.servers": "here:1",
        "compression.type": "none",
        "acks": "all",
        "enable.idempotence": True,
        "batch.size": 16_384,
        "linger.ms": 5,
    }


def test_keys_go_where_the_jvm_client_puts_them() -> None:
    settings = Settings(work=Work.BULK, keys=True, own_defaults=True)
    assert configuration("here:1", settings) == {
        "bootstrap.servers": "here:1",
        "compression.type": "none",
        "partitioner": "murmur2_random",
    }


class SmallProducer:
    """Has room for ten messages, and loses one to the broker with every poll."""

    def __init__(self) -> None:
        self.queued: list[dict[str, Any]] = []
        self.waits = 0

    def __len__(self) -> int:
        return len(self.queued)

    def produce_batch(self, topic: str, messages: list[dict[str, Any]]) -> int:
        taken = messages[: 10 - len(self.queued)]
        self.queued += taken
        return len(taken)

    def poll(self, timeout: float) -> int:
        if timeout:
            self.waits += 1
            self.queued.pop(0)
        return 0

    def flush(self, timeout: float) -> int:
        return len(self.queued)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> ConfluentBatch:
    monkeypatch.setattr("benchmarks.clients.confluent_batch.QUEUE_RECORDS", 10)
    client = ConfluentBatch("here:1", "t", SETTINGS)
    client._producer = SmallProducer()  # type: ignore[assignment]
    client._messages = {}
    return client


async def test_a_call_is_made_when_there_is_room_for_all_of_it(client: ConfluentBatch) -> None:
    producer = cast("SmallProducer", client._producer)
    window = Window([b"%d" % number for number in range(7)], keys=[b"k"] * 7)
    await client.bulk(window)
    await client.bulk(window)
    assert producer.waits == 4
    assert producer.queued[-7:] == [{"value": b"%d" % number, "key": b"k"} for number in range(7)]


async def test_what_is_not_taken_is_an_error(client: ConfluentBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.clients.confluent_batch.QUEUE_RECORDS", 20)
    with pytest.raises(BufferError, match="only 10 of 12 records were taken"):
        await client.bulk(Window([b"v"] * 12))


def test_what_is_never_acknowledged_is_an_error() -> None:
    producer = SmallProducer()
    producer.queued = [{}, {}]
    with pytest.raises(TimeoutError, match="2 records are not acknowledged"):
        flush(producer)
