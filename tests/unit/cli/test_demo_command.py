from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from rich.console import Console

from aioproducer import Producer
from aioproducer._core.records.decode import DecodedRecord
from aioproducer._topic_client import Client
from aioproducer.cli import demo_command
from aioproducer.cli.demo_command import (
    EVENTS_A_DAY,
    Check,
    DemoArguments,
    DemoOutcome,
    Events,
    Measured,
    ShowProgress,
    number_of,
    run,
    send_in_bulk,
    send_one_by_one,
)
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError, ConnectionFailed, InvalidRecord, SendManyError
from aioproducer.testing import Cluster
from aioproducer.types import RecordMetadata
from tests.cases import for_each

DAY = EVENTS_A_DAY


def test_event_is_numbered_json_keyed_by_its_customer() -> None:
    events = Events.load(DAY)
    assert len(events) == len(events.keys) == DAY
    for number, (key, value) in enumerate(zip(events.keys, events.values, strict=True)):
        told = json.loads(value)
        assert told["number"] == number == number_of(value)
        assert told["customer"].encode() == key


def test_repeated_day_has_unique_events() -> None:
    events = Events.load(2 * DAY + 1)
    first, second = (json.loads(events.values[number]) for number in (7, DAY + 7))
    assert second | {"number": 7} == first
    assert events.keys[:DAY] == events.keys[DAY:-1]
    assert len(set(events.values)) == len(events)


def test_demo_data_has_variety_and_size() -> None:
    events = Events.load(DAY)
    kinds = Counter(json.loads(value)["event"] for value in events.values)
    assert len(kinds) >= 10
    assert len(set(events.keys)) >= 200
    assert 300 * 1024 < sum(map(len, events.values)) < 600 * 1024


def test_part_of_events_has_requested_numbers() -> None:
    part = Events.load(20).part(5, 8)
    assert list(map(number_of, part.values)) == [5, 6, 7]
    assert len(part.keys) == 3


@for_each(
    "value", [None, b"", b"{}", b'{"number":}', b'{"number":-1,', b'x{"number":1,"a":2}', b'{"number":1}']
)
def test_foreign_record_has_no_number(value: bytes | None) -> None:
    assert number_of(value) == -1


KEYS = [b"ada", b"bob", b"ada", b"ada"]
EVENTS = Events(keys=KEYS, values=[b'{"number":%d,"event":"x"}' % number for number in range(len(KEYS))])
WHERE = [(0, 10), (1, 20), (0, 11), (0, 12)]
"""Partition and offset of each."""


def record(number: int, *, offset: int | None = None, key: bytes | None = None) -> DecodedRecord:
    offset = WHERE[number][1] if offset is None else offset
    return DecodedRecord(offset, 0, key or KEYS[number], EVENTS.values[number], ())


def flaws(
    by_partition: Mapping[int, Sequence[DecodedRecord]], *, acknowledged_offsets: bool = True
) -> dict[str, int]:
    acknowledged = [
        RecordMetadata("t", partition, offset if acknowledged_offsets else -1, 0, log_append_time=False)
        for partition, offset in WHERE
    ]
    check = Check(EVENTS, acknowledged)
    for partition, records in by_partition.items():
        check.add(partition, records)
    assert check.records_read == sum(map(len, by_partition.values()))
    return check.flaws()


def test_equal_records_have_no_flaws() -> None:
    assert flaws({0: [record(0), record(2), record(3)], 1: [record(1)]}) == {}


def test_record_of_unknown_offset_may_be_anywhere() -> None:
    by_partition = {0: [record(0), record(2), record(3, offset=99)], 1: [record(1)]}
    assert flaws(by_partition, acknowledged_offsets=False) == {}
    assert flaws(by_partition) == {"not where acknowledged": 1}


