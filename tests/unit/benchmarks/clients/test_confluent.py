from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from benchmarks.clients.confluent import configuration, flush
from benchmarks.clients.confluent_aio import ConfluentAio
from benchmarks.clients.confluent_batch import ConfluentBatch
from benchmarks.clients.confluent_callback import ConfluentCallback
from benchmarks.payload import Window
from benchmarks.settings import Settings, Tuning, Work

SETTINGS = Settings(work=Work.BULK, linger_ms=5)


def test_equal_settings_use_librdkafkas_names() -> None:
    assert configuration("here:1", SETTINGS) == {
        "bootstrap.servers": "here:1",
        "compression.type": "none",
        "acks": "all",
        "enable.idempotence": True,
        "batch.size": 16_384,
        "linger.ms": 5,
    }


def test_partitioner_for_keys_is_that_of_the_jvm_client() -> None:
    assert configuration("here:1", replace(SETTINGS, keys=True))["partitioner"] == "murmur2_random"


def test_default_settings_leave_librdkafkas_defaults() -> None:
    settings = Settings(work=Work.BULK, keys=True, tuning=Tuning.DEFAULTS)
    assert configuration("here:1", settings) == {"bootstrap.servers": "here:1", "compression.type": "none"}


def test_best_settings_keep_the_guarantees_and_add_the_winner() -> None:
    found = {"batch_size": 100, "batch.size": 262_144}
    settings = Settings(work=Work.FIRE, tuning=Tuning.BEST, options=found)
    assert configuration("here:1", settings) == {
        "bootstrap.servers": "here:1",
        "compression.type": "none",
        "acks": "all",
        "enable.idempotence": True,
        "batch.size": 262_144,
    }
    assert ConfluentAio("here:1", "t", settings)._buffer() == {"batch_size": 100}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings(work=Work.CLOSED, tuning=Tuning.DEFAULTS), {}),
        (Settings(work=Work.CLOSED), {"batch_size": 1, "buffer_timeout": 0.1}),
        (SETTINGS, {"buffer_timeout": 0.1}),
    ],
)
def test_buffer_is_the_clients_own_unless_settings_are_equal(
    settings: Settings, expected: dict[str, float]
) -> None:
    assert ConfluentAio("here:1", "t", settings)._buffer() == expected


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
async def client(monkeypatch: pytest.MonkeyPatch) -> ConfluentBatch:
    return await started(monkeypatch, 10)


async def started(monkeypatch: pytest.MonkeyPatch, room: int) -> ConfluentBatch:
    """A client that assumes a queue of the given size."""
    monkeypatch.setattr("confluent_kafka.Producer", lambda _: SmallProducer())
    options = {"queue.buffering.max.messages": room}
    client = ConfluentBatch("here:1", "t", replace(SETTINGS, tuning=Tuning.BEST, options=options))
    await client.start()
    return client


async def test_bulk_waits_for_room_for_the_whole_call(client: ConfluentBatch) -> None:
    producer = cast("SmallProducer", client._producer)
    window = Window([b"%d" % number for number in range(7)], keys=[b"k"] * 7)
    await client.bulk(window)
    await client.bulk(window)
    assert producer.waits == 4
    assert producer.queued[-7:] == [{"value": b"%d" % number, "key": b"k"} for number in range(7)]


async def test_records_that_are_not_accepted_raise_buffer_error(monkeypatch: pytest.MonkeyPatch) -> None:
    client = await started(monkeypatch, 20)
    with pytest.raises(BufferError, match="only 10 of 12 records were taken"):
        await client.bulk(Window([b"v"] * 12))


class Reporting:
    """Producer with room for ten messages, which `poll` and `flush` deliver, except the failing ones."""

    def __init__(self, loses: int = 0, fails: int = 0) -> None:
        self.queued: list[Any] = []
        self.offset = 0
        self.loses, self.fails = loses, fails

    def produce(self, topic: str, value: bytes, key: bytes | None = None, **more: Any) -> None:
        if len(self.queued) == 10:
            raise BufferError
        self.queued.append(more["on_delivery"])

    def poll(self, timeout: float) -> int:
        for delivered in self.queued:
            offset = self.offset
            self.offset += 1
            if offset >= self.loses:
                delivered("lost" if offset < self.fails else None, Place(offset))
        self.queued.clear()
        return 0

    def flush(self, timeout: float) -> int:
        return self.poll(timeout)


class Place:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset


async def reporting(monkeypatch: pytest.MonkeyPatch, producer: Reporting) -> ConfluentCallback:
    monkeypatch.setattr("confluent_kafka.Producer", lambda _: producer)
    client = ConfluentCallback("here:1", "t", replace(SETTINGS, work=Work.FIRE))
    await client.start()
    return client


@pytest.mark.parametrize("keys", [None, [b"k"] * 7])
async def test_produce_with_callback_waits_for_every_outcome(
    keys: list[bytes] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, window = Reporting(), Window([b"v"] * 7, keys)
    client = await reporting(monkeypatch, producer)
    assert await client.outcomes(window) == [(3, offset) for offset in range(7)]
    await client.gather(window, 1_003)
    await client.callbacks(window)
    assert producer.offset == 7 + 1_003 + 7


@pytest.mark.parametrize(
    ("loses", "fails", "message"), [(1, 0, "1 records without an outcome"), (0, 2, "2 failed")]
)
async def test_outcome_that_is_missing_or_an_error_fails_the_run(
    loses: int, fails: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await reporting(monkeypatch, Reporting(loses, fails))
    with pytest.raises(RuntimeError, match=message):
        await client.fire(Window([b"v"] * 7))


def test_records_without_an_acknowledgement_raise_timeout_error() -> None:
    producer = SmallProducer()
    producer.queued = [{}, {}]
    with pytest.raises(TimeoutError, match="2 records are not acknowledged"):
        flush(producer)
