"""Encoding of batches, Produce requests, and outcomes from their responses."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from aioproducer._core.acceleration import LARGEST_BYTES, keep_freed_memory, new_tuple
from aioproducer._core.backoff import MARKERS_BACKOFF
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.completion import BatchCompletion
from aioproducer._core.logfmt import LONGEST_TEXT, Pairs, escaped
from aioproducer._core.metadata.snapshot import NO_LEADER, Broker, LeaderHint
from aioproducer._core.metadata.updater import MetadataUpdater
from aioproducer._core.net.connection import Connection
from aioproducer._core.net.in_flight import Decode
from aioproducer._core.protocol.produce import (
    BY_NAME,
    FLEXIBLE,
    BaseOffsets,
    PartitionBatch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicBatches,
    read_base_offsets,
)
from aioproducer._core.protocol.schema import ApiVersionTable, decode_response
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer._core.records.compression import Codec, compressor
from aioproducer._core.records.record_batch import TRANSACTIONAL, encode_batch, set_sequence
from aioproducer._core.sender.obstacles import failure_at
from aioproducer._core.settings import BatchingSettings, SenderSettings
from aioproducer._core.steps import Log
from aioproducer._core.worker_threads import WorkerThreads
from aioproducer.errors import (
    ConcurrentTransactions,
    ConnectionFailed,
    ProducerError,
    ProtocolError,
    UnsupportedCompressionType,
    broker_error,
)

if TYPE_CHECKING:
    from aioproducer._core.batching.topic import TopicQueues
    from aioproducer._core.sender import outcomes


COMPRESS_OFF_LOOP_BYTES = 64 * 1024
"""Size from which a request is compressed in a worker thread: zstd needs 3 ms per MiB, a thread switch 0.1 ms."""

COMPRESSION_THREADS = min(4, os.cpu_count() or 1)
"""Number of requests compressed concurrently, in separate threads that other work does not delay."""

SMALL_RECORD_BYTES = 8 * 1024
"""Mean size below which records count as small for `compressor`: at least 16 small records fit in a window of 128 KiB."""

COMPRESSED_REQUEST_BYTES = 256 * 1024
"""Maximum size of a compressed request, in bytes, per request that the broker has not answered yet.

