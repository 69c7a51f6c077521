"""InitProducerId and Produce: the requests of every idempotent producer.

InitProducerId: KIP-98, KIP-482 (v2: flexible), KIP-360 (v3: continue from the current id and epoch), KIP-588 (v4:
PRODUCER_FENCED), KIP-890 (v5: TRANSACTION_ABORTABLE), KIP-939 (v6: transactions without a timeout; few brokers offer v6).

Produce: KIP-98 (v3: transactional ids), KIP-110 (v7: zstd), KIP-467 (v8: the refused records), KIP-482 (v9: flexible),
KIP-951 (v10: the current leader), KIP-890 (v11 and v12: new error codes and rules, same bytes), KIP-516 (v13: topic ids in
place of names).

Every record waits for one Produce request and its response. The end of this file writes flexible requests and reads
successful responses without the compiled codecs, in a fraction of their time; `_produce.c` is the accelerated form.
"""

from __future__ import annotations

from struct import Struct, error as StructError  # noqa: N812 - a class with a lower-case name
from typing import Final, NamedTuple

from aioproducer._core.acceleration import fastest
from aioproducer._core.protocol.fields import compile_constructor, field, struct
from aioproducer._core.protocol.schema import (
    Message,
    Request,
    check_address,
    check_range,
    message,
)
from aioproducer._core.protocol.types import (
    BOOL,
    INT16,
    INT32,
    INT64,
    NO_TOPIC_ID,
    NULLABLE_STRING,
    NULLABLE_TEXT,
    RECORDS,
    STRING,
    UUID,
    array_of,
    struct_of,
)
from aioproducer._core.wire import BytesLike, Writer, append_unsigned_varint, read_unsigned_varint
from aioproducer.errors import ProtocolError


@message(api_key=22, versions=(0, 6), flexible_from=2, client_pauses_from=1)
class InitProducerIdResponse(Message):
    """Producer id and epoch, or an error."""

    throttle_time_ms: int = field(INT32, ignorable=True, default=0)
    error_code: int = field(INT16, default=0)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16)
    ongoing_txn_producer_id: int = field(INT64, since=6, default=-1)
    ongoing_txn_producer_epoch: int = field(INT16, since=6, default=-1)

    def check(self) -> None:
        lowest = -1 if self.error_code else 0
        check_range("producer_id", self.producer_id, lowest)
        check_range("producer_epoch", self.producer_epoch, lowest)
        check_range("ongoing_txn_producer_id", self.ongoing_txn_producer_id, -1)
        check_range("ongoing_txn_producer_epoch", self.ongoing_txn_producer_epoch, -1)


@message(api_key=22, versions=(0, 6), flexible_from=2)
class InitProducerIdRequest(Request[InitProducerIdResponse]):
    """Request a producer id. A *transactional_id* of None requests idempotence without transactions.

    -1 for *producer_id* and *producer_epoch* requests new values. With *enable2_pc* transactions have no timeout, for an
    external coordinator.
    """

    transactional_id: str | None = field(NULLABLE_STRING)
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, since=3, default=-1)
    producer_epoch: int = field(INT16, since=3, default=-1)
    enable2_pc: bool = field(BOOL, since=6, default=False)
    keep_prepared_txn: bool = field(BOOL, since=6, default=False)


@struct
class BatchIndexAndErrorMessage:
    """Record that caused the refusal of its batch; *batch_index* is its position in the batch, from 0."""

    batch_index: int = field(INT32)
    batch_index_error_message: str | None = field(NULLABLE_TEXT, default=None)


@struct
class LeaderIdAndEpoch:
    """Current leader of a partition; -1 means unknown."""

    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)


@struct
class PartitionProduceResponse:
    """Outcome of the batch of one partition. *log_append_time_ms* is -1 unless the topic uses LogAppendTime."""

    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)
    log_append_time_ms: int = field(INT64, ignorable=True, default=-1)
    log_start_offset: int = field(INT64, since=5, ignorable=True, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        array_of(BatchIndexAndErrorMessage), since=8, ignorable=True, factory=list
    )
    error_message: str | None = field(NULLABLE_TEXT, since=8, ignorable=True, default=None)
    current_leader: LeaderIdAndEpoch = field(
        struct_of(LeaderIdAndEpoch), since=10, tag=0, factory=LeaderIdAndEpoch
    )


@struct
class TopicProduceResponse:
    """Partitions of one topic."""

    name: str = field(STRING, until=12, ignorable=True, default="")
    topic_id: bytes = field(UUID, since=13, ignorable=True, default=NO_TOPIC_ID)
    partition_responses: list[PartitionProduceResponse] = field(array_of(PartitionProduceResponse))


