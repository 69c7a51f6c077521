"""Kafka's key hash: murmur2, 32 bits, with Kafka's seed and Java's signed result.

A record must land where every other Kafka client would put its key, so this is not open to improvement:
`mmh3` is murmur*3*, another hash.

Source: `murmur2` in Kafka's org.apache.kafka.common.utils.Utils.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import repeat
from operator import mod
from struct import Struct, unpack_from
from typing import Final

from aioproducer._core.acceleration import fastest

try:
    from murmurhash2 import murmurhash2 as _unsigned_murmur2
except ImportError:
    _unsigned_murmur2 = None  # type: ignore[assignment] # what a name may be, mypy learns from the import

SEED: Final = 0x9747_B28C
MULTIPLIER: Final = 0x5BD1_E995

# Formats are compiled once for keys of up to 255 bytes; the word count is the index.
_READ_WORDS: Final = tuple(Struct(f"<{count}I").unpack_from for count in range(64))


def python_murmur2(data: bytes) -> int:
    """Return the hash of *data* as Java's int, -2**31 … 2**31 - 1; 1.5 µs for 16 bytes.

    MULTIPLIER and the mask stand in the loop as numbers because names would cost a tenth more.
    """
    length = len(data)
    count = length >> 2
    words = _READ_WORDS[count](data) if count < 64 else unpack_from(f"<{count}I", data)
    h = 0x9747B28C ^ length
    for word in words:
        k = word * 0x5BD1E995 & 0xFFFFFFFF
        h = (h * 0x5BD1E995 ^ (k ^ k >> 24) * 0x5BD1E995) & 0xFFFFFFFF
    if tail := length & 3:
        h = (h ^ int.from_bytes(data[-tail:], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return ((h ^ h >> 15) ^ 0x80000000) - 0x80000000


def _fastest(unsigned: Callable[[bytes, int], int] | None) -> Callable[[bytes], int]:
    if unsigned is None:
        return python_murmur2

    def native_murmur2(data: bytes) -> int:
        return (unsigned(data, SEED) ^ 0x80000000) - 0x80000000

    return native_murmur2


murmur2: Final = fastest("murmur2", _fastest(_unsigned_murmur2))
"""The same as `python_murmur2`; for 16 bytes 0.1 µs in C, 0.3 where only the wheel `murmurhash2` is installed."""


def python_key_partitions(keys: Sequence[bytes], partition_count: int) -> list[int]:
    """Return where Kafka's default partitioner puts each of *keys*."""
    return list(map(mod, positive_murmur2_column(keys), repeat(partition_count)))


key_partitions: Final = fastest("key_partitions", python_key_partitions)


FEW_KEYS: Final = 24
"""So many keys of one length are hashed as fast one by one."""
LONG_KEY_BYTES: Final = 256
"""Longer keys are hashed one by one: a column of them would be copied for little gain."""

_LANE_BYTES: Final = 8
_POSITIVE: Final = 0x7FFF_FFFF


def positive_murmur2_column(keys: Sequence[bytes]) -> list[int]:
    """Return `murmur2(key) & 0x7fffffff` of each of *keys*, as Kafka's default partitioner has it.

    It takes a tenth of the time of one key after the other, in pure Python. Python's integers have no size, so one of
    them is a vector register: each key has a lane of 64 bits, of which 32 are its hash and the others take up what a
    multiplication carries. One `*`, `^` or `>>` then does a step of the hash for all keys at once, at the speed of C;
    what a shift moves into the lane below is masked off.

    Measured for keys of 16 bytes, in us per key: 0.17 from 256 keys on, 0.3 for 64 (alone: 1.6).
    """
    lengths = list(map(len, keys))
    if not lengths or lengths.count(lengths[0]) == len(lengths):
        return _hash_equally_long(keys)
    hashes = [0] * len(keys)
    places: dict[int, list[int]] = {}
    for place, length in enumerate(lengths):
        places.setdefault(length, []).append(place)
    for of_length in places.values():
        hashed = _hash_equally_long([keys[place] for place in of_length])
        for place, each in zip(of_length, hashed, strict=True):
            hashes[place] = each
    return hashes


def _hash_equally_long(keys: Sequence[bytes]) -> list[int]:
    if len(keys) < FEW_KEYS or len(keys[0]) > LONG_KEY_BYTES:
        return [murmur2(key) & _POSITIVE for key in keys]
    count, length, data = len(keys), len(keys[0]), b"".join(keys)
    ones, low_8, low_17, low_19, low_31, low_32 = _lanes(count)

    def little_endian(start: int, stop: int) -> int:
        """Return bytes *start* up to *stop* of every key, as a number in its lane."""
        lanes = bytearray(_LANE_BYTES * count)
        for place in range(start, stop):
            lanes[place - start :: _LANE_BYTES] = data[place::length]
        return int.from_bytes(lanes, "little")

    h = ones * (SEED ^ length)
    words_end = length & ~3
    for start in range(0, words_end, 4):
        k = little_endian(start, start + 4) * MULTIPLIER & low_32
        k ^= k >> 24 & low_8
        h = (h * MULTIPLIER ^ k * MULTIPLIER) & low_32
    if words_end < length:
        h = (h ^ little_endian(words_end, length)) * MULTIPLIER & low_32
    h = (h ^ h >> 13 & low_19) * MULTIPLIER & low_32
    h ^= h >> 15 & low_17
    hashes = array("Q", (h & low_31).to_bytes(_LANE_BYTES * count, "little"))
    if sys.byteorder == "big":
        hashes.byteswap()
    return hashes.tolist()


@lru_cache(maxsize=4)
def _lanes(count: int) -> tuple[int, ...]:
    """Return *count* lanes of 1, and masks of the lowest 8, 17, 19, 31 and 32 bits of each."""
    ones = int.from_bytes(b"\1\0\0\0\0\0\0\0" * count, "little")
    return ones, *(ones * ((1 << bits) - 1) for bits in (8, 17, 19, 31, 32))
