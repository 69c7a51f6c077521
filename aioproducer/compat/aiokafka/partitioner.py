"""`aiokafka.partitioner`: the default partitioner and the hash of keys."""

from __future__ import annotations

import random
from collections.abc import Sequence

from aioproducer._core import murmur2 as hashing

__all__ = ["DefaultPartitioner", "murmur2"]


class DefaultPartitioner:
    """Partitioner by the hash of the key; a record without a key goes to a random partition with a leader."""

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        """Return one of *all_partitions*, which are sorted."""
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[(murmur2(key) & 0x7FFF_FFFF) % len(all_partitions)]


def murmur2(data: bytes) -> int:
    """Return Kafka's hash of *data* as an unsigned integer of 32 bits."""
    return hashing.murmur2(data) & 0xFFFF_FFFF
