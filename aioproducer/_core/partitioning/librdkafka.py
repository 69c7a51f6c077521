"""librdkafka's and Sarama's partitioners, by the names that confluent-kafka's users know.

A key goes where librdkafka puts it. Where librdkafka spreads records without a key, they are sticky here, as they are there
since it has `sticky.partitioning.linger.ms`.

Source: rdkafka_msg.c, rdcrc32.h, rdfnv1a.c of librdkafka 2; partitioner.go of Sarama 1.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from aioproducer._core.partitioning.partitioner import Murmur2Partitioner, Partitioner


class HashPartitioner:
    """By a hash of the key; a record without one as if its key were empty, or to any partition."""

    def __init__(self, of: Callable[[bytes], int], *, spread: Callable[[bytes | None], bool]) -> None:
        """*spread* says of which keys the hash is not asked: they are sticky."""
        self._hash = of
        self._spread = spread
        self.keyless_is_sticky: bool = spread(None)

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        """Choose among all partitions: a key stays where it is while a leader is away."""
        if self._spread(key):
            return None
        return self._hash(key or b"") % partition_count


class RandomPartitioner:
    """Any partition that has a leader, whatever the key; a record without one is sticky."""

    keyless_is_sticky: ClassVar[bool] = True

    def partition(
        self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]
    ) -> int | None:
        """Choose one by chance."""
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
    """Return the absolute value of the signed hash, as librdkafka and Sarama's NewHashPartitioner do."""
    value = _fnv1a(data)
    return value if value < 0x80000000 else 0x100000000 - value


def fnv1a_reference(data: bytes) -> int:
    """Return the hash without its sign bit, as Sarama's NewReferenceHashPartitioner does."""
    return _fnv1a(data) & 0x7FFFFFFF


def _crc32(data: bytes) -> int:
    from zlib import crc32  # noqa: PLC0415 - most need none of it

    return crc32(data)


def _murmur2(data: bytes) -> int:
    from aioproducer._core.partitioning.murmur2 import murmur2  # noqa: PLC0415 - likewise

    return murmur2(data) & 0x7FFFFFFF


def _no_key(key: bytes | None) -> bool:
    return key is None


def _empty(key: bytes | None) -> bool:
    return not key


def _never(_: bytes | None) -> bool:
    return False


PARTITIONERS: Final[Mapping[str, Callable[[], Partitioner]]] = {
    "random": RandomPartitioner,
    "consistent": lambda: HashPartitioner(_crc32, spread=_never),
    "consistent_random": lambda: HashPartitioner(_crc32, spread=_empty),
    "murmur2": lambda: HashPartitioner(_murmur2, spread=_never),
    "murmur2_random": Murmur2Partitioner,
    "fnv1a": lambda: HashPartitioner(fnv1a, spread=_never),
    "fnv1a_random": lambda: HashPartitioner(fnv1a, spread=_no_key),
    "fnv1a_reference_random": lambda: HashPartitioner(fnv1a_reference, spread=_no_key),
}
"""By name. `murmur2_random` is Kafka's own way, and the default here. `fnv1a_reference_random` is Sarama's alone."""
