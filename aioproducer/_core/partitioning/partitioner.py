"""Partitioners: they choose the partition of a record that does not name one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import index
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

PartitionFunction: TypeAlias = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
"""`(key, all_partitions, available_partitions) -> partition`, as written for other Python clients."""


@runtime_checkable
class Partitioner(Protocol):
    """Chooses partitions; called synchronously, for every record that does not name its partition."""

    @property
    def keyless_is_sticky(self) -> bool:
        """Whether it returns None for every record without a key; it need not be called for those.

        An attribute will do, of the object or of its class.
        """
        ...

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        """Return the partition, 0 … *partition_count* - 1, for a record with this serialized *key*.

        None means that any will do: the record joins the batch that is being filled (KIP-480). *available*
        are the partitions that have a leader now, in order; empty if none has.
        """


@runtime_checkable
class ColumnPartitioner(Partitioner, Protocol):
    """A partitioner that `send_many` need not call for every record."""

    def partition_column(
        self, topic: str, keys: Sequence[bytes], partition_count: int, available: Sequence[int]
    ) -> Sequence[int]:
        """Return what `partition` would return for each of *keys*."""


def chooses_columns(partitioner: Partitioner) -> bool:
    """Whether `partition_column` speaks for *partitioner*: not if a subclass has a `partition` of its own."""
    for each in type(partitioner).__mro__:
        if "partition_column" in vars(each):
            return True
        if "partition" in vars(each):
            return False
    return False


class Murmur2Partitioner:
    """Kafka's default: by murmur2 of the key, where the JVM client would put it; without a key, sticky."""

    keyless_is_sticky: ClassVar[bool] = True

    def __init__(self) -> None:
        self._murmur2: Callable[[bytes], int] = self._import_murmur2

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        """Choose among all partitions: a key stays where it is while a leader is away."""
        if key is None:
            return None
        return (self._murmur2(key) & 0x7FFFFFFF) % partition_count

    def partition_column(
        self, topic: str, keys: Sequence[bytes], partition_count: int, available: Sequence[int]
    ) -> Sequence[int]:
        """Choose for each of *keys* as `partition` does, many at once."""
        from aioproducer._core.partitioning.murmur2 import key_partitions  # noqa: PLC0415 - as below

        return key_partitions(keys, partition_count)

    def _import_murmur2(self, key: bytes) -> int:
        """Return the hash of *key*, the first one, and import it for all others: without keys one starts sooner."""
        from aioproducer._core.partitioning.murmur2 import murmur2  # noqa: PLC0415 - see above

        self._murmur2 = murmur2
        return murmur2(key)


class Murmur3Partitioner:
    """By murmur3 (x86, 32 bits, seed 0) of the key: *not* where Kafka's own clients would put it."""

    keyless_is_sticky: ClassVar[bool] = True

    def __init__(self) -> None:
        from mmh3 import hash as murmur3  # noqa: PLC0415 - the default partitioner needs none of it

        self._hash = murmur3

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        """Choose among all partitions, as `Murmur2Partitioner` does."""
        if key is None:
            return None
        return self._hash(key, signed=False) % partition_count


class RoundRobinPartitioner:
    """One record here, the next there, whatever their keys; partitions without a leader are passed over."""

    keyless_is_sticky: ClassVar[bool] = False

    def __init__(self) -> None:
        self._sent: Counter[str] = Counter()

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        """Choose the next partition of *topic* that has a leader; if none has, the next one."""
        turn = self._sent[topic]
        self._sent[topic] = turn + 1
        if available:
            return available[turn % len(available)]
        return turn % partition_count

    def forget(self, topic: str) -> None:
        """Begin *topic* again with its first partition."""
        self._sent.pop(topic, None)


class CallablePartitioner:
    """Whatever a function `(key, all_partitions, available_partitions) -> partition` says."""

    keyless_is_sticky: ClassVar[bool] = False

    def __init__(self, function: PartitionFunction) -> None:
        self._function = function

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        """Ask the function; both sequences are lists of its own.

        Raises: ValueError if it returns no partition of the topic, TypeError if no integer; whatever it raises.
        """
        chosen = index(self._function(key, list(range(partition_count)), list(available)))
        if not 0 <= chosen < partition_count:
            raise ValueError(
                f"the partitioner chose {chosen}, but {topic!r} has partitions 0 to {partition_count - 1}"
            )
        return chosen


def as_partitioner(value: Partitioner | PartitionFunction) -> Partitioner:
    """Return *value*, wrapped if it is a function. Raises: TypeError if it is neither."""
    if isinstance(value, Partitioner):
        return value
    if callable(value):
        return CallablePartitioner(value)
    raise TypeError(f"expected a Partitioner or a callable, not {value!r}")
