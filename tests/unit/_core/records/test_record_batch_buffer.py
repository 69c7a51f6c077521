from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from aioproducer._core.records.columns import RecordColumns
from aioproducer._core.records.compression import Codec
from aioproducer._core.records.record_batch import HEADER, encode_batch
from tests.cases import for_each
from tests.encoding import encode_records
from tests.unit._core.records.buffer_rig import accelerator, buffer_of, contents


def test_small_batch_is_a_copy_without_objects_for_the_collector() -> None:
    buffer = buffer_of(b"a")
    batch = encode_batch(buffer)
    assert not gc.is_tracked(batch)
    buffer.append(b"b", None, (), 0)
    assert bytes(batch[HEADER.size :]) == encode_records(buffer_of(b"a"))


def test_large_batch_without_codec_is_the_memory_of_the_buffer() -> None:
    large = b"a" * 500
    buffer: Any = buffer_of(large, b"b")
    memory, batch = buffer, encode_batch(buffer)
    assert isinstance(batch, memoryview)
    assert batch.obj is memory
    assert len(batch) == buffer.size
    view, before = batch, contents(buffer)
    changes: list[Callable[[], object]] = [
        lambda: buffer.append(b"c", None, (), 0),
        lambda: buffer.extend([b"c"], None, None, 0),
        lambda: buffer.truncate(1),
    ]
    for change in changes:
        with pytest.raises(BufferError, match="a view of its memory exists"):
            change()
    assert not buffer.put(b"c", None, None, 0, 100, 100)
    assert (buffer.trim(), contents(buffer)) == (before[2], before)
    assert buffer.take([1]).values == [b"b"]
    view.release()
    buffer.append(b"c", None, (), 0)
    assert buffer.values == [large, b"b", b"c"]


def test_view_keeps_the_memory_of_a_lost_buffer() -> None:
    batch = encode_batch(buffer_of(b"v" * 1_000))
    gc.collect()
    assert bytes(batch[-1_001:]) == b"v" * 1_000 + b"\0"


@for_each("values", [(b"a",), (b"a", None, b"c" * 300), (b"v" * 5_000, b"w")])
@for_each("identity", [(-1, -1, -1), (2**63 - 1, 2**15 - 1, 2**31 - 1), (7, 0, 12)])
def test_batch_of_buffer_equals_batch_of_columns(
    values: tuple[bytes | None, ...], identity: tuple[int, ...]
) -> None:
    buffer, columns = accelerator.RecordBuffer(), RecordColumns()
    for number, value in enumerate(values):
        for records in (buffer, columns):
            records.append(value, None, (), 1_000 - number)
    for attributes, compress in ((0, None), (16, None), (Codec.GZIP, bytes)):
        assert bytes(encode_batch(buffer, attributes, compress, *identity)) == bytes(
            encode_batch(columns, attributes, compress, *identity)
        )
