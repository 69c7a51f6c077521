"""aioproducer at one size, in a separate process, so that its CPU excludes the broker.

By hand: python -m benchmarks.scale.child SERVERS WHAT SHAPE SIZE RECORDS. Prints a `Run`: "cpu_us" is per record.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from aioproducer import Producer
from aioproducer._core.records.columns import BATCH_OVERHEAD, record_size_bound
from benchmarks.child.watch import Watch
from benchmarks.figures import Run
from benchmarks.scale.shapes import Point, Shape, Target

VALUE: Final = b"v" * 100
WARM_UP_AT_ONCE: Final = 100
"""Number of topics per concurrent metadata request during the warm-up."""
RECORDS_A_TURN: Final = 100
"""Number of records appended per iteration of the event loop."""


def batch_bytes(records: int) -> int:
    """Return the batch size that exactly *records* records fill."""
    return BATCH_OVERHEAD + records * record_size_bound(VALUE, None, ())


async def measure(servers: str, point: Point, least_records: int) -> Run:
    """Fill one batch per partition after the other. A full batch is sent while the next batch is filled."""
    active, per_batch = point.active, point.records_a_batch
    rounds = point.rounds(least_records)
    async with Producer(servers, batch_size=batch_bytes(per_batch)) as producer:
        topics = list(point.topics)
        for start in range(0, len(topics), WARM_UP_AT_ONCE):
            some = topics[start : start + WARM_UP_AT_ONCE]
            await asyncio.gather(*(producer.partitions_for(topic) for topic in some))
        await _write(producer, active[:1], per_batch)
        watch = Watch()
        for _ in range(rounds):
            await _write(producer, active, per_batch)
        await producer.flush()
        records = rounds * len(active) * per_batch
        delivered = producer.metrics()["producer"]["records_delivered"]
        if delivered != records + per_batch:
            raise RuntimeError(f"{records + per_batch} records were sent, {delivered} delivered")
        return Run(sent=records + per_batch, figures=watch.figures(records))


async def _write(producer: Producer, active: Sequence[Target], per_batch: int) -> None:
    written = 0
    for topic, partition in active:
        for _ in range(per_batch):
            _ = await producer.enqueue(topic, VALUE, partition=partition)  # the flush waits for the record
        written += per_batch
        if written % RECORDS_A_TURN == 0:
            await asyncio.sleep(0)  # other tasks run, such as the sender


if __name__ == "__main__":
    servers, what, shape, size, least = sys.argv[1:]
    run = asyncio.run(measure(servers, Point(what, Shape(shape), int(size)), int(least)))
    print(json.dumps(asdict(run)))
