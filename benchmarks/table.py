"""The rows of the tables. Runs, output, results, verdicts and plots use only these declarations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from benchmarks.clients import JVM, OURS
from benchmarks.row import Row, Target
from benchmarks.settings import Settings, Tuning, Work

NOWAIT: Final = "aioproducer-nowait"
LINGER_0: Final = "aioproducer-linger-0"
RACK_AWARE: Final = "aioproducer-rack-aware"
COMPAT: Final = "aioproducer-door"
"""aioproducer through `aioproducer.compat.aiokafka`."""
AIOKAFKA: Final = "aiokafka"
BATCH: Final = "confluent-batch"
PRODUCE: Final = "confluent-produce"
CALLBACK: Final = "confluent-callback"
"""`produce` with `on_delivery`, which reports each record's outcome; `produce` alone reports none."""
AIO: Final = "confluent-aio"
KAFKA_PYTHON: Final = "kafka-python"

CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
MEASURED_CODECS: Final = ("gzip", "lz4", "zstd")
"""Codecs with a row of their own."""
MEMORY_RECORDS: Final = 1_000_000
LAG_VALUE_BYTES: Final = 10_240
"""Value size, in bytes: 256 values exceed 2 MiB, so the compressor is always busy."""
CLOSED_LASTS: Final = 2
"""Duration factor for 256 tasks: the result of one second on a new topic depends more on the broker than on the
client."""
LINGER_MS: Final = 5
"""Linger of workloads that do not await each record, in milliseconds."""
STEADY_RATE: Final = 1_000
SLOW_BROKER_RATE: Final = 4_000
"""Records per second. Every client reaches this rate with half a core idle."""
SLOW_BROKER_MS: Final = 100
FULL_MEMORY_MS: Final = 200
"""Delay of each Produce request at which `buffer_memory` is full nearly all the time."""
SLOW_BROKER_WARM_UP_S: Final = 2.0
"""Warm-up until the queues reach their final length and the JVM client's just-in-time compiler has compiled the
code."""
TRANSACTIONS_WARM_UP_S: Final = 3.0
"""Warm-up of all clients. The JVM client's just-in-time compiler needs this time."""


EQUAL: Final = (Tuning.EQUAL,)
AT_BEST: Final = (Tuning.BEST,)
AT_DEFAULTS: Final = (Tuning.DEFAULTS,)
REAL: Final = (Tuning.DEFAULTS, Tuning.BEST)
"""Tables of realistic configurations: defaults and tuned."""


def _awaited() -> Iterator[Row]:
    closed = Settings(work=Work.CLOSED)
    whole = replace(closed, keys=True, headers=True)
    yield Row(
        name="closed",
        title="256 tasks, each awaiting send",
        settings=closed,
        clients=(OURS, AIOKAFKA, AIO),
        targets=(
            Target(tuning=Tuning.BEST, figure="records_s", against=AIOKAFKA, must=4.5, goal=6),
            Target(figure="records_s", against=AIOKAFKA, must=2.5, goal=4),
            Target(figure="p99_ms", against=AIOKAFKA, must=1),
        ),
        quick=True,
        lasts=CLOSED_LASTS,
    )
    yield Row(
        name="closed-headers",
        title="256 tasks, each awaiting send, with key and 2 headers",
        settings=whole,
        clients=(OURS, AIOKAFKA),
        tunings=REAL,
        targets=(Target(tuning=Tuning.BEST, figure="records_s", against=AIOKAFKA, must=3.5, goal=5),),
        lasts=CLOSED_LASTS,
    )
    yield Row(
        name="closed-uvloop",
        title="256 tasks, each awaiting send, on uvloop",
        settings=replace(closed, uvloop=True),
        clients=(OURS, AIOKAFKA, AIO),
        tunings=AT_BEST,
        tuned_as="closed",
        targets=(
            Target(tuning=Tuning.BEST, figure="records_s", against=AIOKAFKA, must=4, goal=5),
            Target(tuning=Tuning.BEST, figure="p99_ms", against=AIOKAFKA, must=1),
        ),
        lasts=CLOSED_LASTS,
    )
    yield Row(
        name="closed-tls",
        title="256 tasks, each awaiting send, over TLS",
        settings=replace(closed, tls=True),
        clients=(OURS, AIOKAFKA, AIO),
        tunings=EQUAL,
        targets=(Target(figure="records_s", against=AIOKAFKA, must=2),),
        lasts=CLOSED_LASTS,
    )
    yield Row(
        name="lone",
        title="one task, awaiting send",
        settings=Settings(work=Work.LONE),
        clients=(OURS, AIOKAFKA, AIO, KAFKA_PYTHON),
        targets=(
            Target(tuning=Tuning.DEFAULTS, figure="p50_ms", against=AIOKAFKA, must=0.7, goal=0.6),
            Target(figure="p50_ms", against=AIOKAFKA, must=0.65, goal=0.55),
        ),
        quick=True,
    )
    yield Row(
        name="transactions",
        title="transactions of 10 records with keys, one after the other",
        settings=Settings(work=Work.TRANSACTIONS, keys=True, warm_up_s=TRANSACTIONS_WARM_UP_S),
        clients=(OURS, AIOKAFKA, PRODUCE, JVM),
        tunings=EQUAL,
        targets=(
            Target(figure="records_s", against=AIOKAFKA, must=1.2, goal=2),
            Target(figure="records_s", against=PRODUCE, must=1, goal=1.3),
            Target(figure="records_s", against=JVM, must=1, goal=1.3),
        ),
        lasts=2,
    )


