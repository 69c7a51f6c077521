"""`aioproducer demo`: send a click stream, measure it, read it back, and check every record."""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from time import perf_counter
from typing import Any, Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from aioproducer._core.records.decode import DecodedRecord
from aioproducer._topic_client import Client
from aioproducer.cli.output import ACCELERATION, escaping, on_terminal, plain_table, show_table
from aioproducer.config import ProducerConfig
from aioproducer.producer import Producer
from aioproducer.testing import Cluster
from aioproducer.types import RecordMetadata

EVENTS_A_DAY: Final = 2_400
_KINDS: Final = {
    "product_viewed": 40,
    "searched": 20,
    "category_viewed": 10,
    "added_to_cart": 9,
    "removed_from_cart": 2,
    "checkout_started": 3,
    "order_placed": 2,
    "payment_captured": 2,
    "payment_declined": 1,
}
"""Relative frequency of each event after the start of a session."""
_PRODUCTS: Final = (
    ("TA-4001", "Dinner plate, stoneware", "tableware", 12.9),
    ("BK-5001", "Bread from a small kitchen", "books", 18.9),
    ("CF-3010", "Coffee grinder, ceramic", "coffee", 49.0),
    ("GA-2044", "Watering can, 5 l", "garden", 27.8),
    ("LI-1102", "Table cloth, linen", "textiles", 64.5),
    ("KN-7003", "Kitchen knife, 16 cm", "knives", 39.9),
)
_CITIES: Final = (("Lyon", "FR"), ("Århus", "DK"), ("Köln", "DE"), ("Gent", "BE"), ("Graz", "AT"))
_NUMBER = re.compile(rb'\{"number":(\d{1,9}),')


@dataclass(frozen=True, slots=True)
class Events:
    """Records as columns: JSON values, and the ids of their customers as keys."""

    keys: list[bytes]
    values: list[bytes]

    def __len__(self) -> int:
        return len(self.values)

    def part(self, start: int, stop: int) -> Events:
        """Return the events from number *start* to before *stop*."""
        return Events(self.keys[start:stop], self.values[start:stop])

    @classmethod
    def load(cls, count: int) -> Self:
        """Return *count* events of a day that repeats; numbers from 0 on make the values differ."""
        day = _day()
        return cls(
            keys=[event["customer"].encode() for event in islice(cycle(day), count)],
            values=[
                json.dumps({"number": number, **event}, separators=(",", ":")).encode()
                for number, event in enumerate(islice(cycle(day), count))
            ],
        )


def _day() -> list[dict[str, Any]]:
    """Return the events of one day of a shop, equal in every run."""
    rng, at = random.Random(1), datetime(2024, 9, 17, tzinfo=UTC)
    events: list[dict[str, Any]] = []
    while len(events) < EVENTS_A_DAY:
        city, country = rng.choice(_CITIES)
        session = {
            "customer": f"c-{rng.randrange(1_000):05}",
            "session": f"{rng.getrandbits(40):010x}",
            "city": city,
            "country": country,
        }
        kinds = rng.choices(tuple(_KINDS), tuple(_KINDS.values()), k=rng.randint(2, 12))
        for kind in ("session_started", *kinds):
            at += timedelta(milliseconds=rng.randrange(70_000))
            when = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            product = dict(zip(("sku", "name", "category", "price"), rng.choice(_PRODUCTS), strict=True))
            events.append({"event": kind, "at": when, **session, **product, "quantity": rng.randint(1, 3)})
    return events[:EVENTS_A_DAY]


def number_of(value: bytes | None) -> int:
    """Return the number of an event; -1 for a record of another producer."""
    match = _NUMBER.match(value or b"")
    return int(match[1]) if match else -1


class Check:
    """Comparison of the records read with the events sent and their acknowledgements.

    Records must be passed partition by partition, in order of offset; events were sent in order of their numbers.
    """

    def __init__(self, events: Events, acknowledged: Sequence[RecordMetadata]) -> None:
        self.records_read: int = 0
        self._events = events
        self._acknowledged = acknowledged
        self._times_seen = bytearray(len(events))  # capped at 255
        self._last: dict[bytes, tuple[int, int]] = {}  # by key: partition and number
        self._flaws: Counter[str] = Counter()

    def add(self, partition: int, records: Sequence[DecodedRecord]) -> None:
        """Check the next records of *partition*."""
        self.records_read += len(records)
        for record in records:
            number = number_of(record.value)
            if not 0 <= number < len(self._events):
                self._flaws["never sent"] += 1
                continue
            self._times_seen[number] = min(self._times_seen[number] + 1, 255)
            if self._times_seen[number] > 1:
                self._flaws["doubled"] += 1
                continue
            key = self._events.keys[number]
            if record.value != self._events.values[number] or record.key != key:
                self._flaws["altered"] += 1
            where = self._acknowledged[number]
            if partition != where.partition or where.offset not in {-1, record.offset}:
                self._flaws["not where acknowledged"] += 1
            last_partition, last_number = self._last.get(key, (partition, -1))
            if partition != last_partition or number < last_number:
                self._flaws["out of order"] += 1
            self._last[key] = partition, number

    def flaws(self) -> dict[str, int]:
        """Return the number of records with each flaw, after all records; empty without flaws."""
        lost = self._times_seen.count(0)
        return {**({"lost": lost} if lost else {}), **self._flaws}


