"""Serializers, interceptors and partitioners of users, in every valid form."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from uuid import UUID

from aioproducer import (
    Interceptor,
    Partitioner,
    Producer,
    ProducerError,
    ProducerRecord,
    RecordMetadata,
    RoundRobinPartitioner,
    TopicPartition,
)
from aioproducer.contrib.json import json_serializer
from aioproducer.serializers import HeaderList, Serialized, Serializer, TopicSerializer, string_serializer
from aioproducer.types import Headers


def as_json(value: dict[str, int]) -> bytes:
    return json.dumps(value).encode()


class Prefixed:
    """A serializer class without a base class of this package."""

    def serialize(self, topic: str, headers: HeaderList, value: str | None) -> bytes | None:
        headers.append(("for", topic.encode()))
        return None if value is None else value.encode()


class Ids(TopicSerializer):
    def serialize(self, topic: str, headers: HeaderList, value: UUID, /) -> Serialized:
        return value.bytes


class WithoutHeaders:
    def serialize(self, topic: str, value: str) -> bytes:
        return value.encode()


async def as_json_later(value: dict[str, int]) -> bytes | None:
    return json.dumps(value).encode()


def sometimes_later(value: dict[str, int]) -> bytes | Awaitable[bytes | None]:
    return as_json_later(value) if value else b"{}"


class Encrypted:
    """A serializer with an async method."""

    async def serialize(self, topic: str, headers: HeaderList, value: str | None) -> bytes | None:
        return None if value is None else value.encode()


class EncryptedIds(TopicSerializer):
    async def serialize(self, topic: str, headers: HeaderList, value: UUID, /) -> Serialized:
        return value.bytes


class Called:
    async def __call__(self, value: str) -> bytes:
        return value.encode()


async def as_text_later(value: object) -> str:
    return str(value)


def as_text(value: object) -> str:
    return str(value)


def serializers() -> None:
    Producer("a:9092", key_serializer=string_serializer, value_serializer=json_serializer)
    Producer("a:9092", value_serializer=as_json)
    Producer("a:9092", value_serializer=lambda value: str(value).encode())
    Producer("a:9092", key_serializer=Ids(), value_serializer=Prefixed())
    chosen: Serializer = string_serializer
    Producer("a:9092", key_serializer=chosen, value_serializer=None)
    Producer("a:9092", key_serializer=as_json_later, value_serializer=sometimes_later)
    Producer("a:9092", key_serializer=EncryptedIds(), value_serializer=Encrypted())
    Producer("a:9092", value_serializer=Called())
    later: Serializer = as_json_later
    Producer("a:9092", key_serializer=later, value_serializer=string_serializer)
    Producer("a:9092", value_serializer=as_text_later)  # type: ignore[arg-type]
    Producer("a:9092", value_serializer=as_text)  # type: ignore[arg-type]
    Producer("a:9092", value_serializer=WithoutHeaders())  # type: ignore[arg-type]
    Producer("a:9092", value_serializer=Prefixed)  # type: ignore[arg-type]


class Stamped(Interceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        record.headers = [("sent-by", b"us")]
        return replace(record, key=b"ours")


class Counted:
    """An interceptor that receives outcomes with headers, and nothing else."""

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
        headers: Headers,
    ) -> None: ...


class Timed:
    """An interceptor that receives the latency of each record."""

    def on_acknowledgement(
        self,
        metadata: RecordMetadata | None,
        error: ProducerError | None,
        topic_partition: TopicPartition,
        headers: Headers,
        latency_s: float | None,
    ) -> None: ...


class Forgetful:
    def on_send(self, record: ProducerRecord) -> None: ...


class Unrelated:
    def run(self) -> None: ...


def interceptors() -> None:
    Producer("a:9092", interceptors=[Stamped(), Counted(), Timed()])
    Producer("a:9092", interceptors=(Counted(),))
    Producer("a:9092", interceptors=[Forgetful()])  # type: ignore[list-item]
    Producer("a:9092", interceptors=[Unrelated()])  # type: ignore[list-item]
    Producer("a:9092", interceptors=Stamped())  # type: ignore[arg-type]


def by_length(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
    return partitions[len(key or b"") % len(partitions)]


def by_name(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> str:
    return "first"


class First:
    """An attribute of the class will do for `keyless_is_sticky`."""

    keyless_is_sticky = False

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        return 0


class Sticky(RoundRobinPartitioner):
    keyless_is_sticky = True


class Undecided:
    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        return None


def partitioners() -> None:
    Producer("a:9092", partitioner=by_length)
    Producer("a:9092", partitioner=First())
    Producer("a:9092", partitioner=Sticky())
    chosen: Partitioner = First()
    Producer("a:9092", partitioner=chosen)
    Producer("a:9092", partitioner=by_name)  # type: ignore[arg-type]
    Producer("a:9092", partitioner=Undecided())  # type: ignore[arg-type]
