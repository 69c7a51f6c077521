"""The checks that a broker makes of a batch, as far as its header and checksum show.

Source: Kafka's LogValidator; https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from aioproducer._core.records.compression import Codec
from aioproducer._core.records.record_batch import (
    CHECKED_FROM,
    CODEC_MASK,
    CONTROL,
    HEADER,
    LENGTH_PREFIX,
    MAGIC,
    TRANSACTIONAL,
)
from aioproducer._core.wire.crc32c import crc32c
from aioproducer._core.wire.primitives import BytesLike
from aioproducer.errors import (
    BrokerError,
    CorruptMessage,
    InvalidRecord,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from aioproducer.testing.refusal import Refused


class BatchHeader(NamedTuple):
    """The fixed part of a record batch, in its order on the wire."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def is_zstd(data: BytesLike) -> bool:
    """Whether the batch says that it is compressed by zstd, which old versions of requests must not carry."""
    return len(data) >= HEADER.size and data[CHECKED_FROM + 1] & CODEC_MASK == Codec.ZSTD


def check_batch(data: BytesLike, max_bytes: int) -> BatchHeader:
    """Return the header of the one batch that a client may send for a partition.

    Raises: Refused. These are a broker's checks, in its order, as far as header and checksum show. What is inside
    a record is looked at when it is read.
    """
    if len(data) < HEADER.size:
        raise Refused(InvalidRecord, "there must be exactly one record batch for each partition")
    header = BatchHeader._make(HEADER.unpack_from(data))
    size = LENGTH_PREFIX + header.length
    _object(_ABOUT_THE_FORM, header)
    if size < len(data):
        raise Refused(InvalidRecord, f"there must be one batch of {size} bytes, there are {len(data)} bytes")
    if size > max_bytes:
        raise Refused(MessageTooLarge, f"the batch has {size} bytes, the topic allows {max_bytes}")
    if size > len(data) or header.crc != crc32c(memoryview(data)[CHECKED_FROM:]):
        raise Refused(CorruptMessage, f"the batch is cut, or its checksum is not {header.crc:#010x}")
    _object(_ABOUT_THE_RECORDS, header)
    return header


class _Objection(NamedTuple):
    """Something that a broker refuses a batch for."""

    applies: Callable[[BatchHeader], bool]
    error: type[BrokerError]
    message: str


_CODECS = frozenset(Codec)

_ABOUT_THE_FORM = (
    _Objection(lambda h: h.magic != MAGIC, InvalidRecord, "batches must have magic 2, not {h.magic}"),
    _Objection(
        lambda h: h.length < HEADER.size - LENGTH_PREFIX,
        CorruptMessage,
        "a batch cannot be {h.length} bytes long",
    ),
    _Objection(
        lambda h: h.attributes & CODEC_MASK not in _CODECS,
        UnsupportedCompressionType,
        "no codec is known for the attributes {h.attributes:#x}",
    ),
    _Objection(
        lambda h: h.base_offset != 0, InvalidRecord, "a client's base offset is 0, not {h.base_offset}"
    ),
)

_ABOUT_THE_RECORDS = (
    _Objection(
        lambda h: h.record_count <= 0 or h.record_count != h.last_offset_delta + 1,
        InvalidRecord,
        "{h.record_count} records cannot have a last offset delta of {h.last_offset_delta}",
    ),
    _Objection(lambda h: h.attributes & CONTROL != 0, InvalidRecord, "clients may not write control records"),
    _Objection(
        lambda h: h.attributes & TRANSACTIONAL != 0 and h.producer_id < 0,
        InvalidRecord,
        "a batch of a transaction names its producer",
    ),
    _Objection(
        lambda h: h.producer_id >= 0 and (h.base_sequence < 0 or h.producer_epoch < 0),
        InvalidRecord,
        "producer {h.producer_id} cannot have sequence {h.base_sequence} and epoch {h.producer_epoch}",
    ),
)


def _object(objections: Iterable[_Objection], header: BatchHeader) -> None:
    for objection in objections:
        if objection.applies(header):
            raise Refused(objection.error, objection.message.format(h=header))
