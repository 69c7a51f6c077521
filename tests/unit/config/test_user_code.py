from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from aioproducer._core.partitioning import Murmur2Partitioner, RoundRobinPartitioner
from aioproducer.config import ProducerConfig
from aioproducer.config.user_code import AnyPartition, InterceptorsKind, PartitionerKind, SerializerKind
from aioproducer.errors import ProducerError
from aioproducer.serializers import bytes_serializer, string_serializer
from aioproducer.types import ProducerRecord, RecordMetadata, TopicPartition

ROUND_ROBIN = "org.apache.kafka.clients.producer.RoundRobinPartitioner"


class Passing:
    """An interceptor with one of the three methods."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record


class Hearing:
    """An interceptor with another one of them, which calls its arguments what it likes."""

    def on_acknowledgement(
        self, where: RecordMetadata | None, why: ProducerError | None, which: TopicPartition
    ) -> None:
        return


class Closing:
    """An interceptor with the third."""

    def close(self) -> None:
        return


class First:
    """A partitioner as one writes it down: the attribute is the class's, without a ClassVar."""

    keyless_is_sticky = False

    def partition(self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]) -> int:
        return 0


class OfItsOwn(First):
    """A partitioner whose objects differ."""

    def __init__(self, *, keyless_is_sticky: bool) -> None:
        self.keyless_is_sticky = keyless_is_sticky


class OfAll:
    """A partitioner that says ClassVar."""

    keyless_is_sticky: ClassVar[bool] = True

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        return None


class ChoosingLater:
    """A partitioner that wants to wait."""

    keyless_is_sticky = True

    async def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int:
        return 0


async def encode_later(value: str) -> bytes:
    return value.encode()


class EncodingLater:
    """A callable object whose call is a coroutine."""

    async def __call__(self, value: str) -> bytes:
        return value.encode()


@pytest.mark.parametrize(
    "serializer", [None, str.encode, string_serializer, bytearray, encode_later, EncodingLater()]
)
def test_a_serializer_is_any_callable_or_none(serializer: object) -> None:
    assert SerializerKind().check(serializer) is serializer


def in_context(value: str, context: object) -> bytes:
    return value.encode()


@pytest.mark.parametrize("serializer", [in_context, lambda: b""])
def test_serializer_with_another_signature_is_refused(serializer: object) -> None:
    with pytest.raises(ValueError, match=r"with the value alone.*\(aioproducer\.contrib\.schema_registry\)"):
        SerializerKind().check(serializer)


class SeesTopic:
    def serialize(self, topic: str, headers: object, value: str) -> bytes:
        return f"{topic}: {value}".encode()


class SeesTopicLater:
    async def serialize(self, topic: str, headers: object, value: str) -> bytes:
        return value.encode()


@pytest.mark.parametrize("serializer", [SeesTopic(), SeesTopicLater()])
def test_serializer_may_be_an_object_that_sees_the_topic(serializer: object) -> None:
    assert SerializerKind().check(serializer) is serializer


def test_of_such_a_class_an_instance_has_to_be_given() -> None:
    with pytest.raises(ValueError, match=r"is a class; give an instance of it: SeesTopic\(\)"):
        SerializerKind().check(SeesTopic)


@pytest.mark.parametrize("serializer", [5, b"bytes", object()])
def test_a_serializer_can_be_called(serializer: object) -> None:
    with pytest.raises(ValueError, match="expected a callable"):
        SerializerKind().check(serializer)


@pytest.mark.parametrize("code", [encode_later, EncodingLater(), ChoosingLater()])
def test_partitioner_is_refused_when_async(code: object) -> None:
    with pytest.raises(ValueError, match=r"is a coroutine function.* await its result before the send"):
        PartitionerKind().check(code)


def test_java_serializers_have_counterparts_by_class_name() -> None:
    package = "org.apache.kafka.common.serialization"
    assert SerializerKind().parse(f"{package}.StringSerializer") is string_serializer
    assert SerializerKind().parse(f"{package}.ByteArraySerializer") is bytes_serializer