@for_each(
    ("by_partition", "found"),
    [
        ({0: [record(0)], 1: [record(1)]}, {"lost": 2}),
        ({}, {"lost": 4}),
        ({0: [record(0), record(2), record(3), record(3, offset=13)], 1: [record(1)]}, {"doubled": 1}),
        ({0: [record(0), record(2), record(3)], 1: [record(1)] * 300}, {"doubled": 299}),
        ({0: [record(2), record(0), record(3)], 1: [record(1)]}, {"out of order": 1}),
        (
            {0: [record(0), record(2)], 1: [record(1), record(3)]},
            {"not where acknowledged": 1, "out of order": 1},
        ),
        ({0: [record(0), record(2), record(3, key=b"eve")], 1: [record(1)]}, {"altered": 1}),
        (
            {
                0: [record(0), record(2), record(3)._replace(value=b'{"number":3,"event":"y"}')],
                1: [record(1)],
            },
            {"altered": 1},
        ),
        (
            {
                0: [record(0), record(2), record(3)],
                1: [record(1), record(1)._replace(value=b"hello"), record(1)._replace(value=b'{"number":4,')],
            },
            {"never sent": 2},
        ),
    ],
)
def test_every_flaw_is_counted(
    by_partition: Mapping[int, Sequence[DecodedRecord]], found: dict[str, int]
) -> None:
    assert flaws(by_partition) == found


CLICKS = Events.load(60)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(topics={"clicks": 2}, transport="memory") as cluster:
        yield cluster


@pytest.fixture
async def producer(cluster: Cluster) -> AsyncIterator[Producer]:
    async with Producer(cluster.bootstrap_servers, linger_ms=1, compression_type="zstd") as producer:
        yield producer


def measured(latencies_s: list[float]) -> Measured:
    return Measured(
        seconds=1.0,
        batches=1,
        bytes_before_compression=300,
        bytes_sent=100,
        acknowledged=[],
        latencies_s=latencies_s,
    )


def everything(cluster: Cluster) -> dict[tuple[int, int], bytes | None]:
    return {
        (partition, record.offset): record.value
        for partition in range(2)
        for record in cluster.records("clicks", partition)
    }


@pytest.mark.parametrize("send", [send_one_by_one, send_in_bulk])
async def test_all_events_are_acknowledged_in_order(
    cluster: Cluster, producer: Producer, send: Callable[[Producer, str, Events], Awaitable[Measured]]
) -> None:
    part = await send(producer, "clicks", CLICKS)
    assert part.records == len(CLICKS) == len(part.acknowledged)
    in_log = everything(cluster)
    assert [in_log[where.partition, where.offset] for where in part.acknowledged] == CLICKS.values
    assert part.seconds > 0


async def test_measured_counts_cover_one_part(cluster: Cluster, producer: Producer) -> None:
    await send_in_bulk(producer, "clicks", CLICKS.part(0, 20))
    batches_before = sum(len(cluster.batches("clicks", partition)) for partition in range(2))
    part = await send_in_bulk(producer, "clicks", CLICKS.part(20, 60))
    batches = [batch for partition in range(2) for batch in cluster.batches("clicks", partition)]
    assert part.batches == len(batches) - batches_before
    counted = producer.metrics()["producer"]
    assert 0 < part.bytes_sent < counted["bytes_delivered"]
    assert part.bytes_sent < part.bytes_before_compression < counted["bytes_before_compression"]


async def test_calls_are_timed_when_sent_one_by_one(producer: Producer) -> None:
    part = await send_one_by_one(producer, "clicks", CLICKS, tasks=7)
    assert len(part.latencies_s) == len(CLICKS)
    assert list(part.latencies_s) == sorted(part.latencies_s)
    assert 0 < part.latencies_s[0] <= part.latencies_s[-1] < part.seconds