TASKS: Final = 256
"""Number of concurrent tasks, as in a service with this number of concurrent requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Figures of one part of the run, from the first call to the last acknowledgement."""

    seconds: float
    batches: int
    bytes_before_compression: int
    bytes_sent: int
    acknowledged: list[RecordMetadata] = field(repr=False)
    """In the order of the events."""
    latencies_s: Sequence[float] = field(default=(), repr=False)
    """Latency of each call, from the shortest to the longest."""

    @property
    def records(self) -> int:
        """Number of records, all acknowledged."""
        return len(self.acknowledged)

    @property
    def compression_ratio(self) -> float:
        """Size of the records divided by the size of the batches."""
        return self.bytes_before_compression / self.bytes_sent

    def latency_s(self, share: float) -> float:
        """Return the latency that *share* (above 0, up to 1) of the calls did not exceed."""
        return self.latencies_s[math.ceil(share * len(self.latencies_s)) - 1]


async def send_one_by_one(producer: Producer, topic: str, events: Events, *, tasks: int = TASKS) -> Measured:
    """Send the events by *tasks* tasks, each of which waits for its acknowledgement before the next event.

    Raises: ProducerError: the first error; the other tasks are cancelled.
    """
    events_left = enumerate(zip(events.keys, events.values, strict=True))
    acknowledged: dict[int, RecordMetadata] = {}
    latencies_s: list[float] = []

    async def send_next() -> None:
        for index, (key, value) in events_left:
            began = perf_counter()
            acknowledged[index] = await producer.send(topic, value, key)
            latencies_s.append(perf_counter() - began)

    async def send_all() -> list[RecordMetadata]:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(tasks):
                    group.create_task(send_next())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [acknowledged[index] for index in range(len(events))]

    measured = await _measured(producer, send_all())
    return replace(measured, latencies_s=sorted(latencies_s))


async def send_in_bulk(producer: Producer, topic: str, events: Events) -> Measured:
    """Send *events* with one call. Raises: SendManyError."""

    async def send_all() -> list[RecordMetadata]:
        result = await producer.send_many(topic, events.values, keys=events.keys)
        return [each for each in result if isinstance(each, RecordMetadata)]

    return await _measured(producer, send_all())


async def _measured(producer: Producer, sending: Awaitable[list[RecordMetadata]]) -> Measured:
    before, began = producer.metrics()["producer"], perf_counter()
    acknowledged = await sending
    seconds, after = perf_counter() - began, producer.metrics()["producer"]
    names = "batches_delivered", "bytes_before_compression", "bytes_delivered"
    batches, bytes_before_compression, bytes_sent = (int(after[name] - before[name]) for name in names)
    return Measured(
        seconds=seconds,
        batches=batches,
        bytes_before_compression=bytes_before_compression,
        bytes_sent=bytes_sent,
        acknowledged=acknowledged,
    )


BROKERS: Final = 3
"""Number of brokers of the cluster in this process."""

ShowProgress = Callable[[str, int, Callable[[], int]], AbstractAsyncContextManager[None]]
"""Context manager that shows progress: label, total, and a function that returns the count."""


@dataclass(frozen=True, slots=True)
class DemoArguments:
    """Arguments of a run."""

    config: ProducerConfig | None
    """Configuration for a Kafka cluster; None: a cluster in this process."""
    _: KW_ONLY
    records: int
    partitions: int
    compression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOutcome:
    """Results of a run."""

    arguments: DemoArguments
    config: ProducerConfig
    topic: str
    warm_up: Measured
    """Figures of the first records, which wait for connections and the producer id."""
    one_by_one: Measured
    in_bulk: Measured
    records_read: int
    seconds_reading: float
    flaws: dict[str, int]


