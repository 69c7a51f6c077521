"""Compressed input is known by its first bytes, and unpacked."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import AsyncIterator, Callable

import lz4.frame
import pytest
import zstandard

from aioproducer.cli.send import unpacking
from aioproducer.cli.send.unpacking import unpacked

TEXT = b"".join(b"line %d\n" % number for number in range(20_000))
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "lz4": lz4.frame.compress,
}


async def through(data: bytes, step: int = 1_000_000) -> bytes:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(data), step):
            yield data[start : start + step]

    return b"".join([each async for each in unpacked(pieces())])


@pytest.mark.parametrize("step", [1, 7, 4_096, 1_000_000])
@pytest.mark.parametrize("name", PACK)
async def test_it_is_unpacked_however_it_comes(name: str, step: int) -> None:
    assert await through(PACK[name](TEXT), step) == TEXT


@pytest.mark.parametrize("name", PACK)
async def test_several_one_after_the_other_are_one_text(name: str) -> None:
    both = PACK[name](b"one\n") + PACK[name](b"") + PACK[name](b"two\n")
    assert await through(both) == b"one\ntwo\n"
    assert await through(both, 1) == b"one\ntwo\n"


async def test_zeros_behind_gzip_are_nothing() -> None:
    assert await through(gzip.compress(b"one\n") + bytes(512)) == b"one\n"


@pytest.mark.parametrize("plain", [b"", b"\x1f", b"\x28\xb5", b"\x1f\x8b\x07", b"{}", TEXT])
async def test_what_is_not_compressed_is_left_as_it_is(plain: bytes) -> None:
    assert await through(plain) == plain
    assert await through(plain, 1) == plain


async def test_who_types_is_not_kept_waiting() -> None:
    typed: list[bytes] = []

    async def pieces() -> AsyncIterator[bytes]:
        for each in (b"a\n", b"b\n"):
            yield each
            assert typed[-1] == each

    async for each in unpacked(pieces()):
        typed.append(each)  # noqa: PERF401 - each as it comes
    assert typed == [b"a\n", b"b\n"]


@pytest.mark.parametrize("name", PACK)
async def test_half_a_file_is_an_error(name: str) -> None:
    packed = PACK[name](TEXT)
    with pytest.raises(ValueError, match=f"the {name} file ends too early: is it whole"):
        await through(packed[: len(packed) // 2])


@pytest.mark.parametrize("name", PACK)
async def test_a_damaged_file_is_an_error(name: str) -> None:
    packed = bytearray(PACK[name](TEXT))
    packed[20:200] = bytes(180)
    with pytest.raises(ValueError, match=f"the {name} file is damaged"):
        await through(bytes(packed))


async def test_a_small_file_that_holds_a_large_one_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "PIECE_BYTES", 10_000)
    packed = zlib.compress(bytes(1_000_000), 9, wbits=31)

    async def pieces() -> AsyncIterator[bytes]:
        yield packed

    sizes = [len(each) async for each in unpacked(pieces())]
    assert sum(sizes) == 1_000_000
    assert max(sizes) <= 10_000
