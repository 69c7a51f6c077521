"""Kinds of options whose values are user code, and Java class names with a counterpart here."""

# ruff: noqa: D102 - the methods are documented once, by Kind
from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from aioproducer._core.partitioning import PARTITIONERS, Partitioner, RoundRobinPartitioner, as_partitioner
from aioproducer.config.kinds import Kind
from aioproducer.serializers import Serializer, bytes_serializer, string_serializer

if TYPE_CHECKING:
    from aioproducer.interceptors import AnyInterceptor

_JAVA_SERIALIZERS: Mapping[str, Serializer] = {
    "org.apache.kafka.common.serialization.StringSerializer": string_serializer,
    "org.apache.kafka.common.serialization.ByteArraySerializer": bytes_serializer,
}
_JAVA_ROUND_ROBIN = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
_INTERCEPTOR_METHODS = ("on_send", "on_acknowledgement", "close")


class SerializerKind(Kind):
    """A serializer of keys or values; may be async."""

    expected = (
        "a callable that takes the value and returns bytes or None, or an object with"
        " serialize(topic, headers, value); either may be async; or None"
    )

    def check(self, value: object) -> object:
        if isinstance(value, str):
            raise self.unfit(_no_counterpart(_JAVA_SERIALIZERS, "a Python callable"))
        sees_topic = hasattr(value, "serialize")
        if sees_topic and isinstance(value, type):
            raise self.unfit(f"is a class; give an instance of it: {value.__name__}()")
        if value is not None and not sees_topic and not callable(value):
            raise self.unfit()
        if callable(value) and not sees_topic:
            _refuse_context(value)
        return value

    def parse(self, text: str) -> object:
        return _JAVA_SERIALIZERS.get(text, text)


class PartitionerKind(Kind):
    """A partitioner: an object, a function, or a name of librdkafka or Sarama."""

    expected: str = (
        "a Partitioner, a callable (key, all_partitions, available_partitions) -> partition, None,"
        f" or one of librdkafka's and Sarama's: {', '.join(PARTITIONERS)}"
    )

    def check(self, value: object) -> Partitioner | None:
        if value is None:
            return None
        if isinstance(value, str):
            if value in PARTITIONERS:
                return PARTITIONERS[value]()
            raise self.unfit(
                _no_counterpart((_JAVA_ROUND_ROBIN,), "a Python one")
                + f"; leave it out for Kafka's default. Names of librdkafka's and Sarama's: {', '.join(PARTITIONERS)}"
            )
        if isinstance(value, type):
            raise self.unfit(f"is a class; give an instance of it: {value.__name__}()")
        if isinstance(value, Partitioner):
            _refuse_async(value.partition)
            return value
        if not callable(value):
            raise self.unfit()
        _refuse_async(value)
        return as_partitioner(value)

    def parse(self, text: str) -> object:
        if text == _JAVA_ROUND_ROBIN:
            return RoundRobinPartitioner()
        return text or None


class DialKind(Kind):
    """Coroutine function that connects to a host and port."""

    expected = (
        "an async callable (host, port) that returns a connected socket or a (reader, writer) pair, or None"
    )

    def check(self, value: object) -> object:
        if value is not None and not callable(value):
            raise self.unfit()
        return value


class InterceptorsKind(Kind):
    """The interceptors, in the order in which they are called."""

    expected = "a sequence of objects with on_send, on_acknowledgement or close"

    def check(self, value: object) -> tuple[AnyInterceptor, ...]:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            raise self.unfit()
        for interceptor in value:
            if isinstance(interceptor, type):
                raise self.unfit(f"holds the class {interceptor.__name__}; give an instance of it")
            methods = [name for name in _INTERCEPTOR_METHODS if hasattr(interceptor, name)]
            if not methods:
                raise self.unfit(f"holds {interceptor!r}; expected {self.expected}")
            for name in methods:
                _refuse_async(getattr(interceptor, name))
        return tuple(value)


class AnyPartition:
    """Kafka's `partitioner.ignore.keys`: every record goes to the sticky partition, as if it had no key."""

    keyless_is_sticky: ClassVar[bool] = True

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        """Return None: the batching layer chooses the sticky partition."""
        return None


def _refuse_async(code: object) -> None:
    """Refuse coroutine functions. The append is synchronous, so records keep the order of the calls."""
    if inspect.iscoroutinefunction(code) or inspect.iscoroutinefunction(getattr(code, "__call__", None)):  # noqa: B004 - an object with an async __call__, not a test for callability
        raise ValueError(
            "is a coroutine function; it is called synchronously and cannot wait;"
            " await its result before the send"
        )


def _refuse_context(serializer: Callable[..., object]) -> None:
    """Reject serializers that need a SerializationContext (confluent-kafka's); they would fail on every record."""
    try:
        signature = inspect.signature(serializer)
    except (TypeError, ValueError):  # some callables in C have no signature
        return
    # confluent-kafka's serializers declare a default for the context, but fail without a context.
    fits = not type(serializer).__module__.startswith("confluent_kafka.schema_registry")
    try:
        signature.bind(None)
    except TypeError:
        fits = False
    if not fits:
        raise ValueError(
            "cannot be called with the value alone. Wrap a serializer of confluent-kafka"
            " (aioproducer.contrib.schema_registry), or give an object with serialize(topic, headers, value)"
        )


def _no_counterpart(mapped: Sequence[str] | Mapping[str, object], instead: str) -> str:
    return (
        f"of Java's classes only {' and '.join(mapped)} can be named here; give {instead} instead of a name"
    )
