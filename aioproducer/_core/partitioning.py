"""Partitioners: Kafka's default (murmur2 of the key, else sticky), and the partitioners of librdkafka and Sarama."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import index, is_, not_
from typing import ClassVar, Final, Protocol, TypeAlias, runtime_checkable

PartitionFunction: TypeAlias = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
"""`(key, all_partitions, available_partitions) -> partition`, as written for other Python clients."""


@runtime_checkable
class Partitioner(Protocol):
    """Chooses partitions; called synchronously, for every record that does not name its partition."""

    @property
    def keyless_is_sticky(self) -> bool:
        """True if `partition` returns None for every record without a key; the producer then skips the call.

        A plain attribute of the partitioner or of its class suffices.
        """
        ...

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        """Return the partition, 0 … *partition_count* - 1, for a record with this serialized *key*.

        None means any partition: the record joins the batch of the sticky partition (KIP-480). *available* lists
        the partitions that have a leader now, in order; it is empty if no partition has a leader.
        """


@runtime_checkable
class ColumnPartitioner(Partitioner, Protocol):
    """A partitioner that `send_many` calls once for many keys."""

    def partition_column(
        self, topic: str, keys: Sequence[bytes], partition_count: int, available: Sequence[int]
    ) -> Sequence[int]:
        """Return the result that `partition` would return for each of *keys*."""


def chooses_columns(partitioner: Partitioner) -> bool:
    """Return True if `partition_column` applies to *partitioner*: no subclass overrides `partition` alone."""
    for each in type(partitioner).__mro__:
        if "partition_column" in vars(each):
            return True
        if "partition" in vars(each):
            return False
    return False


class Murmur2Partitioner:
    """Kafka's default partitioner: murmur2 of the key, as in the JVM client; sticky without a key."""

    keyless_is_sticky: ClassVar[bool] = True

    def __init__(self) -> None:
        self._murmur2: Callable[[bytes], int] = self._import_murmur2

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        """Choose among all partitions, so that a key keeps its partition while the leader is unavailable."""
        if key is None:
            return None
        return (self._murmur2(key) & 0x7FFFFFFF) % partition_count

    def partition_column(
        self, topic: str, keys: Sequence[bytes], partition_count: int, available: Sequence[int]
    ) -> Sequence[int]:
        """Return the result of `partition` for each of *keys*."""
        from aioproducer._core.murmur2 import key_partitions  # noqa: PLC0415 - keyless producers start sooner

        return key_partitions(keys, partition_count)

    def _import_murmur2(self, key: bytes) -> int:
        """Import `murmur2` for the first *key*, and return the hash of *key*."""
        from aioproducer._core.murmur2 import murmur2  # noqa: PLC0415 - keyless producers start sooner

        self._murmur2 = murmur2
        return murmur2(key)


class RoundRobinPartitioner:
    """Partitioner that ignores keys and takes the partitions with a leader in turn."""

    keyless_is_sticky: ClassVar[bool] = False

    def __init__(self) -> None:
        self._sent: Counter[str] = Counter()

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        """Choose the next partition of *topic* that has a leader, or the next partition if none has a leader."""
        turn = self._sent[topic]
        self._sent[topic] = turn + 1
        if available:
            return available[turn % len(available)]
        return turn % partition_count

    def forget(self, topic: str) -> None:
        """Restart *topic* with its first partition."""
        self._sent.pop(topic, None)


class AnyPartition:
    """Kafka's `partitioner.ignore.keys`: every record goes to the sticky partition, as if it had no key."""

    keyless_is_sticky: ClassVar[bool] = True

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        """Return None: the batching layer chooses the sticky partition."""
        return None


class CallablePartitioner:
    """Partitioner that calls a function `(key, all_partitions, available_partitions) -> partition`."""

    keyless_is_sticky: ClassVar[bool] = False

    def __init__(self, function: PartitionFunction) -> None:
        self._function = function

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        """Call the function with two new lists.

        Raises: ValueError if the result is no partition of the topic, TypeError if the result is no integer, and every
        exception of the function.
        """
        chosen = index(self._function(key, list(range(partition_count)), list(available)))
        if not 0 <= chosen < partition_count:
            raise ValueError(
                f"the partitioner chose {chosen}, but {topic!r} has partitions 0 to {partition_count - 1}"
            )
        return chosen


_no_key: Final = partial(is_, None)  # a partial has no Python frame


class HashPartitioner:
    """Partitioner by a hash of the key; a missing key counts as empty, or makes the record sticky."""

    def __init__(self, of: Callable[[bytes], int], *, spread: Callable[[bytes | None], bool]) -> None:
        """*spread* returns True for keys that are sticky and not hashed."""
        self._hash = of
        self._spread = spread
        self.keyless_is_sticky: bool = spread(None)

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        """Choose among all partitions, so that a key keeps its partition while the leader is unavailable."""
        if self._spread(key):
            return None
        return self._hash(key or b"") % partition_count


class Murmur3Partitioner(HashPartitioner):
    """Partitioner by murmur3 of the key (x86, 32 bits, seed 0), which Kafka's own clients do not use."""

    def __init__(self) -> None:
        from mmh3 import hash as murmur3  # noqa: PLC0415 - other partitioners need no mmh3

        super().__init__(partial(murmur3, signed=False), spread=_no_key)


class RandomPartitioner:
    """Partitioner that gives each record with a key a random partition with a leader; sticky without a key."""

    keyless_is_sticky: ClassVar[bool] = True

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        """Choose a random partition of *available*, or of all partitions if no partition has a leader."""
        if key is None:
            return None
        return random.choice(available or range(partition_count))


def _fnv1a(data: bytes) -> int:
    """Return the hash of *data* by FNV-1a, 32 bits, unsigned."""
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def fnv1a(data: bytes) -> int:
    """Return the absolute value of the signed FNV-1a hash, as librdkafka and Sarama's NewHashPartitioner do."""
    value = _fnv1a(data)
    return value if value < 0x80000000 else 0x100000000 - value


def fnv1a_reference(data: bytes) -> int:
    """Return the FNV-1a hash without its sign bit, as Sarama's NewReferenceHashPartitioner does."""
    return _fnv1a(data) & 0x7FFFFFFF


def _crc32(data: bytes) -> int:
    from zlib import crc32  # noqa: PLC0415 - needed by two partitioners only

    return crc32(data)


def _positive_murmur2(data: bytes) -> int:
    from aioproducer._core.murmur2 import murmur2  # noqa: PLC0415 - keyless producers start sooner

    return murmur2(data) & 0x7FFFFFFF


def _never(_: bytes | None) -> bool:
    return False


PARTITIONERS: Final[Mapping[str, Callable[[], Partitioner]]] = {
    "random": RandomPartitioner,
    "consistent": lambda: HashPartitioner(_crc32, spread=_never),
    "consistent_random": lambda: HashPartitioner(_crc32, spread=not_),
    "murmur2": lambda: HashPartitioner(_positive_murmur2, spread=_never),
    "murmur2_random": Murmur2Partitioner,
    "fnv1a": lambda: HashPartitioner(fnv1a, spread=_never),
    "fnv1a_random": lambda: HashPartitioner(fnv1a, spread=_no_key),
    "fnv1a_reference_random": lambda: HashPartitioner(fnv1a_reference, spread=_no_key),
}
"""Partitioners by librdkafka's names. `murmur2_random` is the default; only Sarama has `fnv1a_reference_random`."""
