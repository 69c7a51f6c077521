"""Produce: record batches for the partitions that one broker leads.

KIP-98 (v3: transactional ids), KIP-110 (v7: zstd), KIP-467 (v8: which records were refused), KIP-482 (v9:
flexible), KIP-951 (v10: who leads now), KIP-890 (v11 and v12: new error codes and rules, same bytes), KIP-516 (v13:
topics by id, not by name).

Every batch takes one of these requests and one of these answers, so at the end of this file the flexible versions
are written and read by hand, in a quarter of the instructions that the declarations compile to.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error as StructError  # noqa: N812 - a class, whatever its name looks like
from typing import Any, Final

from aioproducer.protocol.fields import field, struct
from aioproducer.protocol.schema import Message, Request, message, read_by_hand, written_by_hand
from aioproducer.protocol.types import (
    INT16,
    INT32,
    INT64,
    NO_TOPIC_ID,
    NULLABLE_STRING,
    RECORDS,
    STRING,
    UUID,
    array_of,
    struct_of,
)
from aioproducer.wire.primitives import (
    BytesLike,
    Reader,
    Writer,
    append_compact_string,
    append_unsigned_varint,
)


@struct
class BatchIndexAndErrorMessage:
    """A record for which its whole batch was refused; *batch_index* counts from 0 within the batch."""

    batch_index: int = field(INT32)
    batch_index_error_message: str | None = field(NULLABLE_STRING, default=None)


@struct
class LeaderIdAndEpoch:
    """Who leads the partition now; -1 is unknown."""

    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)


@struct
class PartitionProduceResponse:
    """What became of one partition's batch. *log_append_time_ms* is -1 unless the topic uses LogAppendTime."""

    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)
    log_append_time_ms: int = field(INT64, ignorable=True, default=-1)
    log_start_offset: int = field(INT64, since=5, ignorable=True, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        array_of(BatchIndexAndErrorMessage), since=8, ignorable=True, factory=list
    )
    error_message: str | None = field(NULLABLE_STRING, since=8, ignorable=True, default=None)
    current_leader: LeaderIdAndEpoch = field(
        struct_of(LeaderIdAndEpoch), since=10, tag=0, factory=LeaderIdAndEpoch
    )


@struct
class TopicProduceResponse:
    """The partitions of one topic."""

    name: str = field(STRING, until=12, ignorable=True, default="")
    topic_id: bytes = field(UUID, since=13, ignorable=True, default=NO_TOPIC_ID)
    partition_responses: list[PartitionProduceResponse] = field(array_of(PartitionProduceResponse))


@struct
class NodeEndpoint:
    """Where a broker named as current leader is found."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(NULLABLE_STRING, default=None)


BY_NAME: Final = 12
"""The last version in which topics are named; the next ones want their ids (KIP-516)."""


@message(api_key=0, versions=(3, 13), flexible_from=9, client_pauses_from=6)
class ProduceResponse(Message):
    """The outcome per partition; not sent at all if the request's acks were 0."""

    responses: list[TopicProduceResponse] = field(array_of(TopicProduceResponse))
    throttle_time_ms: int = field(INT32, ignorable=True, default=0)
    node_endpoints: list[NodeEndpoint] = field(array_of(NodeEndpoint), since=10, tag=0, factory=list)


@struct
class PartitionProduceData:
    """One partition's records: one batch of message format 2."""

    index: int = field(INT32)
    records: BytesLike | None = field(RECORDS)


@struct
class TopicProduceData:
    """The partitions of one topic."""

    name: str = field(STRING, until=12, ignorable=True, default="")
    topic_id: bytes = field(UUID, since=13, ignorable=True, default=NO_TOPIC_ID)
    partition_data: list[PartitionProduceData] = field(array_of(PartitionProduceData))


@message(api_key=0, versions=(3, 13), flexible_from=9)
class ProduceRequest(Request[ProduceResponse]):
    """Append these batches. *acks*: -1 all in-sync replicas, 1 the leader, 0 nobody."""

    transactional_id: str | None = field(NULLABLE_STRING, default=None)
    acks: int = field(INT16)
    timeout_ms: int = field(INT32)
    topic_data: list[TopicProduceData] = field(array_of(TopicProduceData))


# By hand.

