"""Real batches and queues for intake and sender, with fakes for the layers that do I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aioproducer._core.backoff import Backoff
from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.batch import Batch, RecordFuture
from aioproducer._core.batching.completion import BatchCompletion
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.batching.receipts import receipts_on
from aioproducer._core.batching.topic import TopicQueues
from aioproducer._core.batching.waiters import Failure, TaskWaker
from aioproducer._core.idempotence import IdentityKeeper, ProducerIdentity
from aioproducer._core.records.columns import RecordColumns, Records, record_size_bound
from aioproducer._core.records.compression import Codec
from aioproducer._core.settings import BatchingSettings, SenderSettings
from aioproducer.errors import ConnectionFailed, DeliveryTimeout, ProducerError, TimeoutReason
from aioproducer.types import Headers
from tests.fakes import FakeUpdater

TOPIC = "orders"
NODE = 1
FIRST = ProducerIdentity(7, 0)
"""The identity that brokers give out first."""


def batching_settings(**changes: Any) -> BatchingSettings:
    defaults: dict[str, Any] = {
        "batch_bytes": 16_384,
        "partitioning_is_adaptive": True,
        "availability_timeout_s": 0.0,
        "linger_s": 0.005,
        "linger_is_adaptive": False,
        "buffer_bytes": 1_000_000,
        "max_request_bytes": 100_000,
        "delivery_timeout_s": 120.0,
        "max_in_flight": 5,
        "idempotent": True,
        "batch_cap_s": 300.0,
    }
    given = defaults | changes
    return BatchingSettings(**({"batch_max_bytes": given["batch_bytes"]} | given))


def sender_settings(**changes: Any) -> SenderSettings:
    defaults: dict[str, Any] = {
        "acks": -1,
        "idempotent": True,
        "max_in_flight": 5,
        "retries": 2**31 - 1,
        "request_timeout_s": 30.0,
        "retry_backoff": Backoff(0.1, 1.0, jitter=0.0),
        "codec": Codec.NONE,
        "compression_level": None,
    }
    return SenderSettings(**(defaults | changes))


class Witness:
    """Observer of the completion that stores every outcome."""

    def __init__(self) -> None:
        self.delivered_batches: list[tuple[Batch, int, int]] = []
        self.delivered_at: list[float] = []
        self.failures: list[tuple[Batch, int, Failure]] = []
        self.retried_batches: list[Batch] = []
        self.split_batches: list[Batch] = []

    def delivered(self, batch: Batch, base_offset: int, log_append_time_ms: int, now: float) -> None:
        self.delivered_batches.append((batch, base_offset, log_append_time_ms))
        self.delivered_at.append(now)

    def failed(self, batch: Batch, records: Records, failure: Failure) -> None:
        self.failures.append((batch, len(records), failure))

    def retried(self, batch: Batch) -> None:
        self.retried_batches.append(batch)

    def split(self, batch: Batch) -> None:
        self.split_batches.append(batch)


class FloorRig:
    """An accumulator and a completion on the running loop, with one topic that `NODE` leads."""

    def __init__(
        self,
        *,
        partitions: int = 1,
        identified: bool = True,
        identities: IdentityKeeper | None = None,
        records: Callable[[], Records] = RecordColumns,
        passes_refusals: bool = False,
        **settings: Any,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.receipts = receipts_on(TaskWaker(self.loop))
        self.identities = identities or IdentityKeeper()
        if identified:
            self.identities.assign(*FIRST)
        self.wakes = 0
        self.wakes_at: list[float] = []
        self.updater = FakeUpdater()
        self.accumulator = Accumulator(
            batching_settings(**settings),
            self.identities,
            loop=self.loop,
            wake=self._wake,
            wake_at=self._wake_at,
            mark_used=self.updater.mark_used,
            records=records,
        )
        self.witness = Witness()
        self.completion = BatchCompletion(
            self.accumulator, observer=self.witness, passes_refusals=passes_refusals
        )
        if partitions:
            self.learn(TOPIC, *[NODE] * partitions)

    def learn(self, topic: str, *leaders: int) -> TopicQueues:
        """Add *topic* to the accumulator and to the updater."""
        self.updater.knows(topic, *leaders)
        queues = self.accumulator.topic(topic)
        self.accumulator.update_topic(topic, list(leaders))
        return queues

    def recognise(self, partitions: int) -> None:
        """Let the leaders have acknowledged something before: batches may follow each other unanswered."""
        for partition in range(partitions):
            sequences = self.queue(partition).sequences
            sequences.acknowledged_here = sequences.may_assign(self.identities, unsettled=())

    def queue(self, partition: int = 0) -> PartitionQueue:
        return self.accumulator.topics[TOPIC][partition]

    def append(
        self,
        value: bytes | None = b"value",
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> RecordFuture:
        """Append one record; there has to be memory."""
        future = self.accumulator.append(
            self.accumulator.topics[TOPIC],
            self.queue(partition),
            value,
            key,
            headers,
            1_000,
            record_size_bound(value, key, headers),
            self.receipts,
        )
        assert future is not None
        return future

    def fill(self, *values: bytes, partition: int = 0) -> Batch:
        """Append *values*, and return their open batch."""
        for value in values or (b"value",):
            _ = self.append(value, partition=partition)
        batch = self.queue(partition).open
        assert batch is not None
        return batch

    def drain(self, node_id: int = NODE) -> list[Batch]:
        """Seal open batches, and take one batch per partition, as the sender does."""
        for batch in tuple(self.accumulator.unresolved):
            if self.accumulator.queue(batch).open is batch:
                self.accumulator.seal(batch, self.loop.time())
        return self.accumulator.schedule.drain(node_id, self.loop.time(), 2**31)

    def sent(self, *values: bytes, partition: int = 0) -> tuple[Batch, list[RecordFuture]]:
        """Append *values* and return their batch, which is with the broker, and their Futures."""
        futures = [self.append(value, partition=partition) for value in values or (b"value",)]
        [batch] = self.drain()
        batch.persistence.written()
        return batch, futures

    def _wake(self) -> None:
        self.wakes += 1

    def _wake_at(self, until: float) -> None:
        self.wakes_at.append(until)


async def settle() -> None:
    """Let everything happen that can happen now; no time passes."""
    for _ in range(50):
        await asyncio.sleep(0)


def late(batch: Batch, why: str = "node 1 has not answered", cause: ProducerError | None = None) -> Failure:
    """Return the failure of *batch* at a deadline."""
    return Failure(
        DeliveryTimeout,
        f"{batch.topic_partition}: delivery timed out: {why}",
        batch.possibly_persisted,
        batch.last_error or cause,
        reason=TimeoutReason.NO_ANSWER,
    )


def lost(*, written: bool = True) -> ConnectionFailed:
    return ConnectionFailed("b1:9092 (node 1): lost", written=written)


def lose(*batches: Batch) -> None:
    """Let the connection be lost that *batches* were written to: each may be in the log."""
    for batch in batches:
        batch.connection_lost(lost(), reached_socket=True)


def doubt(*batches: Batch) -> None:
    """Let *batches*, which are out, be out for the second time: the first answer was lost."""
    lose(*batches)
    for batch in batches:
        batch.persistence.written()


def back_off(queue: PartitionQueue, batch: Batch, at: float) -> None:
    """Let *batch*, of *queue* and in flight, wait to be sent again at *at*."""
    queue.remove(batch)
    batch.retry(at)
    queue.retry(batch)
