from __future__ import annotations

import random
import sys

import pytest

from aioproducer._core.partitioning.murmur2 import FEW_KEYS, LONG_KEY_BYTES, murmur2, positive_murmur2_column
from tests.unit._core.partitioning.test_murmur2 import VECTORS

rng = random.Random(1)


def one_by_one(keys: list[bytes]) -> list[int]:
    return [murmur2(key) & 0x7FFF_FFFF for key in keys]


def test_no_keys_have_no_hashes() -> None:
    assert positive_murmur2_column([]) == []


@pytest.mark.parametrize("count", [1, FEW_KEYS - 1, FEW_KEYS, 100])
@pytest.mark.parametrize("key", VECTORS)
def test_keys_hash_as_kafka_says(key: bytes, count: int) -> None:
    assert positive_murmur2_column([key] * count) == [VECTORS[key] & 0x7FFF_FFFF] * count


@pytest.mark.parametrize("length", [*range(18), LONG_KEY_BYTES, LONG_KEY_BYTES + 1])
def test_keys_of_any_length_hash_as_each_alone(length: int) -> None:
    keys = [rng.randbytes(length) for _ in range(50)]
    assert positive_murmur2_column(keys) == one_by_one(keys)


def test_every_bit_may_carry() -> None:
    keys = [b"\xff" * 16, b"\0" * 16, b"\x80" * 16] * FEW_KEYS
    assert positive_murmur2_column(keys) == one_by_one(keys)


def test_keys_of_many_lengths_keep_their_places() -> None:
    keys = [rng.randbytes(rng.randrange(6)) for _ in range(500)]
    assert positive_murmur2_column(keys) == one_by_one(keys)


def test_machines_of_the_other_byte_order_turn_what_they_read_around(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [rng.randbytes(8) for _ in range(FEW_KEYS)]
    other = {"little": "big", "big": "little"}[sys.byteorder]
    monkeypatch.setattr(sys, "byteorder", other)
    turned = [int.from_bytes(each.to_bytes(8, "little"), "big") for each in one_by_one(keys)]
    assert positive_murmur2_column(keys) == turned
