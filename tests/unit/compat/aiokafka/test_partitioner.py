"""aiokafka's default partitioner and hash."""

from __future__ import annotations

import aiokafka.partitioner as theirs

from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.compat.aiokafka.partitioner import DefaultPartitioner, murmur2
from aioproducer.testing import Cluster, in_virtual_time
from tests.cases import for_each

KEYS = [b"", b"a", b"ab", b"abc", b"abcd", b"order-12345", bytes(range(256)), "grün".encode()]


@for_each("key", KEYS)
def test_hash_is_that_of_aiokafka(key: bytes) -> None:
    assert murmur2(key) == theirs.murmur2(key)


@for_each("key", KEYS)
@for_each("count", [1, 2, 7, 1_000])
def test_keys_go_where_aiokafka_puts_them(key: bytes, count: int) -> None:
    every = list(range(count))
    assert DefaultPartitioner()(key, every, every[:1]) == theirs.DefaultPartitioner()(key, every, every[:1])


def test_record_without_key_goes_to_a_partition_with_leader() -> None:
    choose = DefaultPartitioner()
    assert {choose(None, [0, 1, 2], [1, 2]) for _ in range(100)} == {1, 2}
    assert {choose(None, [0, 1], []) for _ in range(100)} == {0, 1}


def test_names_are_those_of_aiokafka() -> None:
    for name in ("DefaultPartitioner", "murmur2"):
        assert hasattr(theirs, name)


@in_virtual_time
async def test_producer_takes_the_default_partitioner() -> None:
    async with (
        Cluster(topics={"orders": 5}, transport="memory") as cluster,
        AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, partitioner=DefaultPartitioner()
        ) as producer,
    ):
        for key in KEYS:
            metadata = await producer.send_and_wait("orders", b"v", key=key)
            assert metadata.partition == theirs.DefaultPartitioner()(key, range(5), range(5))