@struct
class NodeEndpoint:
    """Address of a broker that is named as a current leader."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(NULLABLE_STRING, default=None)


HIGHEST_BASE_OFFSET: Final = 2**63 - 2**31
"""Highest base offset for which the offsets of all records of a batch fit into an int64."""
BY_NAME: Final = 12
"""Last version with topic names. Later versions have topic ids (KIP-516)."""


@message(api_key=0, versions=(3, 13), flexible_from=9, client_pauses_from=6)
class ProduceResponse(Message):
    """Outcome per partition. Brokers send no response to a request with acks=0."""

    responses: list[TopicProduceResponse] = field(array_of(TopicProduceResponse))
    throttle_time_ms: int = field(INT32, ignorable=True, default=0)
    node_endpoints: list[NodeEndpoint] = field(array_of(NodeEndpoint), since=10, tag=0, factory=list)

    def check(self) -> None:
        check_range("throttle_time_ms", self.throttle_time_ms, 0)
        for topic in self.responses:
            for each in topic.partition_responses:
                check_range("index", each.index, 0)
                check_range("base_offset", each.base_offset, -1, HIGHEST_BASE_OFFSET)
                check_range("log_append_time_ms", each.log_append_time_ms, -1)
                check_range("log_start_offset", each.log_start_offset, -1)
                check_range("leader_id", each.current_leader.leader_id, -1)
                check_range("leader_epoch", each.current_leader.leader_epoch, -1)
                for record in each.record_errors:
                    check_range("batch_index", record.batch_index, 0)
        for node in self.node_endpoints:
            check_address(node.node_id, node.port)


@struct
class PartitionProduceData:
    """Records of one partition: one batch of message format 2."""

    index: int = field(INT32)
    records: BytesLike | None = field(RECORDS)


@struct
class TopicProduceData:
    """Partitions of one topic."""

    name: str = field(STRING, until=12, ignorable=True, default="")
    topic_id: bytes = field(UUID, since=13, ignorable=True, default=NO_TOPIC_ID)
    partition_data: list[PartitionProduceData] = field(array_of(PartitionProduceData))


class PartitionBatch(NamedTuple):
    """PartitionProduceData as a tuple, without the cost of an `__init__` per sent batch."""

    index: int  # type: ignore[assignment]  # the field of the protocol replaces the method of tuple
    records: BytesLike | None


class TopicBatches(NamedTuple):
    """TopicProduceData as a tuple, without the cost of an `__init__` per request and topic."""

    name: str
    topic_id: bytes
    partition_data: list[PartitionBatch]


@message(api_key=0, versions=(3, 13), flexible_from=9)
class ProduceRequest(Request[ProduceResponse]):
    """Append batches. *acks*: -1 waits for all in-sync replicas, 1 waits for the leader, 0 requests no response."""

    transactional_id: str | None = field(NULLABLE_STRING, default=None)
    acks: int = field(INT16)
    timeout_ms: int = field(INT32)
    topic_data: list[TopicProduceData] = field(array_of(TopicProduceData))

    def count_records(self) -> int:
        """Return the number of records in all batches."""
        batches = (each.records for topic in self.topic_data for each in topic.partition_data)
        return sum(_INDEX.unpack_from(batch, _RECORD_COUNT_AT)[0] for batch in batches if batch)

    @staticmethod
    def faster_writer(compiled: Writer, version: int, /) -> Writer:
        """Return a writer of flexible versions that writes the usual request without *compiled*."""
        if version < FLEXIBLE:
            return compiled
        write_usual = produce_writer(version <= BY_NAME)

        def write(buf: bytearray, request: ProduceRequest) -> None:
            start = len(buf)
            try:
                write_usual(buf, request)
            except DOES_NOT_FIT:
                del buf[start:]
                compiled(buf, request)  # `compiled` raises an error that names the field

        return write


compile_constructor(ProduceRequest)


# Requests and responses without the compiled codecs.

FLEXIBLE: Final = ProduceRequest.FLEXIBLE_FROM
DOES_NOT_FIT: Final = (StructError, TypeError, ValueError, OverflowError)
"""Exceptions for a request that cannot be written."""
_NO_TRANSACTION_ACKS_TIMEOUT: Final = Struct(">Bhi")
_ACKS_TIMEOUT: Final = Struct(">hi")
_INDEX: Final = Struct(">i")
_RECORD_COUNT_AT: Final = 57
"""Position of the number of records in a batch."""
_CORRELATION_ID_AND_TAGS: Final = Struct(">iB")
_PARTITION: Final = Struct(">ihqqqBBB")
"""Index, error code, base offset, log append time, log start offset; number of record errors, message, number of tags."""
_THROTTLE_AND_TAGS: Final = Struct(">iB")
_append_string: Final = STRING.writer(0, flexible=True, nullable=False)
_NOTHING_ELSE: Final = [1, 0, 0]
"""Last three bytes of `_PARTITION` without record errors, message and tags."""


def python_produce_writer(by_name: bool) -> Writer:  # noqa: FBT001 - as its twin in C
    """Return the writer of a ProduceRequest in a flexible version, with topic names or with topic ids."""

    def write(buf: bytearray, request: ProduceRequest) -> None:
        transactional_id = request.transactional_id
        if transactional_id is None:
            buf += _NO_TRANSACTION_ACKS_TIMEOUT.pack(0, request.acks, request.timeout_ms)
        else:
            _append_string(buf, transactional_id)
            buf += _ACKS_TIMEOUT.pack(request.acks, request.timeout_ms)
        append_unsigned_varint(buf, len(request.topic_data) + 1)
        for topic in request.topic_data:
            if by_name:
                _append_string(buf, topic.name)
            else:
                buf += topic.topic_id
            append_unsigned_varint(buf, len(topic.partition_data) + 1)
            for partition in topic.partition_data:
                buf += _INDEX.pack(partition.index)
                records = partition.records
                if records is None:
                    buf.append(0)
                else:
                    append_unsigned_varint(buf, len(records) + 1)
                    buf += records
                buf.append(0)  # 0 tagged fields of the partition, then of the topic and of the request
            buf.append(0)
        buf.append(0)

    return write


produce_writer: Final = fastest("produce_writer", python_produce_writer)


class BaseOffsets(NamedTuple):
    """Base offsets of a ProduceResponse without errors and details."""

    throttle_time_ms: int
    offsets: dict[tuple[str, int], tuple[int, int]]
    """Base offset and append time in ms, by topic and partition; -1 means unknown. The receiver removes the partitions that
    it has completed."""


def python_read_base_offsets(
    kind: type[BaseOffsets], payload: bytes, names: dict[bytes, str] | None
) -> tuple[BaseOffsets, int] | None:
    """Return the offsets in *payload*, a response in a flexible version, and the number of surplus bytes.

    *kind* is `BaseOffsets`. *names* has the topic names by topic id; None for a response with topic names. Returns None for
    a response with an error or with details, and for a malformed response: `decode_response` reads these responses.
    """
    offsets: dict[tuple[str, int], tuple[int, int]] = {}
    try:
        _, tags = _CORRELATION_ID_AND_TAGS.unpack_from(payload)
        if tags:
            return None
        pos = _CORRELATION_ID_AND_TAGS.size
        topic_count, pos = (
            (byte - 1, pos + 1) if 0 < (byte := payload[pos]) <= 0x7F else _read_length(payload, pos)
        )
        for _ in range(topic_count):
            if names is None:
                size, pos = (
                    (byte - 1, pos + 1) if 0 < (byte := payload[pos]) <= 0x7F else _read_length(payload, pos)
                )
                topic_end = pos + size
                name = payload[pos:topic_end].decode()
            else:
                topic_end = pos + len(NO_TOPIC_ID)
                name = names[payload[pos:topic_end]]
            byte = payload[topic_end]
            partition_count, pos = (
                (byte - 1, topic_end + 1) if 0 < byte <= 0x7F else _read_length(payload, topic_end)
            )
            for _ in range(partition_count):
                index, error_code, base_offset, appended_ms, first, *others = _PARTITION.unpack_from(
                    payload, pos
                )
                if error_code or others != _NOTHING_ELSE or index < 0:
                    return None
                if not -1 <= base_offset <= HIGHEST_BASE_OFFSET or appended_ms < -1 or first < -1:
                    return None
                offsets[name, index] = base_offset, appended_ms
                pos += _PARTITION.size
            if payload[pos]:
                return None
            pos += 1
        throttle_time_ms, tags = _THROTTLE_AND_TAGS.unpack_from(payload, pos)
        if tags or throttle_time_ms < 0:
            return None
    except (StructError, LookupError, UnicodeDecodeError, ProtocolError):
        return None
    return kind(throttle_time_ms, offsets), len(payload) - pos - _THROTTLE_AND_TAGS.size


read_base_offsets: Final = fastest("read_base_offsets", python_read_base_offsets)


def _read_length(data: bytes, pos: int) -> tuple[int, int]:
    """Return the length at *pos*, and the position after the length. Raises: LookupError, ProtocolError."""
    length, pos = read_unsigned_varint(data, pos)
    if not length:
        raise LookupError("a null")
    return length - 1, pos
