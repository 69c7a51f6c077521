from __future__ import annotations

from aioproducer._core.records.compression import Codec
from aioproducer.testing.batch_checks import is_zstd
from tests.unit.testing.batches import batch


def test_zstd_is_recognised_by_the_header_alone() -> None:
    assert is_zstd(batch(codec=Codec.ZSTD))
    assert not is_zstd(batch(codec=Codec.LZ4))
    assert not is_zstd(b"\xff" * 22)
