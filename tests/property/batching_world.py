"""The batching floor between models of its users, of the sender and of the cluster, in virtual time.

Users and sender are what `intake/` and `sender/` do with the batching floor, without metadata, serializers
and sockets; answers go through the real ResponseHandler.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from aioproducer._core.backoff import Backoff
from aioproducer._core.batching.accumulator import Accumulator
from aioproducer._core.batching.admission import QueuedCall
from aioproducer._core.batching.batch import Batch, RecordFuture
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.bulk import Rows, SendManyCall
from aioproducer._core.batching.completion import BatchCompletion
from aioproducer._core.batching.partition_queue import PartitionQueue
from aioproducer._core.batching.receipts import receipts_on
from aioproducer._core.batching.waiters import Failure, TaskWaker
from aioproducer._core.idempotence import REFUSALS_AS_PROOF, SEQUENCE_REFUSALS, IdentityKeeper
from aioproducer._core.protocol.produce import (
    BaseOffsets,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer._core.records.columns import Records, open_records, record_size_bound, sizes
from aioproducer._core.records.compression import Codec
from aioproducer._core.sender.requests import ProduceAnswer, ResponseHandler
from aioproducer._core.settings import BatchingSettings, SenderSettings
from aioproducer.errors import (
    BufferTimeout,
    ConnectionFailed,
    ProducerClosed,
    ProducerError,
)
from tests.fakes import FakeConnection, FakeUpdater
from tests.property.model_broker import HONEST, Fault, ModelCluster, Written
from tests.unit.floor_rig import late

TOPIC = "orders"
MAX_RECORDS = (100, 100, 2)
"""How many records each partition takes in one batch, at first."""
PARTITIONS = len(MAX_RECORDS)
NODES = (1, 2, 3)
DELIVERY_TIMEOUT_S = 60.0
BATCH_BYTES = 140
LINGER_S = 0.5
MAX_IN_FLIGHT = 3
FATAL_ONLY_BY_MISTAKE = SEQUENCE_REFUSALS
"""An idempotent producer heals itself from these, as long as it may try again."""
SEQUENCE_CODES = frozenset(kind.code for kind in SEQUENCE_REFUSALS)

FOR_EVER = 2**31 - 1


def sending(*, idempotent: bool, retries: int) -> SenderSettings:
    """Return settings under which nothing of a backoff is left to chance."""
    return SenderSettings(
        acks=-1,
        idempotent=idempotent,
        max_in_flight=MAX_IN_FLIGHT,
        retries=retries,
        request_timeout_s=30.0,
        retry_backoff=Backoff(0.1, 0.5, jitter=0.0),
        codec=Codec.NONE,
        compression_level=None,
    )


def batching(*, idempotent: bool, batch_max_bytes: int) -> BatchingSettings:
    """Return settings under which a few records fill a batch, and a few batches the memory."""
    return BatchingSettings(
        batch_bytes=BATCH_BYTES,
        batch_max_bytes=batch_max_bytes,
        partitioning_is_adaptive=True,
        availability_timeout_s=0.0,
        linger_s=LINGER_S,
        linger_is_adaptive=False,
        buffer_bytes=900,
        max_request_bytes=300,
        delivery_timeout_s=DELIVERY_TIMEOUT_S,
        max_in_flight=MAX_IN_FLIGHT,
        idempotent=idempotent,
        batch_cap_s=5.0,
    )


class Request(NamedTuple):
    batches: list[Batch]
    contents: list[Written]


def values_of(batch: Batch) -> list[bytes]:
    return [value or b"" for value in batch.columns.values]


class World:
    """Everything there is. Its methods are called inside its loop."""

    def __init__(
        self,
        *,
        idempotent: bool,
        retries: int,
        batch_max_bytes: int,
        records: Callable[[], Records] = open_records,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.receipts = receipts_on(TaskWaker(self.loop))
        self.idempotent = idempotent
        self.heals = idempotent and retries == FOR_EVER
        self.cluster = ModelCluster(MAX_RECORDS, leader=NODES[0])
        self.connections = {node_id: FakeConnection(node_id) for node_id in NODES}
        self.outstanding: dict[int, list[Request]] = {node_id: [] for node_id in NODES}
        """The requests to each node that have no answer."""
        self.identities = IdentityKeeper()
        self.accumulator = Accumulator(
            batching(idempotent=idempotent, batch_max_bytes=batch_max_bytes),
            self.identities,
            loop=self.loop,
            wake=self.ring,
            wake_at=self.ring_at,
            mark_used=lambda _topic, _now: None,
            records=records,
        )
        self.schedule = self.accumulator.schedule
        self.topic = self.accumulator.topic(TOPIC)
        self.completion = BatchCompletion(self.accumulator, observer=self)
        self.handler = ResponseHandler(
            sending(idempotent=idempotent, retries=retries),
            self.completion,
            FakeUpdater().real,
        )
        self._records = 0
        self._producer_ids = 0
        self.order: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        """What was appended to each partition."""
        self.batch_of: dict[bytes, Batch] = {}
        """The batch that each record was appended to."""
        self.futures: dict[bytes, RecordFuture] = {}
        self.index_of: dict[bytes, int] = {}
        self.calls: dict[SendManyCall, Sequence[bytes]] = {}
        self.unsure: set[bytes] = set()
        """Was in a request of which the producer cannot know what became."""
        self.told: Counter[str] = Counter()
        """How many outcomes the observer heard of."""
        # The sender.
        self.rung = False
        self.check_at = math.inf
        self.left_over: set[int] = set()
        """The nodes that the last turn could not send everything to."""
        self.preparing: dict[int, Request] = {}
        self.refresh()
        self.queues = [self.topic[partition] for partition in range(PARTITIONS)]

    # What the accumulator and the completion call.

    def ring(self) -> None:
        self.rung = True

    def ring_at(self, until: float) -> None:
        self.check_at = min(self.check_at, until)

    def delivered(self, batch: Batch, base_offset: int, log_append_time_ms: int, now: float) -> None:
        self.told["delivered"] += len(batch)

    def failed(self, batch: Batch, records: Records, failure: Failure) -> None:
        self.told["failed"] += len(records)
        if failure.possibly_persisted:
            out = batch.persistence.attempt_is_out
            assert out or self.unsure.intersection(values_of(batch)), f"{failure} of {batch}"
        half = batch.persistence.half_of_possibly_persisted
        unknowable = half or self.accumulator.queue(batch).newest_lost_in_doubt > batch.order
        if self.heals and not (unknowable and failure.possibly_persisted):
            assert not issubclass(failure.kind, FATAL_ONLY_BY_MISTAKE), f"{failure} of {batch}"

    def retried(self, batch: Batch) -> None:
        """No outcome."""

    def split(self, batch: Batch) -> None:
        """No outcome."""

    # The cluster.

    def has(self, batch: Batch) -> bool:
        """Whether any record of *batch* is in its partition's log."""
        log = self.cluster.partitions[batch.topic_partition.partition].log
        return any(value in log for value in values_of(batch))

    def refresh(self) -> None:
        self.accumulator.update_topic(TOPIC, self.cluster.leaders)

    def assign_identity(self, epoch: int) -> None:
        self._producer_ids += 1
        self.identities.assign(self._producer_ids, epoch)
        self.schedule.identity_changed(self.loop.time())
        self.ring()

    def answer(self, node_id: int, faults: Sequence[Fault], *, omits: int | None = None) -> None:
        """Answer the oldest request of *node_id*, but for its batch number *omits*."""
        connection = self.connections[node_id]
        batches, contents = self.outstanding[node_id].pop(0)
        answers: list[PartitionProduceResponse] = []
        for index, (batch, written) in enumerate(zip(batches, contents, strict=True)):
            fault = faults[index % len(faults)]
            persistence = batch.persistence
            is_denied = fault.code in SEQUENCE_CODES and persistence.in_doubt
            if is_denied and persistence.sequence_refusals == REFUSALS_AS_PROOF - 1:
                fault = HONEST  # no leader that has the batch, or is about to get it, denies that for ever
            answer = self.cluster.process(node_id, written, fault)
            if answer.error_code == 6 or fault.unsure or index == omits:
                self.unsure.update(written.values)
            if index != omits:
                answers.append(answer)
        response: ProduceAnswer = ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, partition_responses=answers)]
        )
        if not any(each.error_code for each in answers):  # it is decoded to the offsets alone
            offsets = {(TOPIC, each.index): (each.base_offset, each.log_append_time_ms) for each in answers}
            response = BaseOffsets(0, offsets)
        self._take(connection, batches, response)
        if connection.closed_for is not None:
            self.lose(node_id, arrived=0, unsent=0)

    def lose(self, node_id: int, *, arrived: int, unsent: int) -> None:
        """Close the connection to *node_id*; so many requests have arrived, so many were never sent."""
        connection = self.connections[node_id]
        requests, self.outstanding[node_id] = self.outstanding[node_id], []
        self.connections[node_id] = FakeConnection(node_id)
        for index, (batches, contents) in enumerate(requests):
            sent = index < max(len(requests) - unsent, arrived)
            for written in contents if sent else ():
                self.unsure.update(written.values)
                if index < arrived:
                    self.cluster.process(node_id, written)
                elif self.idempotent:
                    self.cluster.strays.append(written)
            error = connection.closed_for or ConnectionFailed("lost", written=sent)
            self._take(connection, batches, error)

    def restart(self, arrived: int) -> None:
        """Close every connection, and restore the brokers' producer states from their snapshots."""
        for node_id in NODES:
            self.lose(node_id, arrived=arrived, unsent=0)
        self.cluster.strays.clear()
        for partition in self.cluster.partitions:
            partition.restart()

    # The sender.

    def _take(
        self, connection: FakeConnection, batches: Sequence[Batch], answer: ProduceAnswer | ProducerError
    ) -> None:
        self.handler.take(connection.real, batches, answer)
        if self.schedule.waiting:  # as the sender does: there may be room for more now
            self.ring()

    def run_once(self, connected: Collection[int], slow: Collection[int] = ()) -> None:
        """Run the sender once; the requests of *slow* nodes are prepared off the loop."""
        self.rung = False
        now = self.loop.time()
        self.completion.expire(now, late)
        self.schedule.collect(now, hurry=self.accumulator.hurries())
        check_at = self.accumulator.windows.seal_old(now)
        check_at = min(check_at, self.schedule.next_due(), self.accumulator.deadlines.next_due())
        for node_id in list(self.schedule.waiting):
            if node_id in connected:
                self._serve(node_id, slow=node_id in slow)
        self.left_over = set(self.schedule.waiting)
        self.check_at = check_at

    def _serve(self, node_id: int, *, slow: bool) -> None:
        outstanding = self.outstanding[node_id]
        while node_id not in self.preparing and len(outstanding) < MAX_IN_FLIGHT:
            in_turn = [queue for queue in self.queues if not queue.must_probe_newest]
            retrying = {batch for queue in in_turn for batch in queue.retrying}
            batches = self.schedule.drain(
                node_id, self.loop.time(), self.accumulator.settings.max_request_bytes
            )
            if not batches:
                break
            assert all(
                self.accumulator.queue(batch).oldest_unsettled is batch
                for batch in retrying.intersection(batches)
            )
            request = Request(batches, [self._encoded(batch) for batch in batches])
            if slow:
                self.preparing[node_id] = request
            else:
                self._write(node_id, request)

    def _encoded(self, batch: Batch) -> Written:
        queue = self.accumulator.queue(batch)
        assert batch.state is BatchState.IN_FLIGHT
        assert (batch.sequence is not None) == self.idempotent
        alone = batch.attempts == 1 and queue.in_flight == (batch,) and not queue.retrying
        return Written(queue.partition, batch.sequence, tuple(values_of(batch)), alone)

    def prepared(self, node_id: int, *, connected: bool = True) -> None:
        """Write the request prepared for *node_id*, unless its connection is closed."""
        request = self.preparing.pop(node_id)
        if connected:
            self._write(node_id, request)
        else:
            alive = [batch for batch in request.batches if batch.state is BatchState.IN_FLIGHT]
            self.handler.lost(self.connections[node_id].real, alive, ConnectionFailed("gone", written=False))
        self.ring()

    def _write(self, node_id: int, request: Request) -> None:
        pairs = [
            (batch, written)
            for batch, written in zip(*request, strict=True)
            if batch.state is BatchState.IN_FLIGHT
        ]
        if pairs:
            alive = Request([batch for batch, _ in pairs], [written for _, written in pairs])
            self.outstanding[node_id].append(alive)
            for batch in alive.batches:
                batch.persistence.written()

    # The users.

    def new_values(self, extra_bytes: Sequence[int]) -> list[bytes]:
        first, self._records = self._records, self._records + len(extra_bytes)
        return [b"%05d" % (first + index) + b"." * extra for index, extra in enumerate(extra_bytes)]

    def queue(self, partition: int | None) -> PartitionQueue | None:
        return None if partition is None else self.queues[partition]

    def offer(self, partition: int | None, value: bytes, key: bytes | None) -> bool:
        """Append one record if that needs no waiting."""
        return not self.topic.append_lock.calls and self._append(partition, value, key, self.loop.time())

    async def send(self, partition: int | None, value: bytes, key: bytes | None, deadline: float) -> None:
        """Append one record as soon as there is memory."""
        called_at = self.loop.time()
        async with self._my_turn():
            if not self._append(partition, value, key, called_at):
                reserved = self.accumulator.settings.room_for(record_size_bound(value, key, ()))
                await self._memory(reserved, deadline)
                assert self._append(partition, value, key, called_at, reserved)

    async def send_many(self, partition: int | None, values: Sequence[bytes], deadline: float) -> None:
        """Append many records in one call as memory allows."""
        call = SendManyCall(TOPIC, len(values), self.loop)
        self.calls[call] = values
        rows = Rows(TOPIC, range(len(values)), values, None, None, 0, partition, sizes(values, None, None))
        reserved = 0
        try:
            async with self._my_turn():
                while rows:
                    done = self.accumulator.extend(self.topic, self.queue(partition), rows, call, reserved)
                    assert done or not reserved
                    self._note_appended()
                    rows = rows.slice(done, len(rows))
                    if rows:
                        reserved = self.accumulator.settings.room_for(rows.sizes[0])
                        await self._memory(reserved, deadline)
        except (ProducerError, asyncio.CancelledError) as error:
            call.failed(rows.positions, Failure(ProducerError, repr(error)))
        for queue in self.queues:
            if queue.open is not None and queue.open in {each.batch for each in call.live}:
                self.accumulator.seal(queue.open, self.loop.time())

    def close(self) -> None:
        failure = Failure(ProducerClosed, "closed")
        without_outcome = sum(len(batch) for batch in self.accumulator.unresolved)
        assert self.accumulator.close(failure) == len(self.accumulator.pending_calls)
        assert self.completion.fail_everything(failure) == without_outcome

    @asynccontextmanager
    async def _my_turn(self) -> AsyncIterator[None]:
        self.accumulator.enter(call := object(), self.topic, 0)
        try:
            await self.topic.append_lock.acquire(QueuedCall(), math.inf)
            try:
                if self.accumulator.closed_for is not None:
                    raise self.accumulator.closed_for.error()
                yield
            finally:
                self.topic.append_lock.release()
        finally:
            self.accumulator.leave(call, self.topic)

    async def _memory(self, size: int, deadline: float) -> None:
        self.accumulator.wake()
        try:
            await self.accumulator.memory.take(size, deadline)
        except TimeoutError as error:
            raise BufferTimeout("no memory") from error

    def _append(
        self, partition: int | None, value: bytes, key: bytes | None, called_at: float, reserved: int = 0
    ) -> bool:
        size = record_size_bound(value, key, ())
        queue = self.queue(partition)
        future = self.receipts.waiter()
        place = self.accumulator.append_and_locate(
            self.topic,
            queue,
            value,
            key,
            (),
            0,
            size,
            kind=self.receipts,
            called_at=called_at,
            waiter=future,
            reserved=reserved,
        )
        if place is None:
            return False
        batch, self.index_of[value] = place
        self.futures[value] = future
        self._note_appended()
        assert self.batch_of[value] is batch
        return True

    def _note_appended(self) -> None:
        for queue in self.queues:
            for batch in queue.batches:
                for value in values_of(batch):
                    if value not in self.batch_of:
                        self.batch_of[value] = batch
                        self.order[queue.partition].append(value)
