"""Answers that no current broker sends: each function rewrites the bytes of a frame (for `Rule.rewrite`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from struct import pack
from typing import Any

from aioproducer._core.protocol.metadata import MetadataResponse
from aioproducer._core.protocol.produce import LeaderIdAndEpoch, PartitionProduceResponse, ProduceResponse
from aioproducer._core.protocol.schema import decode_response, encode_response, read_correlation_id
from aioproducer.errors import UnknownTopicId
from aioproducer.testing.faults import CloseConnection, NoResponse, Rewrite


def cut(frame: bytes) -> Iterator[bytes]:
    """Send half of the answer, then close the connection."""
    yield frame[: len(frame) // 2]
    raise CloseConnection


def stuck(frame: bytes) -> Iterator[bytes]:
    """Send half of the answer and nothing more."""
    yield frame[: len(frame) // 2]
    raise NoResponse


def twice(frame: bytes) -> list[bytes]:
    """Send the answer twice."""
    return [frame, frame]


def byte_by_byte(frame: bytes) -> Iterator[bytes]:
    """Send the answer byte by byte."""
    return (frame[index : index + 1] for index in range(len(frame)))


def other_correlation_id(frame: bytes) -> bytes:
    """Send the answer with another correlation id."""
    return frame[:4] + pack(">i", 123_456_789) + frame[8:]


def of_length(length: int) -> Rewrite:
    """Send the answer with a false length of *length* bytes."""
    return lambda frame: pack(">i", length) + frame[4:]


def followed(frame: bytes) -> bytes:
    """Send the answer and surplus bytes behind its frame."""
    return frame + b"\0\0\0\x10and what is this"


def too_long(frame: bytes) -> bytes:
    """Send the answer with surplus bytes inside its frame."""
    return pack(">i", len(frame) - 4 + 3) + frame[4:] + b"\0\0\0"


def garbage(frame: bytes) -> bytes:
    """Send a frame of the right length and correlation id with invalid content."""
    return frame[:8] + b"\xff" * (len(frame) - 8)


def web_page(_: bytes) -> bytes:
    """Send the answer of another kind of server."""
    return b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


def _altered(response_cls: type[Any], change: Callable[[Any], None]) -> Rewrite:
    version = response_cls.VERSIONS[1]

    def rewrite(frame: bytes) -> bytes:
        response, _ = decode_response(response_cls, version, frame[4:])
        change(response)
        return bytes(encode_response(response, version, read_correlation_id(frame[4:])))

    return rewrite


def _forget_a_partition(answer: ProduceResponse) -> None:
    answer.responses[-1].partition_responses.pop()


def _add_a_partition(answer: ProduceResponse) -> None:
    one_more = PartitionProduceResponse(index=77, error_code=0, base_offset=0)
    answer.responses[-1].partition_responses.append(one_more)


def _forget_leaders(answer: ProduceResponse) -> None:
    for topic in answer.responses:
        for partition in topic.partition_responses:
            partition.current_leader = LeaderIdAndEpoch()


def _refuse_another_topic(answer: ProduceResponse) -> None:
    answer.responses[0].topic_id = b"?" * 16
    answer.responses[0].partition_responses[0].error_code = UnknownTopicId.code


of_another_topic = _altered(ProduceResponse, _refuse_another_topic)
lacking_a_partition = _altered(ProduceResponse, _forget_a_partition)
with_an_unasked_partition = _altered(ProduceResponse, _add_a_partition)
without_leader_hints = _altered(ProduceResponse, _forget_leaders)


def with_topic_id(topic_id: bytes) -> Rewrite:
    """Metadata in which all topics have this id."""

    def change(answer: MetadataResponse) -> None:
        for topic in answer.topics:
            topic.topic_id = topic_id

    return _altered(MetadataResponse, change)


def stale(leaders: Mapping[int, int]) -> Rewrite:
    """Metadata in which the partitions have these *leaders* with an unchanged leader epoch."""

    def change(answer: MetadataResponse) -> None:
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.partition_index in leaders:
                    partition.leader_id, partition.leader_epoch = leaders[partition.partition_index], 0

    return _altered(MetadataResponse, change)


def lagging(partitions: int) -> Rewrite:
    """Metadata of a broker that lags behind a growth: topics have only their first *partitions*."""

    def change(answer: MetadataResponse) -> None:
        for topic in answer.topics:
            topic.partitions = topic.partitions[:partitions]

    return _altered(MetadataResponse, change)
