from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import mmh3
import pytest

from aioproducer._core.partitioning import (
    AnyPartition,
    CallablePartitioner,
    ColumnPartitioner,
    Murmur2Partitioner,
    Murmur3Partitioner,
    Partitioner,
    RoundRobinPartitioner,
    chooses_columns,
)
from tests.cases import for_each

ALL = (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("key", "hashed"), [(b"21", -973932308), (b"foobar", -790332482), (b"abc", 479470107)]
)
def test_key_hashes_to_the_partition_of_the_jvm_client(key: bytes, hashed: int) -> None:
    """`Utils.toPositive(Utils.murmur2(key)) % numPartitions`; toPositive clears the sign bit."""
    for count in (1, 2, 7, 1000):
        expected = (hashed & 0x7FFF_FFFF) % count
        assert Murmur2Partitioner().partition("t", key, count, range(count)) == expected


def test_empty_key_is_hashed() -> None:
    assert Murmur2Partitioner().partition("t", b"", 6, ALL) is not None


def test_key_keeps_its_partition_while_the_leader_is_away() -> None:
    partitioner = Murmur2Partitioner()
    home = partitioner.partition("t", b"customer-7", 6, ALL)
    assert partitioner.partition("t", b"customer-7", 6, [each for each in ALL if each != home]) == home
    assert partitioner.partition("t", b"customer-7", 6, []) == home


def test_partitioner_that_ignores_keys_is_always_sticky() -> None:
    partitioner = AnyPartition()
    assert partitioner.keyless_is_sticky
    assert [partitioner.partition("t", key, 6, ALL) for key in (None, b"", b"key")] == [None] * 3


@pytest.mark.parametrize("partitioner", [Murmur2Partitioner(), Murmur3Partitioner()])
def test_hashing_partitioners_are_sticky_without_a_key(partitioner: Partitioner) -> None:
    assert partitioner.keyless_is_sticky
    assert partitioner.partition("t", None, 6, ALL) is None


def test_key_column_is_partitioned_as_single_keys() -> None:
    partitioner = Murmur2Partitioner()
    keys = [b"%d" % number for number in range(200)]
    assert isinstance(partitioner, ColumnPartitioner)
    assert partitioner.partition_column("orders", keys, 7, ()) == [
        partitioner.partition("orders", key, 7, ()) for key in keys
    ]


class OfItsOwn(Murmur2Partitioner):
    def partition(self, topic: str, key: bytes | None, partition_count: int, available: Sequence[int]) -> int:
        return 0


class OfItsOwnInColumnsToo(OfItsOwn):
    def partition_column(self, topic: str, keys: Sequence[bytes], *_: object) -> Sequence[int]:
        return [0] * len(keys)


@for_each(
    ("partitioner", "in_columns"),
    [
        (Murmur2Partitioner(), True),
        (OfItsOwn(), False),
        (OfItsOwnInColumnsToo(), True),
        (Murmur3Partitioner(), False),
        (RoundRobinPartitioner(), False),
        (SimpleNamespace(partition=lambda *_: 0), False),
    ],
)
def test_columns_require_a_matching_partition_column_method(partitioner: Any, in_columns: bool) -> None:
    assert chooses_columns(partitioner) is in_columns


def test_murmur3_is_unsigned_and_not_kafkas() -> None:
    keys = [f"key-{number}".encode() for number in range(100)]
    murmur3 = [Murmur3Partitioner().partition("t", key, 6, ALL) for key in keys]
    assert murmur3 == [(mmh3.hash(key) & 0xFFFF_FFFF) % 6 for key in keys]
    assert murmur3 != [Murmur2Partitioner().partition("t", key, 6, ALL) for key in keys]


def test_round_robin_ignores_the_key() -> None:
    partitioner = RoundRobinPartitioner()
    assert not partitioner.keyless_is_sticky
    chosen = [partitioner.partition("t", key, 3, (0, 1, 2)) for key in (None, b"a", b"a", None)]
    assert chosen == [0, 1, 2, 0]


def test_round_robin_counts_each_topic_by_itself() -> None:
    partitioner = RoundRobinPartitioner()
    chosen = [partitioner.partition(topic, None, 3, (0, 1, 2)) for topic in "abab"]
    assert chosen == [0, 0, 1, 1]


def test_round_robin_restarts_a_forgotten_topic() -> None:
    partitioner = RoundRobinPartitioner()
    for topic in ("a", "a", "b"):
        partitioner.partition(topic, None, 6, ALL)
    partitioner.forget("a")
    partitioner.forget("unknown")
    assert [partitioner.partition(topic, None, 6, ALL) for topic in ("a", "b")] == [0, 1]


def test_round_robin_passes_over_partitions_without_a_leader() -> None:
    partitioner = RoundRobinPartitioner()
    assert [partitioner.partition("t", None, 4, (1, 3)) for _ in range(3)] == [1, 3, 1]


def test_round_robin_goes_on_when_nothing_has_a_leader() -> None:
    partitioner = RoundRobinPartitioner()
    assert [partitioner.partition("t", None, 2, ()) for _ in range(3)] == [0, 1, 0]


def test_function_receives_key_all_and_available_partitions() -> None:
    asked = []

    def choose(key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        asked.append((key, all_partitions, available))
        return available[-1]

    partitioner = CallablePartitioner(choose)
    assert partitioner.partition("t", b"k", 3, (0, 1)) == 1
    assert asked == [(b"k", [0, 1, 2], [0, 1])]


def test_function_is_called_for_records_without_a_key() -> None:
    partitioner = CallablePartitioner(lambda key, _all, _available: 2 if key is None else 0)
    assert not partitioner.keyless_is_sticky
    assert partitioner.partition("t", None, 3, (0, 1, 2)) == 2


@pytest.mark.parametrize("chosen", [-1, 3, 2**40])
def test_function_that_returns_an_invalid_partition_raises(chosen: int) -> None:
    partitioner = CallablePartitioner(lambda *_: chosen)
    with pytest.raises(ValueError, match=f"{chosen}.*'orders' has partitions 0 to 2"):
        partitioner.partition("orders", b"k", 3, (0, 1, 2))


def test_function_may_return_any_integer_type() -> None:
    class Integral:
        def __index__(self) -> int:
            return 1

    partitioner = CallablePartitioner(lambda *_: Integral())  # type: ignore[arg-type]
    assert partitioner.partition("t", b"k", 3, (0, 1, 2)) == 1


def test_function_that_returns_no_integer_raises() -> None:
    partitioner = CallablePartitioner(lambda *_: None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        partitioner.partition("t", b"k", 3, (0, 1, 2))