async def test_requested_number_of_tasks_waits(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    send = producer.send
    waiting: list[int] = [0]

    async def counted_send(topic: str, value: bytes, key: bytes) -> RecordMetadata:
        waiting.append(waiting[-1] + 1)
        acknowledged = await send(topic, value, key)
        waiting.append(waiting[-1] - 1)
        return acknowledged

    monkeypatch.setattr(producer, "send", counted_send)
    await send_one_by_one(producer, "clicks", CLICKS, tasks=7)
    assert max(waiting) == 7


async def test_first_failure_is_raised_without_group(cluster: Cluster, producer: Producer) -> None:
    cluster.on("produce", times=None).answer(InvalidRecord)
    with pytest.raises(InvalidRecord):
        await send_one_by_one(producer, "clicks", CLICKS)
    with pytest.raises(SendManyError):
        await send_in_bulk(producer, "clicks", CLICKS)


@for_each(
    ("share", "latency_s"), [(0.001, 1.0), (0.25, 1.0), (0.5, 2.0), (0.51, 3.0), (0.99, 4.0), (1.0, 4.0)]
)
def test_percentile_is_a_measured_latency(share: float, latency_s: float) -> None:
    assert measured([1.0, 2.0, 3.0, 4.0]).latency_s(share) == latency_s
    assert measured([4.0]).latency_s(share) == 4.0


def test_compression_ratio_compares_records_and_batches() -> None:
    assert measured([]).compression_ratio == 3.0


RECORDS = 400


class Followed:
    """Progress shown while the demo ran."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int, int, int]] = []

    @asynccontextmanager
    async def __call__(self, what: str, total: int, done: Callable[[], int]) -> AsyncIterator[None]:
        before = done()
        yield
        self.stages.append((what, total, before, done()))


async def demo(servers: str | None = None, *, compression: str = "zstd") -> DemoOutcome:
    config = None if servers is None else ProducerConfig(bootstrap_servers=servers)
    return await run(
        DemoArguments(config, records=RECORDS, partitions=3, compression=compression), Followed()
    )


async def test_every_record_is_sent_once_and_read_back() -> None:
    followed = Followed()
    outcome = await run(DemoArguments(None, records=RECORDS, partitions=3, compression="lz4"), followed)
    assert outcome.flaws == {}
    assert outcome.records_read == RECORDS
    assert outcome.warm_up.records == 4
    assert outcome.one_by_one.records == 100
    assert outcome.in_bulk.records == 296
    assert len(outcome.one_by_one.latencies_s) == 100
    assert outcome.in_bulk.compression_ratio > 1
    assert followed.stages == [("sending", RECORDS, 0, RECORDS), ("reading back", RECORDS, 0, RECORDS)]


async def test_demo_creates_topic_per_run_on_cluster() -> None:
    async with Cluster(2, transport="memory") as cluster:
        first = await demo(cluster.bootstrap_servers)
        second = await demo(cluster.bootstrap_servers)
        assert first.topic != second.topic
        for outcome in (first, second):
            assert outcome.topic.startswith("aioproducer-demo-")
            assert sum(len(cluster.records(outcome.topic, each)) for each in range(3)) == RECORDS
            assert outcome.flaws == {}


async def test_demo_finds_lost_records(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Client.read

    async def read_all_but_one(self: Client, topic: str) -> AsyncIterator[tuple[int, list[DecodedRecord]]]:
        async for partition, records in read(self, topic):
            yield partition, records[1:] if partition == 0 else records

    monkeypatch.setattr(Client, "read", read_all_but_one)
    outcome = await demo()
    assert outcome.flaws["lost"] >= 1
    assert outcome.flaws["lost"] == RECORDS - outcome.records_read


async def test_demo_fails_without_cluster() -> None:
    with pytest.raises(ConnectionFailed, match="nowhere"):
        await demo("nowhere.invalid:9092")


async def test_demo_refuses_unknown_codec() -> None:
    with pytest.raises(ConfigError, match=r"compression\.type"):
        await demo(compression="zip")


PLAN = DemoArguments(None, records=60, partitions=6, compression="zstd")
ACKNOWLEDGED = RecordMetadata("t", 0, 0, 0, log_append_time=False)


def part(records: int, seconds: float, *, latencies_s: tuple[float, ...] = ()) -> Measured:
    return Measured(
        seconds=seconds,
        batches=4,
        bytes_before_compression=4_500,
        bytes_sent=1_000,
        acknowledged=[ACKNOWLEDGED] * records,
        latencies_s=latencies_s,
    )


OUTCOME = DemoOutcome(
    arguments=PLAN,
    config=ProducerConfig(bootstrap_servers="a:1", compression_type="zstd"),
    topic="aioproducer-demo-1f",
    warm_up=part(2, 0.5),
    one_by_one=part(10, 0.004, latencies_s=(0.001, 0.0012, 0.25)),
    in_bulk=part(48, 0.002),
    records_read=60,
    seconds_reading=1.25,
    flaws={},
)


class Terminal(io.StringIO):
    """File that is a terminal."""

    def isatty(self) -> bool:
        return True


async def reported(
    monkeypatch: pytest.MonkeyPatch, outcome: DemoOutcome, *, terminal: bool = False
) -> tuple[bool, str]:
    async def run(arguments: DemoArguments, show_progress: ShowProgress) -> DemoOutcome:
        assert arguments is outcome.arguments
        async with show_progress("sending", 60, lambda: 45):
            await asyncio.sleep(0)  # the bar's turn
        return outcome

    monkeypatch.setattr(demo_command, "run", run)
    screen = Terminal() if terminal else io.StringIO()
    console = Console(file=screen, width=300, force_terminal=terminal, highlight=False)
    return await demo_command.run_and_report(outcome.arguments, console), screen.getvalue()


async def test_demo_table_has_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    good, text = await reported(monkeypatch, OUTCOME)
    assert good
    rows = {line[:17].strip(): line[17:].split() for line in text.splitlines()}
    assert rows["records"] == ["10", "48"]
    assert rows["seconds"] == ["0.00", "0.00"]
    assert rows["records/s"] == ["2,500", "24,000"]
    assert rows["latency p50"] == ["1.2", "ms", "-"]
    assert rows["latency p99"] == ["250.0", "ms", "-"]
    assert rows["batches"] == ["4", "4"]
    assert rows["records per batch"] == ["2.5", "12.0"]
    assert rows["compression ratio"] == ["4.5", "4.5"]
    assert "60 events of a shop's click stream to 3 brokers in this process\n" in text
    assert "6 partitions, keyed by customer, acks=all, linger_ms=5, compression_type=zstd" in text
    assert "the 2 records that were sent before" in text
    assert "The brokers share this process" in text
    assert "Read back 60 records in 1.25 s: each is in the topic once, unaltered, in order of its key" in text
    assert "\x1b" not in text, "no colours and no bars without a terminal"


async def test_demo_fails_with_counts_of_flaws(monkeypatch: pytest.MonkeyPatch) -> None:
    flawed = replace(OUTCOME, records_read=58, flaws={"lost": 2, "out of order": 1_000})
    good, text = await reported(monkeypatch, flawed)
    assert not good
    assert text.endswith("Read back 58 records in 1.25 s: FAILED, 2 lost, 1,000 out of order\n")
    assert "each is in the topic once" not in text


async def test_demo_names_remaining_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ProducerConfig(bootstrap_servers="a:1,b:1")
    arguments = replace(PLAN, config=config, partitions=1)
    _, text = await reported(monkeypatch, replace(OUTCOME, arguments=arguments, config=config))
    assert "click stream to a:1,b:1\n" in text
    assert "1 partition, keyed" in text
    assert "Topic aioproducer-demo-1f stays on the cluster." in text
    assert "in this process" not in text


async def test_demo_shows_progress_on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = await reported(monkeypatch, OUTCOME, terminal=True)
    assert "sending" in text
    assert "45/60" in text
