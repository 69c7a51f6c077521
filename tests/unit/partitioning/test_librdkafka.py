"""librdkafka's partitioners. That keys go where librdkafka puts them: tests/scenarios/test_librdkafka_partitioners.py."""

from __future__ import annotations

from zlib import crc32

import pytest

from aioproducer.partitioning.librdkafka import PARTITIONERS, fnv1a
from aioproducer.partitioning.partitioner import Murmur2Partitioner

MANY = 1_000
EVERY = range(MANY)

# Those of librdkafka's own test of its hash.
FNV1A = {b"kafka": 0xD33C4E1, b"giberish123456789": 0x77A58295, b"1234": 0x23BDD03, b"": 0x7EE3623B}


@pytest.mark.parametrize(("key", "hashed"), FNV1A.items())
def test_fnv1a(key: bytes, hashed: int) -> None:
    assert fnv1a(key) == hashed


def test_consistent_is_crc32() -> None:
    assert PARTITIONERS["consistent"]().partition("t", b"key", MANY, EVERY) == crc32(b"key") % MANY


@pytest.mark.parametrize(
    ("name", "expected"), [("consistent", 0), ("murmur2", 681), ("fnv1a", 0x7EE3623B % MANY)]
)
def test_without_a_key_these_have_one_partition(name: str, expected: int) -> None:
    partitioner = PARTITIONERS[name]()
    assert not partitioner.keyless_is_sticky
    assert partitioner.partition("t", None, MANY, EVERY) == expected
    assert partitioner.partition("t", b"", MANY, EVERY) == expected


@pytest.mark.parametrize("name", ["random", "consistent_random", "murmur2_random", "fnv1a_random"])
def test_without_a_key_these_are_sticky(name: str) -> None:
    partitioner = PARTITIONERS[name]()
    assert partitioner.keyless_is_sticky
    assert partitioner.partition("t", None, MANY, EVERY) is None


def test_an_empty_key_is_none_to_consistent_random_only() -> None:
    assert PARTITIONERS["consistent_random"]().partition("t", b"", MANY, EVERY) is None
    assert PARTITIONERS["fnv1a_random"]().partition("t", b"", MANY, EVERY) == 0x7EE3623B % MANY


def test_random_takes_any_that_has_a_leader() -> None:
    partitioner = PARTITIONERS["random"]()
    assert {partitioner.partition("t", b"key", 5, [1, 3]) for _ in range(100)} == {1, 3}
    assert {partitioner.partition("t", b"key", 2, []) for _ in range(100)} == {0, 1}


def test_murmur2_random_is_kafkas_own() -> None:
    assert isinstance(PARTITIONERS["murmur2_random"](), Murmur2Partitioner)
    assert PARTITIONERS["murmur2"]().partition("t", b"key", MANY, EVERY) == Murmur2Partitioner().partition(
        "t", b"key", MANY, EVERY
    )