def _next_to_produce(*, must: float, goal: float, cpu_goal: float) -> Iterator[Target]:
    """Yield the targets against `produce` with default settings: throughput, and CPU of at most 1×."""
    yield Target(tuning=Tuning.DEFAULTS, figure="records_s", against=PRODUCE, must=must, goal=goal)
    yield Target(tuning=Tuning.DEFAULTS, figure="cpu_us", against=PRODUCE, must=1, goal=cpu_goal)


def _with_outcomes() -> Iterator[Row]:
    """Yield the rows with a callback per record, and with one gather of all Futures."""
    callbacks = Settings(work=Work.CALLBACKS, linger_ms=LINGER_MS)
    for name, title, settings, goal in (
        ("callbacks", "windows of 10,000, a callback per record", callbacks, 1.8),
        (
            "callbacks-headers",
            "windows of 10,000 with key and 2 headers, a callback per record",
            replace(callbacks, keys=True, headers=True),
            2,
        ),
    ):
        yield Row(
            name=name,
            title=title,
            settings=settings,
            clients=(OURS, AIOKAFKA, CALLBACK),
            tunings=AT_DEFAULTS,
            targets=(Target(tuning=Tuning.DEFAULTS, figure="records_s", against=CALLBACK, goal=goal),),
        )
    gather = Settings(work=Work.GATHER, linger_ms=LINGER_MS)
    large = replace(gather, value_bytes=1024)
    next_to_aiokafka = Target(tuning=Tuning.DEFAULTS, figure="records_s", against=AIOKAFKA, must=3.5, goal=5)
    next_to_callback = replace(next_to_aiokafka, against=CALLBACK, must=0.9, goal=1.2)
    for name, title, settings, target in (
        ("gather", "", gather, next_to_aiokafka),
        (
            "gather-headers",
            " with key and 2 headers",
            replace(gather, keys=True, headers=True),
            next_to_aiokafka,
        ),
        ("gather-1k", " of 1 KiB", large, next_to_callback),
        (
            "gather-zstd",
            " of JSON, 1 KiB, zstd",
            replace(large, json_like=True, compression="zstd"),
            next_to_callback,
        ),
    ):
        yield Row(
            name=name,
            title=f"100,000 records{title} by send_nowait, then one asyncio.gather",
            settings=settings,
            clients=(OURS, target.against),
            tunings=AT_DEFAULTS,
            targets=(target,),
        )