_NO_TRANSACTION_ACKS_TIMEOUT: Final = Struct(">Bhi")
_ACKS_TIMEOUT: Final = Struct(">hi")
_INDEX: Final = Struct(">i")
_PARTITION: Final = Struct(">ihqqqBBB")
"""A partition's answer up to its end, where there is nothing to tell: no record errors, no message, no tags."""
_THROTTLE_AND_TAGS: Final = Struct(">iB")
_NO_RECORD_ERRORS: Final = 1
_LENGTHS: Final = {length + 1: length for length in range(0x7F)}
"""Compact lengths by their one byte: null is not among them, nor what takes more bytes."""
_NO_LEADER: Final = LeaderIdAndEpoch()
"""What answers have that name no leader: one for all."""
_response: Callable[..., ProduceResponse] = ProduceResponse
_topic: Callable[..., TopicProduceResponse] = TopicProduceResponse
_partition: Callable[..., PartitionProduceResponse] = PartitionProduceResponse
"""Called with all fields by position: half the price of names and defaults, which is why type checkers are not told."""


@written_by_hand(ProduceRequest, since=9)
def _request_writer(compiled: Writer, version: int) -> Writer:
    append_topic = _append_name if version <= BY_NAME else _append_id

    def write(buf: bytearray, request: ProduceRequest) -> None:
        start = len(buf)
        try:
            _write_request(buf, request, append_topic)
        except (StructError, TypeError):  # something does not fit: the compiled one says what
            del buf[start:]
            compiled(buf, request)

    return write


def _append_name(buf: bytearray, topic: TopicProduceData) -> None:
    append_compact_string(buf, topic.name)


def _append_id(buf: bytearray, topic: TopicProduceData) -> None:
    buf += topic.topic_id


def _write_request(
    buf: bytearray, request: ProduceRequest, append_topic: Callable[[bytearray, TopicProduceData], None]
) -> None:
    transactional_id = request.transactional_id
    if transactional_id is None:
        buf += _NO_TRANSACTION_ACKS_TIMEOUT.pack(0, request.acks, request.timeout_ms)
    else:
        append_compact_string(buf, transactional_id)
        buf += _ACKS_TIMEOUT.pack(request.acks, request.timeout_ms)
    append_unsigned_varint(buf, len(request.topic_data) + 1)
    for topic in request.topic_data:
        append_topic(buf, topic)
        append_unsigned_varint(buf, len(topic.partition_data) + 1)
        for partition in topic.partition_data:
            buf += _INDEX.pack(partition.index)
            records = partition.records
            if records is None:
                buf.append(0)
            else:
                append_unsigned_varint(buf, len(records) + 1)
                buf += records
            buf.append(0)  # no tagged fields, here and below
        buf.append(0)
    buf.append(0)


class _MoreToTell(Exception):
    """There is something in the answer that an acknowledgement does not have."""


@read_by_hand(ProduceResponse, since=9)
def _response_reader(compiled: Reader, version: int) -> Reader:
    by_name = version <= BY_NAME

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        try:
            return _read_acknowledgements(data, pos, by_name=by_name)
        except (_MoreToTell, StructError, LookupError, UnicodeDecodeError):
            return compiled(data, pos)

    return read


def _read_acknowledgements(data: bytes, pos: int, *, by_name: bool) -> tuple[ProduceResponse, int]:
    responses = []
    name, topic_id = "", NO_TOPIC_ID
    topic_count, pos = _LENGTHS[data[pos]], pos + 1
    for _ in range(topic_count):
        if by_name:
            topic_end = pos + 1 + _LENGTHS[data[pos]]
            name = data[pos + 1 : topic_end].decode()
        else:
            topic_end = pos + len(NO_TOPIC_ID)
            topic_id = data[pos:topic_end]
        partitions = []
        partition_count, pos = _LENGTHS[data[topic_end]], topic_end + 1
        for _ in range(partition_count):
            *told, record_errors, message_bytes, tags = _PARTITION.unpack_from(data, pos)
            if record_errors != _NO_RECORD_ERRORS or message_bytes or tags:
                raise _MoreToTell
            partitions.append(_partition(*told, [], None, _NO_LEADER))
            pos += _PARTITION.size
        if data[pos]:
            raise _MoreToTell
        pos += 1
        responses.append(_topic(name, topic_id, partitions))
    throttle_time_ms, tags = _THROTTLE_AND_TAGS.unpack_from(data, pos)
    if tags:
        raise _MoreToTell
    return _response(responses, throttle_time_ms, []), pos + _THROTTLE_AND_TAGS.size
