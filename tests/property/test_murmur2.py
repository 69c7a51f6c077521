from __future__ import annotations

import random

from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import example, given, strategies as st

from aioproducer._core.murmur2 import murmur2, python_murmur2

KEYS = random.Random(20).randbytes


def unsigned(hashed: int) -> int:
    assert -(2**31) <= hashed < 2**31
    return hashed & 0xFFFF_FFFF


def test_ten_thousand_keys_hash_as_in_librdkafka() -> None:
    for length in range(10_000):
        key = KEYS(length % 40)
        assert unsigned(python_murmur2(key)) == unsigned(murmur2(key)) == aiokafka_murmur2(key)


@given(st.binary(max_size=400))
@example(b"")
@example(bytes(252))
@example(bytes(255))
@example(bytes(256))
@example(b"\xff" * 259)
def test_any_key_hashes_as_in_librdkafka(key: bytes) -> None:
    assert unsigned(python_murmur2(key)) == unsigned(murmur2(key)) == aiokafka_murmur2(key)
