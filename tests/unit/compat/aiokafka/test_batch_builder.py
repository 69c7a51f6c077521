"""A batch that its user fills."""

from __future__ import annotations

import time
from typing import Any

import pytest

from aioproducer.compat.aiokafka.batch_builder import BatchBuilder
from tests.cases import for_each

FEW_BYTES = 16
"""So much larger than the real one is a record's size here, at most, if it is a small one."""


def builder(max_size: int = 1_000, **serializers: Any) -> BatchBuilder:
    return BatchBuilder(max_size, **{"key_serializer": None, "value_serializer": None} | serializers)


def test_batch_keeps_records_in_columns() -> None:
    batch = builder()
    batch.append(timestamp=1, key=b"k", value=bytearray(b"v"), headers=[("trace", b"1f")])
    batch.append(timestamp=2.7, key=None, value=b"w")
    assert (batch.keys, batch.values) == ([b"k", None], [b"v", b"w"])
    assert (batch.headers, batch.timestamps_ms) == ([(("trace", b"1f"),), ()], [1, 2])


def test_appending_tells_place_size_and_time() -> None:
    batch = builder()
    first = batch.append(timestamp=1, key=None, value=b"v" * 100)
    second = batch.append(timestamp=None, key=None, value=b"v")
    assert first is not None
    assert second is not None
    assert (first.offset, first.timestamp, first.crc) == (0, 1, None)
    assert 100 < first.size <= 100 + FEW_BYTES
    assert second.offset == 1
    assert abs(second.timestamp - time.time() * 1000) < 60_000
    assert batch.size() == 61 + first.size + second.size
    assert batch.record_count() == 2


def test_batch_closes_when_a_record_does_not_fit() -> None:
    batch = builder(max_size=320)
    assert batch.append(timestamp=None, key=None, value=b"v" * 100)
    assert batch.append(timestamp=None, key=None, value=b"v" * 100)
    size = batch.size()
    assert batch.append(timestamp=None, key=None, value=b"v" * 100) is None
    assert (batch.record_count(), batch.size()) == (2, size)
    assert batch.closed()
    assert batch.append(timestamp=None, key=None, value=b"v") is None  # though a smaller one would fit


def test_the_first_record_always_fits() -> None:
    assert builder(max_size=10).append(timestamp=None, key=None, value=b"v" * 100)


def test_nothing_is_appended_to_a_closed_one() -> None:
    batch = builder()
    assert not batch.closed()
    batch.close()
    assert batch.closed()
    assert batch.append(timestamp=None, key=None, value=b"v") is None
    assert batch.record_count() == 0


def test_serializers_are_asked() -> None:
    batch = builder(key_serializer=str.encode, value_serializer=lambda value: b"%d" % value)
    batch.append(timestamp=None, key="k", value=7)
    assert (batch.keys, batch.values) == ([b"k"], [b"7"])
    with pytest.raises(TypeError, match="descriptor 'encode'"):
        batch.append(timestamp=None, key=7, value=7)
    assert batch.record_count() == 1


def test_a_serializer_that_returns_no_bytes_is_named() -> None:
    batch = builder(value_serializer=str)
    with pytest.raises(TypeError, match="what value_serializer returned must be bytes"):
        batch.append(timestamp=None, key=None, value=7)


def test_no_headers_may_be_none() -> None:
    batch = builder()
    batch.append(timestamp=None, key=None, value=b"v", headers=None)
    assert batch.headers == [()]


@for_each(
    ("changed", "match"),
    [
        ({"key": "k"}, "key must be bytes"),
        ({"value": 7}, "value must be bytes"),
        ({"timestamp": "1"}, "timestamp must be int"),
        ({"headers": [("a", "b")]}, "headers: the value of 'a' must be bytes"),
        ({"headers": {"a": b"b"}}, "headers must be pairs"),
    ],
)
def test_wrong_arguments_are_told_at_once(changed: dict[str, Any], match: str) -> None:
    batch = builder()
    with pytest.raises(TypeError, match=match):
        batch.append(**{"timestamp": None, "key": None, "value": b"v"} | changed)
    assert batch.record_count() == 0
