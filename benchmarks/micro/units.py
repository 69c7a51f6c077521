"""Code units of a send. The result of each unit is checked once before the measurement."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast

from aioproducer._core.address import Address
from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.bulk import Rows, SendManyCall
from aioproducer._core.batching.waiters import acknowledgement_on
from aioproducer._core.idempotence import IdentityKeeper
from aioproducer._core.intake.fast_append import Append, FastAppend, accelerated_append
from aioproducer._core.metadata.background_dials import MissingBrokers
from aioproducer._core.metadata.snapshot import MetadataSnapshot
from aioproducer._core.metrics import Metrics
from aioproducer._core.murmur2 import murmur2, python_murmur2
from aioproducer._core.net.pool import Pool
from aioproducer._core.partitioning import Murmur2Partitioner
from aioproducer._core.protocol.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer._core.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aioproducer._core.protocol.schema import decode, encode, encode_response
from aioproducer._core.records.columns import RecordColumns, record_size_bound
from aioproducer._core.records.compression import Codec, compressor
from aioproducer._core.records.decode import decode_batches
from aioproducer._core.records.record_batch import encode_batch
from aioproducer._core.sender.requests import decoder_for
from aioproducer.config import ProducerConfig
from aioproducer.types import HeadersInput
from benchmarks.micro.clock import Unit
from benchmarks.payload import Window, window_of
from benchmarks.settings import PARTITIONS, Settings, Work

TOPIC: Final = "orders"
A_BATCH: Final = 120
"""Number of records of 100 bytes in a batch of 16 KiB."""
APPENDED: Final = 1_000
SMALL_BATCH: Final = 1_024
"""Size of a small batch, in bytes. The time of much larger batches depends on the operating system's memory
allocation."""
LARGE_TOPIC: Final = 1_000
PRODUCE_VERSION: Final = 9
METADATA_VERSION: Final = 12
AT: Final = 1_700_000_000_000
"""Timestamp of all records, in milliseconds since the epoch."""


def window(**settings: Any) -> Window:
    """Return a window of records."""
    return window_of(Settings(work=Work.FIRE, **settings))


def columns(records: Window, count: int = A_BATCH) -> RecordColumns:
    """Return a batch's columns with the first records of a window."""
    made = RecordColumns()
    for number in range(count):
        headers = () if records.headers is None else tuple(records.headers[number])
        key = None if records.keys is None else records.keys[number]
        made.append(records.values[number], key, headers, AT)
    return made


def encoding(records: Window, codec: Codec = Codec.NONE) -> Unit:
    """Return the unit that encodes a batch of *records*."""
    compress = None if codec is Codec.NONE else compressor(codec, None)
    encode_one = partial(
        encode_batch, attributes=codec, compress=compress, producer_id=1, producer_epoch=0, base_sequence=0
    )
    made = columns(records)
    [batch] = decode_batches(bytes(encode_one(made)), limit=1 << 20)
    assert [record.value for record in batch.records] == list(records.values[:A_BATCH])
    return Unit(lambda: made, encode_one, A_BATCH)


