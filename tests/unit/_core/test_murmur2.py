from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec

import pytest

from aioproducer._core import murmur2 as module
from aioproducer._core.murmur2 import murmur2, python_murmur2
from tests.cases import for_each

# Kafka's own: UtilsTest.testMurmur2.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@for_each("hash_key", [python_murmur2, murmur2])
@for_each(("key", "hashed"), VECTORS.items())
def test_keys_hash_as_kafka_says(hash_key: Callable[[bytes], int], key: bytes, hashed: int) -> None:
    assert hash_key(key) == hashed


def test_murmur2_falls_back_to_python_without_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "murmurhash2", None)  # what import then does, is raise ImportError
    spec = find_spec(module.__name__)
    assert spec is not None
    assert spec.loader is not None
    without_wheel = module_from_spec(spec)
    spec.loader.exec_module(without_wheel)
    assert without_wheel._fastest(without_wheel._unsigned_murmur2) is without_wheel.python_murmur2
    assert without_wheel.murmur2(b"21") == VECTORS[b"21"]


def test_wheel_is_called_with_kafkas_seed() -> None:
    asked = []

    def unsigned(data: bytes, seed: int) -> int:
        asked.append((data, seed))
        return 0xFFFF_FFFF

    assert module._fastest(unsigned)(b"key") == -1
    assert asked == [(b"key", 0x9747_B28C)]