async def run(arguments: DemoArguments, show_progress: ShowProgress) -> DemoOutcome:
    """Run the demo. Raises: ProducerError: the cluster cannot be used, or a record was not acknowledged."""
    events = Events.load(arguments.records)
    warm_up = arguments.records // 100
    one_by_one_until = warm_up + arguments.records // 4
    topic = f"aioproducer-demo-{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:
        config = arguments.config
        if config is None:
            cluster = await stack.enter_async_context(Cluster(BROKERS))
            config = ProducerConfig.from_mapping(
                {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": arguments.compression}
            )
        producer = await stack.enter_async_context(Producer.from_config(config))
        client = await stack.enter_async_context(Client(config))
        await client.create_topic(topic, arguments.partitions)

        def delivered() -> int:
            return int(producer.metrics()["producer"]["records_delivered"])

        async with show_progress("sending", arguments.records, delivered):
            first = await send_in_bulk(producer, topic, events.part(0, warm_up))
            one_by_one = await send_one_by_one(producer, topic, events.part(warm_up, one_by_one_until))
            in_bulk = await send_in_bulk(producer, topic, events.part(one_by_one_until, arguments.records))
        check = Check(events, first.acknowledged + one_by_one.acknowledged + in_bulk.acknowledged)
        began = perf_counter()
        async with show_progress("reading back", arguments.records, lambda: check.records_read):
            async for partition, records in client.read(topic):
                check.add(partition, records)
        return DemoOutcome(
            arguments=arguments,
            config=config,
            topic=topic,
            warm_up=first,
            one_by_one=one_by_one,
            in_bulk=in_bulk,
            records_read=check.records_read,
            seconds_reading=perf_counter() - began,
            flaws=check.flaws(),
        )


REFRESH_S: Final = 0.1
NOTHING: Final = "-"


async def run_and_report(arguments: DemoArguments, console: Console | None = None) -> bool:
    """Run and show the demo; return True if every record was read back without a flaw."""
    console = console or escaping(Console(highlight=False))

    @asynccontextmanager
    async def show_progress(what: str, total: int, done: Callable[[], int]) -> AsyncIterator[None]:
        columns = TextColumn(f"{what:<13}"), BarColumn(), MofNCompleteColumn()
        shown = on_terminal(console)
        with Progress(
            *columns, console=console, transient=True, auto_refresh=False, disable=not shown
        ) as bar:
            task = bar.add_task(what, total=total)

            async def refresh() -> None:
                while True:
                    bar.update(task, completed=done(), refresh=True)
                    await asyncio.sleep(REFRESH_S)

            refreshing = asyncio.create_task(refresh())
            try:
                yield
            finally:
                refreshing.cancel()
                await asyncio.wait([refreshing])

    outcome = await run(arguments, show_progress)
    console.print(_headline(outcome))
    show_table(console, _table(outcome))
    console.print(_notes(outcome), _verdict(outcome), sep="\n")
    return not outcome.flaws


def _headline(outcome: DemoOutcome) -> Text:
    arguments, config = outcome.arguments, outcome.config
    where = (
        f"{BROKERS} brokers in this process"
        if arguments.config is None
        else ",".join(config.bootstrap_servers)
    )
    return Text.assemble(
        (f"{arguments.records:,} events of a shop's click stream to {where}\n", "bold"),
        f"topic {outcome.topic}, {arguments.partitions} partition{'s' * (arguments.partitions > 1)}, keyed by customer, ",
        f"acks={config.acks}, linger_ms={config.linger_ms:g}, compression_type={config.compression_type}, {ACCELERATION}\n",
    )


def _table(outcome: DemoOutcome) -> Table:
    parts = outcome.one_by_one, outcome.in_bulk
    table = plain_table()
    table.add_column("")
    table.add_column(f"await send()\n{TASKS} tasks at a time", justify="right")
    table.add_column("await send_many()\none call", justify="right")
    rows: dict[str, Callable[[Measured], str]] = {
        "records": lambda part: f"{part.records:,}",
        "seconds": lambda part: f"{part.seconds:.2f}",
        "records/s": lambda part: f"{part.records / part.seconds:,.0f}",
        "latency p50": lambda part: _latency(part, 0.50),
        "latency p99": lambda part: _latency(part, 0.99),
        "batches": lambda part: f"{part.batches:,}",
        "records per batch": lambda part: f"{part.records / part.batches:,.1f}",
        "compression ratio": lambda part: f"{part.compression_ratio:.1f}",
    }
    for name, cell in rows.items():
        style = "bold green" if name == "records/s" else ""
        table.add_row(Text(name), *(Text(cell(part), style=style) for part in parts))
    return table


def _latency(part: Measured, share: float) -> str:
    return f"{part.latency_s(share) * 1000:.1f} ms" if part.latencies_s else NOTHING


def _notes(outcome: DemoOutcome) -> Text:
    whose = (
        "The brokers share this process and its event loop: the figures include their work."
        if outcome.arguments.config is None
        else f"Topic {outcome.topic} stays on the cluster."
    )
    return Text(
        "\nLatency is from the call to its return with the acknowledgement, lingering included. Not in the table: "
        f"the {outcome.warm_up.records:,} records that were sent before, to open the connections. {whose}\n"
    )


def _verdict(outcome: DemoOutcome) -> Text:
    read = f"Read back {outcome.records_read:,} records in {outcome.seconds_reading:.2f} s: "
    if outcome.flaws:
        flaws = ", ".join(f"{count:,} {flaw}" for flaw, count in outcome.flaws.items())
        return Text.assemble(read, (f"FAILED, {flaws}", "bold red"))
    found = "each is in the topic once, unaltered, in order of its key, at the offset that was acknowledged"
    return Text.assemble(read, (found, "bold green"))
