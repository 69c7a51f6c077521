"""Produce requests: the settings that they follow, batches into bytes, and bytes into one ProduceRequest."""

# ruff: noqa: I002 - else typing compiles each annotation of a NamedTuple, for which every process waits

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aioproducer._core.acceleration import LARGEST_BYTES, keep_freed_memory, new_tuple
from aioproducer._core.backoff import Backoff
from aioproducer._core.batching.batch import Batch
from aioproducer._core.batching.batch_state import BatchState
from aioproducer._core.batching.batching_settings import BatchingSettings
from aioproducer._core.net.in_flight import Decode
from aioproducer._core.protocol.produce import (
    BY_NAME,
    FLEXIBLE,
    BaseOffsets,
    PartitionBatch,
    ProduceRequest,
    ProduceResponse,
    TopicBatches,
    read_base_offsets,
)
from aioproducer._core.protocol.schema import ApiVersionTable, decode_response
from aioproducer._core.protocol.types import NO_TOPIC_ID
from aioproducer._core.records.compression import Codec, compressor
from aioproducer._core.records.record_batch import TRANSACTIONAL, encode_batch, set_sequence
from aioproducer._core.worker_threads import WorkerThreads
from aioproducer.errors import UnsupportedCompressionType

if TYPE_CHECKING:
    from aioproducer._core.batching.topic import TopicQueues


COMPRESS_OFF_LOOP_BYTES = 64 * 1024
"""From this many bytes on, compressing a request's batches is worth a trip to a worker thread: zstd
takes about 3 ms for 1 MiB, and a trip there and back about 0.1 ms."""

COMPRESSION_THREADS = min(4, os.cpu_count() or 1)
"""How many requests are compressed at once; in threads of our own, so that nobody else's work holds us up."""

SMALL_RECORD_BYTES = 8 * 1024
"""Mean size below which records count as small for `compressor`: at least 16 of them fit in its window of 128 KiB."""

COMPRESSED_REQUEST_BYTES = 256 * 1024
"""How large a request is at most, as it is sent, that is compressed for a broker which has one to answer: it gets the
first of them while we are at those behind it. With two to answer it is twice as much, and so on: where the way is long,
each place in flight should hold much. It may hold one batch that is larger."""

Unencodable = list[tuple[Batch, Exception]]
ZSTD_FROM: Final = 7
"""The first version of Produce with zstd, that of Kafka 2.1 (KIP-110)."""
_NO_SEQUENCE: Final = (-1, -1), -1
"""Producer id, epoch and base sequence of a batch without a sequence."""
ProduceAnswer = ProduceResponse | BaseOffsets
"""What `decoder_for` makes of an answer: the offsets alone, where there is nothing else in it."""


class SenderSettings(NamedTuple):
    """Durations in seconds."""

    acks: int
    """-1: all replicas in sync, 1: the leader, 0: nobody answers."""
    idempotent: bool
    """Get a producer id before anything is sent."""
    max_in_flight: int
    """How many produce requests may wait for an answer on one connection, if there are to be answers."""
    retries: int
    """How often a batch is sent again at most; the delivery timeout ends it sooner or later anyway."""
    request_timeout_s: float
    """How long the broker may wait for its replicas; the connection waits as long for the broker."""
    retry_backoff: Backoff
    """How long a batch waits before it is sent again."""
    codec: Codec
    """How batches are compressed."""
    compression_level: int | None
    """The codec's own level; None is the codec's default."""
    transactional_id: str | None = None
    """Whose transactions the records are part of."""

    @property
    def in_flight_limit(self) -> int:
        """`max_in_flight`; with acks=0, where nobody answers, 1."""
        return self.max_in_flight if self.acks != 0 else 1


class OpenTransaction(Protocol):
    """What all that is sent is part of."""

    @property
    def goes_on(self) -> bool:
        """Whether what is not written yet may be."""

    def look(self) -> None:
        """Fail what is not to be sent any more: something has changed."""

    def write(self, batches: Sequence[Batch]) -> int | None:
        """Take note that *batches* go out; return the highest version of Produce that may be used, if there is one."""

    def answered(self, took_s: float) -> None:
        """Take note that a Produce was answered within *took_s*."""