def _handed_over() -> Iterator[Row]:
    fire = Settings(work=Work.FIRE, linger_ms=LINGER_MS)
    yield Row(
        name="fire",
        title="windows of 10,000, then each Future awaited",
        settings=fire,
        clients=(OURS, NOWAIT, AIOKAFKA, AIO, PRODUCE, CALLBACK),
        targets=(
            *_next_to_produce(must=1.2, goal=1.6, cpu_goal=0.65),
            Target(tuning=Tuning.DEFAULTS, figure="records_s", against=CALLBACK, must=1.8, goal=2.5),
            Target(tuning=Tuning.BEST, figure="records_s", against=AIOKAFKA, must=2.5, goal=4),
            Target(tuning=Tuning.BEST, figure="records_s", against=AIO, must=2, goal=3),
            *(
                target
                for ours in (OURS, NOWAIT)
                for target in (
                    Target(figure="records_s", against=AIOKAFKA, must=2, goal=3, ours=ours),
                    Target(figure="records_s", against=AIO, goal=2.5, ours=ours),
                )
            ),
        ),
        quick=True,
    )
    yield Row(
        name="fire-headers",
        title="windows of 10,000 with key and 2 headers, then each Future awaited",
        settings=replace(fire, keys=True, headers=True),
        clients=(OURS, AIOKAFKA, PRODUCE, CALLBACK),
        tunings=REAL,
        targets=(
            *_next_to_produce(must=2, goal=2.8, cpu_goal=0.3),
            Target(tuning=Tuning.BEST, figure="records_s", against=AIOKAFKA, must=2, goal=3),
        ),
    )
    bulk = Settings(work=Work.BULK, linger_ms=LINGER_MS)
    yield Row(
        name="bulk",
        title="10,000 values per call, 4 calls in flight",
        settings=bulk,
        clients=(OURS, BATCH, JVM),
        targets=(
            Target(tuning=Tuning.BEST, figure="records_s", against=BATCH, must=1.2, goal=1.5),
            Target(tuning=Tuning.BEST, figure="cpu_us", against=BATCH, must=0.6, goal=0.4),
            Target(tuning=Tuning.BEST, figure="records_s", against=JVM, must=1.5, goal=2.5),
            Target(figure="records_s", against=BATCH, must=1.2, goal=1.5),
            Target(figure="cpu_us", against=BATCH, must=0.6, goal=0.4),
            Target(figure="records_s", against=JVM, goal=2.5),
        ),
        quick=True,
    )
    yield Row(
        name="bulk-one-by-one",
        title="10,000 values per call, one call after the other",
        settings=Settings(work=Work.ONE_BY_ONE, linger_ms=LINGER_MS),
        clients=(OURS, BATCH),
        tunings=EQUAL,
        targets=(Target(figure="records_s", against=BATCH, must=0.9, goal=1.2),),
    )
    yield Row(
        name="bulk-keys",
        title="10,000 values with 16-byte keys per call, 4 calls in flight",
        settings=replace(bulk, keys=True),
        clients=(OURS, BATCH),
        targets=(
            Target(tuning=Tuning.BEST, figure="records_s", against=BATCH, must=1, goal=1.5),
            Target(figure="records_s", against=BATCH, must=1, goal=1.2),
            Target(figure="cpu_us", against=BATCH, goal=0.9),
        ),
    )
    yield Row(
        name="bulk-headers",
        title="10,000 values with key and 2 headers per call (other clients: one call per record)",
        settings=replace(bulk, keys=True, headers=True),
        clients=(OURS, AIOKAFKA, PRODUCE),
        targets=(
            Target(tuning=Tuning.BEST, figure="records_s", against=PRODUCE, must=1, goal=1.5),
            Target(figure="records_s", against=AIOKAFKA, must=4, goal=6),
            Target(figure="records_s", against=PRODUCE, goal=1),
        ),
    )
    yield Row(
        name="bulk-tls",
        title="10,000 values per call, 4 calls in flight, over TLS",
        settings=replace(bulk, tls=True),
        clients=(OURS, AIOKAFKA, BATCH),
        tunings=EQUAL,
        targets=(Target(figure="records_s", against=BATCH, must=0.8, goal=1.2),),
    )


def _steady() -> Iterator[Row]:
    yield Row(
        name="steady",
        title="1,000 records/s with keys, over 12 partitions of 3 brokers",
        settings=Settings(work=Work.STEADY, keys=True, linger_ms=LINGER_MS, rate=STEADY_RATE),
        clients=(OURS, AIOKAFKA),
        tunings=EQUAL,
        targets=(
            Target(figure="cpu_us", against=AIOKAFKA, must=0.5, goal=0.4),
            Target(figure="requests", against=AIOKAFKA, must=0.55, goal=0.45),
        ),
        lasts=4,
    )


def _slow_broker() -> Iterator[Row]:
    ours = (OURS, LINGER_0, COMPAT)
    share = Target(tuning=Tuning.DEFAULTS, figure="slow_share", must=40, goal=33)
    mean = Target(tuning=Tuning.DEFAULTS, figure="mean_ms", against=AIOKAFKA, must=1.5, goal=1)
    yield Row(
        name="slow-broker",
        title="4,000 records/s without keys, over 12 partitions of 3 brokers, one of which takes 100 ms",
        settings=Settings(
            work=Work.SLOW_BROKER,
            linger_ms=LINGER_MS,
            rate=SLOW_BROKER_RATE,
            slow_ms=SLOW_BROKER_MS,
            warm_up_s=SLOW_BROKER_WARM_UP_S,
        ),
        clients=(*ours, AIOKAFKA, JVM),
        tunings=AT_DEFAULTS,
        targets=(
            *(replace(share, ours=each) for each in ours),
            *(replace(mean, ours=each) for each in ours),
            Target(tuning=Tuning.DEFAULTS, figure="p99_ms", against=JVM, must=1, goal=0.7),
        ),
        lasts=4,
    )


def _zones() -> Iterator[Row]:
    yield Row(
        name="zones",
        title="4,000 records/s without keys, over 12 partitions of 3 brokers, each in a zone of its own",
        settings=Settings(
            work=Work.ZONES,
            linger_ms=LINGER_MS,
            rate=SLOW_BROKER_RATE,
            warm_up_s=SLOW_BROKER_WARM_UP_S,
        ),
        clients=(OURS, RACK_AWARE),
        tunings=AT_DEFAULTS,
        targets=(
            Target(tuning=Tuning.DEFAULTS, figure="zone_share", must=0.1, goal=0, ours=RACK_AWARE),
            Target(tuning=Tuning.DEFAULTS, figure="cpu_us", against=OURS, must=1.1, goal=1, ours=RACK_AWARE),
        ),
        lasts=4,
    )