class Bench:
    """An accumulator with one topic and no sender."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        settings = ProducerConfig(bootstrap_servers="localhost:9092").batching_settings()
        self.loop = loop
        self.accumulator = Accumulator(
            settings,
            IdentityKeeper(),
            loop=loop,
            wake=lambda: None,
            wake_at=lambda _until: None,
            mark_used=lambda _topic, _now: None,
        )
        self.topic = self.accumulator.topic(TOPIC)
        self.accumulator.update_topic(TOPIC, [1] * PARTITIONS)


def appending(records: Window, loop: asyncio.AbstractEventLoop) -> Unit:
    """Return the unit that appends records one by one, each with an Acknowledgement."""
    kind = acknowledgement_on(loop)
    size = record_size_bound(records.values[0], None, ())
    values = records.values[:APPENDED]

    def append(bench: Bench) -> None:
        append_one, topic, queue = bench.accumulator.append, bench.topic, bench.topic[0]
        for value in values:
            append_one(topic, queue, value, None, (), AT, size, kind)

    bench = Bench(loop)
    append(bench)
    assert sum(map(len, bench.accumulator.unresolved)) == APPENDED
    return Unit(lambda: Bench(loop), append, APPENDED)


def sending(records: Window, loop: asyncio.AbstractEventLoop) -> Unit:
    """Return the unit that appends records through `FastAppend`, each with an Acknowledgement."""
    count = len(records)
    keys: Sequence[bytes | None] = records.keys or [None] * count
    headers: Sequence[HeadersInput] = records.headers or [()] * count
    rows = list(zip(records.values, keys, headers, strict=True))[:APPENDED]

    kind = acknowledgement_on(loop)

    class General:
        def append(self, *_: Any) -> Any:
            raise AssertionError("a record left the fast path")

    def running_loop() -> asyncio.AbstractEventLoop:
        return loop

    def fast_path(bench: Bench) -> Append:
        never = General().append
        front = FastAppend(
            bench.accumulator,
            Murmur2Partitioner(),
            loop=loop,
            running_loop=running_loop,
            choose=never,
            refused=never,
            known=never,
            general=General(),
        )
        return accelerated_append(front, bench.accumulator, loop=loop, running_loop=running_loop)

    def send(front: Append) -> None:
        append = front.append
        for value, key, pairs in rows:
            append(kind, TOPIC, value, key, None, pairs, None)

    bench = Bench(loop)
    send(fast_path(bench))
    assert sum(map(len, bench.accumulator.unresolved)) == APPENDED
    return Unit(lambda: fast_path(Bench(loop)), send, APPENDED)


def extending(records: Window, loop: asyncio.AbstractEventLoop) -> Unit:
    """Return the unit that appends records as columns."""
    count = len(records)
    rows = Rows(
        TOPIC,
        range(count),
        records.values,
        None,
        None,
        AT,
        None,
        [record_size_bound(value, None, ()) for value in records.values],
    )

    def extend(bench: Bench) -> int:
        return bench.accumulator.extend(bench.topic, None, rows, SendManyCall(TOPIC, count, bench.loop))

    assert extend(Bench(loop)) == count
    return Unit(lambda: Bench(loop), extend, count)


def produce_request(batch: bytes) -> ProduceRequest:
    """Return a request with a batch for each partition."""
    partitions = [PartitionProduceData(index=index, records=batch) for index in range(PARTITIONS)]
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=partitions)]
    )


def produce_answer() -> bytes:
    """Return a broker's response to `produce_request`, which acknowledges every batch."""
    partitions = [
        PartitionProduceResponse(index=index, error_code=0, base_offset=1_000, log_start_offset=0)
        for index in range(PARTITIONS)
    ]
    answer = ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=partitions)])
    return bytes(encode_response(answer, PRODUCE_VERSION, correlation_id=7)[4:])


def metadata_answer(partitions: int) -> bytes:
    """Return a Metadata response about one topic with *partitions* partitions."""
    known = [
        MetadataResponsePartition(
            partition_index=index,
            leader_id=index % 3,
            leader_epoch=0,
            replica_nodes=[0, 1, 2],
            isr_nodes=[0, 1, 2],
        )
        for index in range(partitions)
    ]
    answer = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node, host="localhost", port=9092 + node) for node in range(3)
        ],
        topics=[MetadataResponseTopic(name=TOPIC, partitions=known)],
    )
    return bytes(encode(answer, METADATA_VERSION))


def topics_answer(*names: str) -> MetadataResponse:
    """Return a Metadata response about the topics *names*."""
    of_one = decode(MetadataResponse, METADATA_VERSION, metadata_answer(PARTITIONS))
    partitions = of_one.topics[0].partitions
    topics = [MetadataResponseTopic(name=name, partitions=partitions) for name in names]
    return MetadataResponse(brokers=of_one.brokers, topics=topics)