The broker processes one request while the client compresses the next request. A single larger batch is allowed."""

Unencodable = list[tuple[Batch, Exception]]
ZSTD_FROM: Final = 7
"""First version of Produce with zstd, from Kafka 2.1 (KIP-110)."""
_NO_SEQUENCE: Final = (-1, -1), -1
"""Producer id, epoch and base sequence of a batch without a sequence."""
ProduceAnswer = ProduceResponse | BaseOffsets
"""Decoded response; `BaseOffsets` for a response without errors."""


class OpenTransaction(Protocol):
    """Members of `TransactionRecords`, which documents them, for the sender."""

    @property
    def may_send(self) -> bool: ...
    def fail_unsendable(self) -> None: ...
    def write(self, batches: Sequence[Batch]) -> int | None: ...
    def answered(self, took_s: float) -> None: ...


class Encoder:
    """Encodes and compresses each batch once, sets the sequences of batches, and puts batches into requests."""

    def __init__(self, settings: SenderSettings) -> None:
        keep_freed_memory(LARGEST_BYTES)  # set for the process, which frees and allocates encoded batches
        timeout_ms = int(settings.request_timeout_s * 1000)
        self._request_fields = settings.transactional_id, settings.acks, timeout_ms
        self._attributes = settings.codec | (TRANSACTIONAL if settings.transactional_id is not None else 0)
        self._threads = WorkerThreads(COMPRESSION_THREADS, "aioproducer compresses")
        self._compress = self._compress_small = None
        if settings.codec is not Codec.NONE:
            self._compress = compressor(settings.codec, settings.compression_level)
            self._compress_small = compressor(settings.codec, settings.compression_level, small_records=True)

    def leaves_loop(self, batches: Sequence[Batch]) -> bool:
        """Return True if encoding *batches* would block the event loop for long."""
        if self._compress is None:
            return False
        return sum(batch.size for batch in batches if batch.encoded is None) >= COMPRESS_OFF_LOOP_BYTES

    async def encode_off_loop(self, batches: Sequence[Batch]) -> Unencodable:
        """Variant of `encode_all` in a worker thread, if *batches* are large and a thread can be started.

        A cancelled call does not wait for the thread, which completes its work.
        """
        if not self.leaves_loop(batches):
            return self.encode_all(batches)
        return await self._threads.run_anyway(self.encode_all, batches)

    def yield_gil(self) -> None:
        """Release the GIL, which a waiting worker thread does not get from a busy event loop."""
        self._threads.yield_gil()

    def close(self) -> None:
        """End the threads after their present work."""
        self._threads.shutdown()

    def encode_all(self, batches: Sequence[Batch]) -> Unencodable:
        """Encode each of *batches*; return batches that could not be encoded, with the error of each."""
        failed: Unencodable = []
        for batch in batches:
            try:
                self.encode(batch)
            except Exception as error:  # noqa: BLE001 - an error of the compressor or a bug; the waiters get the error
                failed.append((batch, error))
        return failed

    def encode(self, batch: Batch) -> None:
        """Encode *batch* with its present sequence, or set the sequence of an encoded *batch*."""
        sequence = batch.sequence
        numbered = _NO_SEQUENCE if sequence is None else sequence
        # An index costs a fifth of unpacking a NamedTuple.
        identity, base_sequence = numbered[0], numbered[1]
        producer_id, epoch = identity[0], identity[1]
        if batch.encoded is None:
            compress = self._compress
            if compress is not None and batch.size < SMALL_RECORD_BYTES * len(batch.columns):
                compress = self._compress_small
            encoded = encode_batch(
                batch.columns, self._attributes, compress, producer_id, epoch, base_sequence
            )
            batch.keep_encoded(encoded)
        elif sequence != batch.encoded_sequence:
            set_sequence(batch.encoded, producer_id, epoch, base_sequence)
            batch.keep_encoded(batch.encoded)

    def request(self, batches: Sequence[Batch], topics: Mapping[str, TopicQueues]) -> ProduceRequest:
        """Return one request for *batches*, which are encoded and of different partitions; *topics* have the topic ids."""
        data: list[TopicBatches] = []
        partitions: dict[str, list[PartitionBatch]] = {}
        for batch in batches:
            name, index = batch.topic_partition[0], batch.topic_partition[1]
            of_topic = partitions.get(name)
            if of_topic is None:
                of_topic = partitions[name] = []
                data.append(new_tuple(TopicBatches, (name, topics[name].topic_id, of_topic)))
            of_topic.append(new_tuple(PartitionBatch, (index, batch.encoded)))
        transactional_id, acks, timeout_ms = self._request_fields
        return _request(transactional_id, acks, timeout_ms, data)


def largest_request(
    batching: BatchingSettings, settings: SenderSettings, in_flight: int = 0, written: int = 0
) -> int:
    """Return the maximum size of the next request, in bytes.

    *in_flight* includes requests that a worker thread is encoding; *written* excludes these requests.

    An idle broker gets `batch_bytes` first, and more batches in the next request, so that broker and client work
    concurrently. Two batches in one request would complete together, and their tasks would fill the next batches together.
    For the same concurrency, compressed batches are spread over requests that grow with the number of requests in flight.
    """
    most = batching.max_request_bytes
    if settings.max_in_flight == 1 or settings.acks == 0:  # no other request would follow
        return most
    if not in_flight:
        return min(batching.batch_bytes, most)
    if settings.codec is Codec.NONE:
        return most
    return min(max(written, 1) * COMPRESSED_REQUEST_BYTES, most)


_request: Callable[..., ProduceRequest] = ProduceRequest
"""The request class, for calls with positional arguments, which cost half as much as keyword arguments."""


def version_for(
    request: ProduceRequest, versions: ApiVersionTable, at_most: int | None, codec: Codec = Codec.NONE
) -> int:
    """Return the version of *request*, at most *at_most*; a version with topic names if a topic id is unknown or acks=0.

    With acks=0 no response would report a changed topic id, and the records would be lost.

    Raises: UnsupportedVersion if no version is in *versions*; UnsupportedCompressionType if the version cannot carry
        *codec*: brokers before 2.1 lack zstd and answer UNKNOWN_SERVER_ERROR (KIP-110).
    """
    for topic in request.topic_data:
        if topic.topic_id == NO_TOPIC_ID or request.acks == 0:
            at_most = BY_NAME if at_most is None else min(at_most, BY_NAME)
    version = versions.pick(ProduceRequest, at_most)
    if version < ZSTD_FROM and codec is Codec.ZSTD:
        *others, last = (each for each in Codec if each is not codec)
        raise UnsupportedCompressionType(
            f"not sent: {codec} needs Kafka 2.1, and the broker supports Produce up to version {version}, not {ZSTD_FROM};"
            f" set compression_type to {', '.join(map(str, others))} or {last}"
        )
    return version


def decoder_for(request: ProduceRequest, version: int) -> Decode:
    """Return the decoder of the response to *request*, which returns a ProduceAnswer with topic names in any *version*.

    The decoder takes topic names by the ids in *request*: a topic may have another id when the response arrives.
    """
    if version <= BY_NAME:
        return decode_response if version < FLEXIBLE else _decode_names
    return partial(_decode, {topic.topic_id: topic.name for topic in request.topic_data})


def _decode(
    names: dict[bytes, str] | None, response: type[ProduceResponse], version: int, payload: bytes
) -> tuple[ProduceAnswer, int]:
    offsets = read_base_offsets(BaseOffsets, payload, names)
    if offsets is not None:
        return offsets
    answer, surplus = decode_response(response, version, payload)
    if names is not None:
        for topic in answer.responses:
            topic.name = names.get(topic.topic_id) or f"the topic with the id {topic.topic_id.hex()}"
    return answer, surplus


_decode_names: Final = partial(_decode, None)

log: Final = Log(__name__)


class ResponseHandler:
    """Matches responses to batches, and completes, retries or fails the batches."""

    def __init__(
        self, settings: SenderSettings, completion: BatchCompletion, updater: MetadataUpdater
    ) -> None:
        self._settings = settings
        self._completion = completion
        self._updater = updater
        self._loop = asyncio.get_running_loop()
        self._limits = completion.limits
        self._failing_partitions = completion.failing_partitions

    def take(
        self,
        connection: Connection,
        batches: Sequence[Batch],
        answer: ProduceAnswer | ProducerError,
        now: float | None = None,
    ) -> None:
        """Settle each of *batches*; called once per request, when the connection has read the response.

        *now* is the time of the read (loop clock); None reads the clock.
        """
        if isinstance(answer, ProducerError):
            self.lost(connection, batches, answer)
            return
        refusals: dict[tuple[str, int], PartitionProduceResponse] = {}
        if isinstance(answer, BaseOffsets):
            offsets = answer[1]  # an index costs less than the field `offsets`
        else:
            offsets, refusals = _by_partition(answer)
            if refusals and {*offsets, *refusals} <= {batch.topic_partition for batch in batches}:
                self._follow_leaders(answer)
                self._mark_leader_stale(connection, answer)
        missing = []
        for batch in batches:
            partition = batch.topic_partition
            if (acknowledged := offsets.pop(partition, None)) is not None:
                batch.persistence.answered()
                base_offset, log_append_time_ms = acknowledged
                self._completion.complete(batch, base_offset, log_append_time_ms, now)
                if self._failing_partitions:  # saves a call per batch
                    self._note_recovery(batch)
            elif (refusal := refusals.pop(partition, None)) is not None:
                batch.persistence.answered()
                self._decide(connection, batch, refusal)
            else:
                missing.append(batch)
        if missing or offsets or refusals:
            unrequested = ", ".join(f"{topic}-{index}" for topic, index in (*offsets, *refusals))
            unrequested = escaped(unrequested, LONGEST_TEXT)  # a hostile broker may send megabytes
            error = ProtocolError(
                f"answer to Produce: missing {', '.join(str(batch.topic_partition) for batch in missing) or 'nothing'},"
                f" not requested {unrequested or 'nothing'}"
            )
            self.lost(connection, missing, error)
            connection.close(error)

    def _follow_leaders(self, answer: ProduceResponse) -> None:
        """Use the new leaders in the response, from version 10 on, without a metadata request (KIP-951)."""
        hints = [
            LeaderHint(
                topic.name, each.index, each.current_leader.leader_id, each.current_leader.leader_epoch
            )
            for topic in answer.responses
            for each in topic.partition_responses
            if each.error_code and each.current_leader.leader_id >= 0
        ]
        if hints:
            endpoints = [
                Broker(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints
            ]
            self._updater.take_leader_hints(hints, endpoints)

    def _mark_leader_stale(self, connection: Connection, answer: ProduceResponse) -> None:
        """Report to the updater the partitions that the broker refused as a non-leader."""
        refused: defaultdict[str, list[int]] = defaultdict(list)
        for topic in answer.responses:
            for each in topic.partition_responses:
                if each.error_code and broker_error(each.error_code).stale_metadata:
                    refused[topic.name].append(each.index)
        if refused:
            self._updater.mark_leader_stale(connection.node_id, refused)

    def _note_recovery(self, batch: Batch) -> None:
        self._failing_partitions.discard(batch.topic_partition)
        if not self._failing_partitions:
            self._limits.over(
                "batch.retry",
                "",
                "batch.recovered partition=%s attempts=%d",
                batch.topic_partition,
                batch.attempts,
            )

    def _decide(self, connection: Connection, batch: Batch, refusal: PartitionProduceResponse) -> None:
        from aioproducer._core.sender import outcomes  # noqa: PLC0415 - most programs see no refusal

        kind = broker_error(refusal.error_code)
        error = kind(refusal.error_message or kind.__doc__ or kind.__name__)
        queue = self._completion.queue(batch)
        oldest = queue.oldest_unsettled is batch
        batch.refused(
            error, was_next=oldest or queue.must_probe_newest, newest=oldest and queue.is_newest(batch)
        )
        facts = outcomes.BatchFacts(
            records=len(batch),
            idempotent=batch.sequence is not None,
            oldest=oldest,
            in_doubt=batch.persistence.in_doubt,
            confirmed=batch.persistence.in_doubt and queue.is_confirmed(batch),
            half_of_possibly_persisted=batch.persistence.half_of_possibly_persisted,
            refused_without_proof=oldest and queue.is_refused_without_proof(batch),
            last_attempt=self._may_not_retry(batch),
            transactional=self._settings.transactional_id is not None,
            passes_refusals=self._completion.passes_refusals,
        )
        record_errors = {
            each.batch_index: each.batch_index_error_message or error.args[0]
            for each in refusal.record_errors
            if 0 <= each.batch_index < len(batch)
        }
        verdict = outcomes.decide(error, facts, record_errors)
        if batch.state is BatchState.EXPIRED_IN_FLIGHT and not isinstance(verdict, outcomes.Complete):
            verdict = outcomes.Fail(error)
        self._apply(connection, batch, verdict)

    def _apply(self, connection: Connection, batch: Batch, verdict: outcomes.Verdict) -> None:
        from aioproducer._core.sender import outcomes  # noqa: PLC0415 - imported by `_decide` before

        completion = self._completion
        match verdict:
            case outcomes.Complete():
                completion.complete(batch, -1)
                self._note_recovery(batch)
            case outcomes.Retry(error):
                self._retry(connection, batch, error)
            case outcomes.Renumber(error):
                self._limits.log(
                    log,
                    logging.WARNING,
                    Pairs(topic=batch.topic_partition.topic),
                    "batch.renumbered partition=%s sequence=%s error=%s",
                    batch.topic_partition,
                    batch.sequence,
                    type(error).__name__,
                )
                completion.renumber(batch, self._retry_at(connection, batch))
            case outcomes.Split(error):
                self._limits.log(
                    log,
                    logging.WARNING,
                    Pairs(topic=batch.topic_partition.topic),
                    "batch.split partition=%s records=%d bytes=%d",
                    batch.topic_partition,
                    len(batch),
                    batch.size,
                )
                completion.split(batch)
            case outcomes.FailRecords(error, messages, others_fail):
                completion.reject_records(
                    batch,
                    {
                        index: failure_at(batch, connection, type(error)(message))._replace(of_record=True)
                        for index, message in messages.items()
                    },
                    failure_at(batch, connection, error) if others_fail else None,
                )
            case outcomes.Fail(error, of_record, before_gone):
                others = completion.queue(batch).before_gone if before_gone else ()
                for each in (batch, *others):
                    completion.fail(each, failure_at(each, connection, error)._replace(of_record=of_record))

    def lost(self, connection: Connection, batches: Sequence[Batch], error: ProducerError) -> None:
        """Retry or fail *batches*, which will get no response because the connection was lost."""
        self._updater.request_refresh({batch.topic_partition.topic for batch in batches})
        for batch in batches:
            reached_socket = not isinstance(error, ConnectionFailed) or error.written
            batch.connection_lost(error, reached_socket=reached_socket)
            if self._may_not_retry(batch):
                self._completion.fail(batch, failure_at(batch, connection, error))
            else:
                self._retry(connection, batch, error)

    def _retry_at(self, connection: Connection, batch: Batch) -> float:
        """Return the time of the retry of *batch*, which failed on *connection*."""
        now, queue = self._loop.time(), self._completion.queue(batch)
        # Refusals for the sequence start a new backoff, because the errors before the refusals have ended.
        sequence_refusals = batch.persistence.sequence_refusals
        attempt = min(batch.retries, sequence_refusals - 1) if sequence_refusals else batch.retries
        concurrent = isinstance(batch.last_error, ConcurrentTransactions)
        backoff = MARKERS_BACKOFF if concurrent else self._settings.retry_backoff
        retry_at = now + backoff.delay_s(attempt)
        if queue.leader not in {connection.node_id, NO_LEADER}:  # the partition has a new leader
            return min(retry_at, queue.may_go_at(batch, now))
        return retry_at

    def _retry(self, connection: Connection, batch: Batch, error: ProducerError) -> None:
        now, retry_at = self._loop.time(), self._retry_at(connection, batch)
        self._failing_partitions.add(batch.topic_partition)
        self._limits.log(
            log,
            logging.WARNING,
            "",
            "batch.retry partition=%s partitions=%d attempt=%d backoff_s=%.3f deadline_in_s=%.1f error=%s: %s",
            batch.topic_partition,
            len(self._failing_partitions),
            batch.attempts,
            retry_at - now,
            batch.deadline - now,
            type(error).__name__,
            error,
        )
        self._completion.reenqueue(batch, retry_at)

    def _may_not_retry(self, batch: Batch) -> bool:
        return batch.state is BatchState.EXPIRED_IN_FLIGHT or batch.retries >= self._settings.retries


def _by_partition(
    answer: ProduceResponse,
) -> tuple[dict[tuple[str, int], tuple[int, int]], dict[tuple[str, int], PartitionProduceResponse]]:
    """Return the offsets of acknowledged partitions, as in `BaseOffsets`, and the refusals in *answer*.

    If a partition appears twice, the last entry wins.
    """
    offsets: dict[tuple[str, int], tuple[int, int]] = {}
    refusals: dict[tuple[str, int], PartitionProduceResponse] = {}
    for topic in answer.responses:
        for each in topic.partition_responses:
            partition = topic.name, each.index
            if each.error_code:
                refusals[partition] = each
                offsets.pop(partition, None)
            else:
                offsets[partition] = each.base_offset, each.log_append_time_ms
                refusals.pop(partition, None)
    return offsets, refusals