class Encoder:
    """Encodes and compresses each batch once, sets the sequences of batches, and puts batches into requests."""

    def __init__(self, settings: SenderSettings) -> None:
        keep_freed_memory(LARGEST_BYTES)  # of the whole process; what it encodes is what comes and goes
        timeout_ms = int(settings.request_timeout_s * 1000)
        self._request_fields = settings.transactional_id, settings.acks, timeout_ms
        self._attributes = settings.codec | (TRANSACTIONAL if settings.transactional_id is not None else 0)
        self._threads = WorkerThreads(COMPRESSION_THREADS, "aioproducer compresses")
        self._compress = self._compress_small = None
        if settings.codec is not Codec.NONE:
            self._compress = compressor(settings.codec, settings.compression_level)
            self._compress_small = compressor(settings.codec, settings.compression_level, small_records=True)

    def leaves_loop(self, batches: Sequence[Batch]) -> bool:
        """Whether encoding *batches* would hold up the event loop for long."""
        if self._compress is None:
            return False
        return sum(batch.size for batch in batches if batch.encoded is None) >= COMPRESS_OFF_LOOP_BYTES

    async def encode_off_loop(self, batches: Sequence[Batch]) -> Unencodable:
        """Do as `encode_all`, in a worker thread if *batches* are large and a thread can be started.

        Cancelled, it does not wait for the thread, which ends what it has begun.
        """
        if not self.leaves_loop(batches):
            return self.encode_all(batches)
        return await self._threads.run_anyway(self.encode_all, batches)

    def yield_gil(self) -> None:
        """Let a worker thread that waits for the GIL take it, in a busy event loop."""
        self._threads.yield_gil()

    def close(self) -> None:
        """Let the threads end, as soon as they are done with what they have begun."""
        self._threads.shutdown()

    def encode_all(self, batches: Sequence[Batch]) -> Unencodable:
        """Encode each of *batches*; return batches that could not be encoded, with the error of each."""
        failed: Unencodable = []
        for batch in batches:
            try:
                self.encode(batch)
            except Exception as error:  # noqa: BLE001 - a compressor's, or a bug of ours: told to the waiters
                failed.append((batch, error))
        return failed

    def encode(self, batch: Batch) -> None:
        """Encode *batch* under its present sequence, unless it is encoded so."""
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

    def request(self, batches: Sequence[Batch], topics: Mapping[str, "TopicQueues"]) -> ProduceRequest:
        """Return one request for *batches*, encoded and of different partitions; *topics* have the topic ids."""
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


def still_in_flight(batches: Sequence[Batch]) -> list[Batch]:
    """Return those of *batches* that are still to be written: what has failed meanwhile, or was given back, must not go out."""
    return [batch for batch in batches if batch.state is BatchState.IN_FLIGHT]


def largest_request(
    batching: BatchingSettings, settings: SenderSettings, in_flight: int, written: int
) -> int:
    """Return how many bytes the next request may have, with so many *in_flight*, of which *written* have left.

    A broker that has nothing to do gets a batch's worth first, and the rest in a request behind it: it answers
    the one while it is at the other, so its clients never all wait at the same time. Else tasks that await
    their records would go on together for ever once two of their batches were in one request. What is compressed
    goes in several, for the same reason; larger ones where many are on their way, since the way is long then.
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
"""Called with all fields by position, which costs half as much as names."""


def version_for(
    request: ProduceRequest, versions: ApiVersionTable, at_most: int | None, codec: Codec = Codec.NONE
) -> int:
    """Return the version to send *request* in: *at_most* that, if it is not None, and by name if an id is not known.

    Without acknowledgements, too: that an id is another's by now would not be told, and the records be lost.

    Raises: UnsupportedVersion if a broker that offers *versions* understands none; UnsupportedCompressionType if that version
        cannot carry *codec*: brokers before 2.1 lack zstd and answer UNKNOWN_SERVER_ERROR (KIP-110).
    """
    for topic in request.topic_data:
        if (topic.topic_id == NO_TOPIC_ID or request.acks == 0) and (at_most is None or at_most > BY_NAME):
            at_most = BY_NAME
    version = versions.pick(ProduceRequest, at_most)
    if version < ZSTD_FROM and codec is Codec.ZSTD:
        raise UnsupportedCompressionType(
            f"not sent: zstd needs Kafka 2.1, and the broker takes Produce up to version {version}, not {ZSTD_FROM};"
            " set compression_type to none, gzip, snappy or lz4"
        )
    return version


def decoder_for(request: ProduceRequest, version: int) -> Decode:
    """Return what decodes the answer to *request*, to a ProduceAnswer, with the topics' names in any *version*.

    A topic may have got another id by then: what counts is which one was asked for.
    """
    if version <= BY_NAME:
        return decode_response if version < FLEXIBLE else _decode_names
    return partial(_decode, {topic.topic_id: topic.name for topic in request.topic_data})


def _decode(
    names: dict[bytes, str], response: type[ProduceResponse], version: int, payload: bytes
) -> tuple[ProduceAnswer, int]:
    offsets = read_base_offsets(BaseOffsets, payload, names)
    if offsets is not None:
        return offsets
    answer, surplus = decode_response(response, version, payload)
    for topic in answer.responses:
        topic.name = names.get(topic.topic_id) or f"the topic with the id {topic.topic_id.hex()}"
    return answer, surplus


def _decode_names(response: type[ProduceResponse], version: int, payload: bytes) -> tuple[ProduceAnswer, int]:
    offsets = read_base_offsets(BaseOffsets, payload, None)
    return decode_response(response, version, payload) if offsets is None else offsets