def _values() -> Iterator[Row]:
    fire = Settings(work=Work.FIRE, value_bytes=1024, linger_ms=LINGER_MS)
    clients, with_callback = (OURS, AIOKAFKA, PRODUCE), (OURS, AIOKAFKA, PRODUCE, CALLBACK)
    much = (Target(tuning=Tuning.DEFAULTS, figure="records_s", against=AIOKAFKA, must=3, goal=6),)
    some = (Target(tuning=Tuning.DEFAULTS, figure="records_s", against=AIOKAFKA, must=1.5, goal=2),)
    yield Row(
        name="value-1k",
        title="windows of 1 KiB values, then each Future awaited",
        settings=fire,
        clients=with_callback,
        targets=(
            *_next_to_produce(must=0.73, goal=1.1, cpu_goal=0.9),
            *much,
            Target(figure="records_s", against=AIOKAFKA, must=1.5, goal=2),
        ),
        quick=True,
    )
    yield Row(
        name="value-10k",
        title="windows of 10 KiB values, then each Future awaited",
        settings=replace(fire, value_bytes=10 * 1024),
        clients=clients,
        tunings=AT_DEFAULTS,
        targets=some,
    )
    for codec in MEASURED_CODECS:
        main = codec == "zstd"
        yield Row(
            name=f"compression-{codec}",
            title=f"windows of JSON-like values of 1 KiB, {codec}, then each Future awaited",
            settings=replace(fire, json_like=True, compression=codec),
            clients=with_callback if main else clients,
            tunings=REAL if main else AT_DEFAULTS,
            targets=(*_next_to_produce(must=0.91, goal=1.15, cpu_goal=0.9), *much) if main else some,
        )


def _process() -> Iterator[Row]:
    memory = Settings(work=Work.MEMORY, records=MEMORY_RECORDS, linger_ms=LINGER_MS)
    memory_targets = (
        Target(tuning=Tuning.DEFAULTS, figure="rss_mib", must=150),
        Target(tuning=Tuning.DEFAULTS, figure="kept_mib", must=60),
    )
    yield Row(
        name="memory",
        title="a million distinct values through enqueue, their Futures dropped",
        settings=memory,
        clients=(OURS, AIOKAFKA),
        tunings=AT_DEFAULTS,
        targets=memory_targets,
        lasts=10,
    )
    yield Row(
        name="memory-full",
        title="a million distinct values through enqueue, with a broker that takes 200 ms per request",
        settings=replace(memory, slow_ms=FULL_MEMORY_MS),
        tunings=AT_DEFAULTS,
        targets=memory_targets,
        lasts=25,
    )
    yield Row(
        name="lag",
        title="event loop lag: 256 tasks, zstd, 1 MiB batches",
        settings=Settings(
            work=Work.LAG,
            value_bytes=LAG_VALUE_BYTES,
            json_like=True,
            compression="zstd",
            batch_bytes=1024 * 1024,
            linger_ms=LINGER_MS,
        ),
        clients=(OURS, AIOKAFKA),
        tunings=EQUAL,
        targets=(Target(figure="lag_ms", must=10, goal=3),),
        lasts=4,
    )
    yield Row(
        name="cold",
        title="import, and the first acknowledged record",
        settings=Settings(work=Work.COLD),
        clients=(OURS, AIOKAFKA),
        tunings=EQUAL,
        targets=(
            Target(figure="import_ms", must=150, goal=80),
            Target(figure="first_ms", against=AIOKAFKA, must=1, goal=0.7),
        ),
        lasts=3,
    )


SHAPES: Final = {
    "ten": "10 active",
    "all": "all active, 100 records per batch",
    "single": "all active, one record per batch",
}


CURVES: Final = (("partitions", "all"), ("topics", "ten"), ("topics", "all"), ("topics", "single"))


def _scale() -> Iterator[Row]:
    for what, shape in CURVES:
        yield Row(
            name=f"scale-{what}-{shape}",
            title=f"more {what}: {SHAPES[shape]}",
            settings=Settings(work=Work.SCALE, linger_ms=LINGER_MS),
            tunings=EQUAL,
            targets=(Target(figure="growth", must=1.5, goal=1.2),),
            lasts=12,
        )


ROWS: Final = {
    row.name: row
    for row in (
        *_awaited(),
        *_handed_over(),
        *_with_outcomes(),
        *_steady(),
        *_slow_broker(),
        *_zones(),
        *_values(),
        *_process(),
        *_scale(),
    )
}