def learning(others: int) -> Unit:
    """Return the unit that applies a Metadata response about one topic to a snapshot with *others* topics."""
    names = [f"{TOPIC}-{number}" for number in range(others)]
    known = MetadataSnapshot().with_answer(topics_answer(*names), asked=names, complete=True, now=0.0)
    missing = MissingBrokers(cast("Pool", IdlePool()))
    answer = topics_answer(TOPIC)

    def learn() -> MetadataSnapshot:
        after = known.with_answer(answer, asked=[TOPIC], complete=False, now=1.0)
        missing.note(known, after)
        return after

    assert learn().changed == {TOPIC}
    return many(learn, 1)


class IdlePool:
    """Pool without connections."""

    def connect_soon(self, node_id: int, address: Address) -> None:
        """Do nothing."""

    def next_attempt_at(self, node_id: int) -> float | None:
        """Return None: no attempt is planned."""

    def get(self, node_id: int) -> None:
        """Return no connection."""

    def forget(self, node_id: int) -> None:
        """Do nothing."""


def each(function: Callable[[bytes], object], items: Sequence[bytes]) -> Unit:
    """Return the unit that calls *function* with each of *items*."""

    def run(work: Sequence[bytes]) -> None:
        for item in work:
            function(item)

    return Unit(lambda: items, run, len(items))


def many(function: Callable[[], object], times: int) -> Unit:
    """Return the unit that calls *function* *times* times."""

    def run(prepared: None) -> None:
        for _ in range(times):
            function()

    return Unit(lambda: None, run, times)


def counting() -> Unit:
    """Return the unit that counts a request with one batch and its response, the constant cost of metrics."""
    now = 0.0
    metrics = Metrics(lambda: now)
    node = metrics.node(1)

    def count() -> None:
        metrics.topic(TOPIC).written(A_BATCH, SMALL_BATCH, SMALL_BATCH, 0.005, 1.0, now)
        node.answered(0.002, 0, now)

    count()
    assert metrics.topic(TOPIC).numbers()["records"] == A_BATCH
    assert node.numbers()["answers"] == 1
    return many(count, 1_000)


def units(loop: asyncio.AbstractEventLoop) -> dict[str, Unit]:
    """Return all units by name. Costs are per record or per message. The units never run *loop*."""
    plain = window()
    keyed, rich = window(keys=True), window(keys=True, headers=True)
    events = window(json_like=True)
    keys = (keyed.keys or ())[:APPENDED]
    partitioner = Murmur2Partitioner()
    available = list(range(PARTITIONS))
    request, answer = produce_request(bytes(SMALL_BATCH)), produce_answer()
    read_answer = partial(decoder_for(request, PRODUCE_VERSION), ProduceResponse, PRODUCE_VERSION, answer)
    metadata = metadata_answer(LARGE_TOPIC)
    assert len(read_answer()[0].offsets) == PARTITIONS
    assert murmur2(b"21") == python_murmur2(b"21") == -973_932_308
    assert len(decode(MetadataResponse, METADATA_VERSION, metadata).topics[0].partitions) == LARGE_TOPIC
    return {
        "encode a batch: values": encoding(plain),
        "encode a batch: keys": encoding(keyed),
        "encode a batch: keys and headers": encoding(rich),
        "encode a batch: zstd": encoding(events, Codec.ZSTD),
        "encode a batch: lz4": encoding(events, Codec.LZ4),
        "append a record: general path": appending(plain, loop),
        "append a record: fast path": sending(plain, loop),
        "append key, value and headers: fast path": sending(rich, loop),
        "append rows of a bulk call": extending(plain, loop),
        "write a produce request": many(partial(encode, request, PRODUCE_VERSION), 20),
        "read a produce answer": many(read_answer, 20),
        "count a batch and its answer": counting(),
        f"read metadata of {LARGE_TOPIC} partitions": many(
            partial(decode, MetadataResponse, METADATA_VERSION, metadata), 1
        ),
        "apply metadata of a topic beside 100": learning(100),
        "apply metadata of a topic beside 5000": learning(5_000),
        "murmur2 of 16 bytes": each(murmur2, keys),
        "murmur2 of 16 bytes, in Python": each(python_murmur2, keys[:200]),
        "choose a partition": each(
            lambda key: partitioner.partition(TOPIC, key, PARTITIONS, available), keys
        ),
    }