@pytest.mark.parametrize(
    "name", ["org.apache.kafka.common.serialization.LongSerializer", "com.example.Mine", ""]
)
def test_other_java_serializers_are_refused(name: str) -> None:
    kind = SerializerKind()
    with pytest.raises(
        ValueError, match=r"only .*\.StringSerializer and .*\.ByteArraySerializer can be named"
    ):
        kind.check(kind.parse(name))


def test_javas_round_robin_partitioner_is_known_by_name() -> None:
    kind = PartitionerKind()
    assert isinstance(kind.check(kind.parse(ROUND_ROBIN)), RoundRobinPartitioner)


@pytest.mark.parametrize("value", [None, PartitionerKind().parse("")])
def test_no_partitioner_is_kafkas_way(value: object) -> None:
    assert PartitionerKind().check(value) is None


def test_a_java_partitioner_that_is_not_known_is_refused() -> None:
    with pytest.raises(
        ValueError, match=f"only {ROUND_ROBIN} can be named here.*leave it out for Kafka's default"
    ):
        PartitionerKind().check("com.example.MyPartitioner")


def test_a_partitioner_is_kept_and_a_callable_is_wrapped() -> None:
    partitioner = Murmur2Partitioner()
    assert PartitionerKind().check(partitioner) is partitioner

    def last(key: bytes | None, every: Sequence[int], available: Sequence[int]) -> int:
        return every[-1]

    wrapped = PartitionerKind().check(last)
    assert wrapped is not None
    assert wrapped.partition("orders", b"key", 4, [0, 1]) == 3


@pytest.mark.parametrize("value", [5, object()])
def test_invalid_partitioner_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a Partitioner"):
        PartitionerKind().check(value)


def test_a_partitioners_class_is_not_a_partitioner() -> None:
    with pytest.raises(ValueError, match=r"is a class; give an instance of it: RoundRobinPartitioner\(\)"):
        PartitionerKind().check(RoundRobinPartitioner)


def test_interceptors_are_kept_in_their_order() -> None:
    first, second = Passing(), Passing()
    interceptors: tuple[object, ...] = InterceptorsKind().check([first, second])
    assert interceptors == (first, second)
    assert InterceptorsKind().check(()) == ()


@pytest.mark.parametrize("value", [None, "com.example.Audit", Passing(), {Passing()}])
def test_interceptors_come_as_a_sequence(value: object) -> None:
    with pytest.raises(ValueError, match="expected a sequence of objects"):
        InterceptorsKind().check(value)


def test_an_interceptors_class_is_not_an_interceptor() -> None:
    with pytest.raises(ValueError, match="holds the class Passing; give an instance"):
        InterceptorsKind().check([Passing])


@pytest.mark.parametrize("value", ["com.example.Audit", 5, None])
def test_an_interceptor_has_at_least_one_of_the_methods(value: object) -> None:
    with pytest.raises(ValueError, match=f"holds {value!r}; expected"):
        InterceptorsKind().check([value])


def test_an_interceptor_may_not_wait() -> None:
    class Waiting:
        async def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record

    with pytest.raises(ValueError, match="is a coroutine function"):
        InterceptorsKind().check([Waiting()])


def test_interceptor_types_accept_some_of_the_methods() -> None:
    """These calls are checked by mypy: no `type: ignore` may become necessary."""
    config = ProducerConfig(bootstrap_servers="a:9092", interceptors=[Passing(), Hearing(), Closing()])
    assert [type(each) for each in config.interceptors] == [Passing, Hearing, Closing]
    assert len(ProducerConfig(bootstrap_servers="a:9092", interceptors=[Passing()]).interceptors) == 1


def test_partitioner_types_accept_all_forms_of_sticky() -> None:
    """These calls are checked by mypy, too."""
    first, own, of_all = First(), OfItsOwn(keyless_is_sticky=True), OfAll()
    assert ProducerConfig(bootstrap_servers="a:9092", partitioner=first).partitioner is first
    assert ProducerConfig(bootstrap_servers="a:9092", partitioner=own).partitioner is own
    assert ProducerConfig(bootstrap_servers="a:9092", partitioner=of_all).partitioner is of_all


@pytest.mark.parametrize("key", [None, b"key"])
def test_any_partition_returns_none_with_and_without_a_key(key: bytes | None) -> None:
    assert AnyPartition().partition("orders", key, 3, [0, 2]) is None
    assert AnyPartition.keyless_is_sticky
