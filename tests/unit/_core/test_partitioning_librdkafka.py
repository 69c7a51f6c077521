"""librdkafka's and Sarama's partitioners. That keys go where librdkafka puts them: tests/scenarios/test_librdkafka_partitioners.py."""

from __future__ import annotations

import warnings
from zlib import crc32

import pytest
from hypothesis import given, strategies as st

from aioproducer._core.partitioning import PARTITIONERS, Murmur2Partitioner, fnv1a, fnv1a_reference
from tests.cases import for_each

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its files as one did
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2

MANY = 1_000
EVERY = range(MANY)

# Those of librdkafka's own test of its hash.
FNV1A = {b"kafka": 0xD33C4E1, b"giberish123456789": 0x77A58295, b"1234": 0x23BDD03, b"": 0x7EE3623B}


@for_each(("key", "hashed"), FNV1A.items())
def test_fnv1a_returns_the_known_hashes(key: bytes, hashed: int) -> None:
    assert fnv1a(key) == hashed


def test_consistent_is_crc32() -> None:
    assert PARTITIONERS["consistent"]().partition("t", b"key", MANY, EVERY) == crc32(b"key") % MANY


@pytest.mark.parametrize(
    ("name", "expected"), [("consistent", 0), ("murmur2", 681), ("fnv1a", 0x7EE3623B % MANY)]
)
def test_hashing_partitioners_of_librdkafka_hash_a_missing_key(name: str, expected: int) -> None:
    partitioner = PARTITIONERS[name]()
    assert not partitioner.keyless_is_sticky
    assert partitioner.partition("t", None, MANY, EVERY) == expected
    assert partitioner.partition("t", b"", MANY, EVERY) == expected


@for_each("name", ["random", "consistent_random", "murmur2_random", "fnv1a_random", "fnv1a_reference_random"])
def test_random_partitioners_are_sticky_without_a_key(name: str) -> None:
    partitioner = PARTITIONERS[name]()
    assert partitioner.keyless_is_sticky
    assert partitioner.partition("t", None, MANY, EVERY) is None


def test_empty_key_is_hashed_except_by_consistent_random() -> None:
    assert PARTITIONERS["consistent_random"]().partition("t", b"", MANY, EVERY) is None
    assert PARTITIONERS["fnv1a_random"]().partition("t", b"", MANY, EVERY) == 0x7EE3623B % MANY
    assert PARTITIONERS["fnv1a_reference_random"]().partition("t", b"", MANY, EVERY) == 0x011C9DC5 % MANY


def test_random_takes_any_that_has_a_leader() -> None:
    partitioner = PARTITIONERS["random"]()
    assert {partitioner.partition("t", b"key", 5, [1, 3]) for _ in range(100)} == {1, 3}
    assert {partitioner.partition("t", b"key", 2, []) for _ in range(100)} == {0, 1}


def test_murmur2_random_is_kafkas_own() -> None:
    assert isinstance(PARTITIONERS["murmur2_random"](), Murmur2Partitioner)
    assert PARTITIONERS["murmur2"]().partition("t", b"key", MANY, EVERY) == Murmur2Partitioner().partition(
        "t", b"key", MANY, EVERY
    )


# Key, number of partitions, and the partitions of NewHashPartitioner, NewReferenceHashPartitioner and
# NewConsistentCRCHashPartitioner, as Go computes them. "1468509572224" has the lowest signed hash.
SARAMA = [
    ("", 37, 34, 25, 0),
    ("", 100, 35, 13, 0),
    ("a", 37, 29, 30, 23),
    ("a", 100, 76, 72, 7),
    ("kafka", 37, 4, 4, 17),
    ("kafka", 100, 45, 45, 99),
    ("sarama", 37, 6, 6, 11),
    ("customer-7", 100, 85, 85, 20),
    ("1234", 37, 2, 20, 13),
    ("1234", 100, 35, 13, 59),
    ("giberish123456789", 37, 29, 29, 20),
    ("1468509572224", 37, 22, 0, 4),
    ("1468509572224", 100, 48, 0, 25),
    ("grün", 37, 17, 17, 18),
]


@for_each(("key", "count", "hashed", "reference", "crc"), SARAMA)
def test_key_goes_where_sarama_puts_it(key: str, count: int, hashed: int, reference: int, crc: int) -> None:
    def partition(name: str) -> int | None:
        return PARTITIONERS[name]().partition("t", key.encode(), count, range(count))

    assert (partition("fnv1a_random"), partition("fnv1a_reference_random")) == (hashed, reference)
    assert partition("consistent_random") == (crc if key else None)


# Values of Java's murmur2 in Sarama's own test.
MURMUR2 = {
    b"foo": 597841616,
    b"bar": 988958145,
    b"baz": 1973573280,
    b"kafka": 3496464228,
    b"sarama": 770765511,
}


@for_each(("key", "hashed"), MURMUR2.items())
def test_key_goes_where_sarama_puts_it_by_murmur2(key: bytes, hashed: int) -> None:
    assert PARTITIONERS["murmur2_random"]().partition("t", key, MANY, EVERY) == (hashed & 0x7FFFFFFF) % MANY


def in_go(data: bytes, count: int, *, reference: bool) -> int:
    """Return the partition as partitioner.go of Sarama computes it, with int32 and a remainder that keeps the sign."""
    unsigned = 2166136261
    for byte in data:
        unsigned = (unsigned ^ byte) * 16777619 % 2**32
    signed = unsigned - 2**32 if unsigned >= 2**31 else unsigned
    if reference:
        return (signed & 0x7FFFFFFF) % count
    remainder = abs(signed) % count * (-1 if signed < 0 else 1)
    return -remainder if remainder < 0 else remainder


@given(st.binary(max_size=40), st.integers(1, 2**31 - 1))
def test_key_goes_where_go_computes_it(key: bytes, count: int) -> None:
    assert fnv1a(key) % count == in_go(key, count, reference=False)
    assert fnv1a_reference(key) % count == in_go(key, count, reference=True)


@given(st.binary(max_size=40), st.integers(1, 10_000))
def test_key_goes_where_kafka_python_puts_it(key: bytes, count: int) -> None:
    theirs = (kafka_python_murmur2(key) & 0x7FFFFFFF) % count  # its DefaultPartitioner
    assert PARTITIONERS["murmur2_random"]().partition("t", key, count, range(count)) == theirs
